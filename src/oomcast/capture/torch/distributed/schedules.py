"""In which order a GPU of a pipeline works on its stages and micro-batches: torch's own schedules.

How many micro-batches must be run to know what all of them hold is read off the lists of work that torch makes.
"""

from __future__ import annotations

import functools
from collections import Counter
from types import SimpleNamespace
from typing import Any

from torch import nn
from torch.distributed.pipelining import schedules

from ....errors import BadInput
from ....spec import Parallel, PipelineSchedule

__all__ = ["enough_micro_batches", "keeps_what_it_sends", "torch_schedule"]

_CLASSES = {
    PipelineSchedule.ONE_FORWARD_ONE_BACKWARD: "Schedule1F1B",
    PipelineSchedule.INTERLEAVED: "ScheduleInterleaved1F1B",
    PipelineSchedule.ZERO_BUBBLE: "ScheduleInterleavedZeroBubble",
    PipelineSchedule.ZBV: "ScheduleZBVZeroBubble",
}


def torch_schedule(parallel: Parallel, stages: list[Any], micro_batches: int, **options: Any) -> Any:
    """torch's schedule of these stages. Raises BadInput where there can be no such order."""
    name = _CLASSES[parallel.schedule]
    if not hasattr(schedules, name):
        raise BadInput(f"schedule={parallel.schedule.value} needs a torch that has {name}; install a newer one.")
    made = getattr(schedules, name)
    if parallel.schedule is PipelineSchedule.ONE_FORWARD_ONE_BACKWARD:
        # It wants as many micro-batches as there are stages, for the sake of the first of them.
        schedule = made(stages[0], max(micro_batches, parallel.stages), **options)
        schedule._n_microbatches = micro_batches
        return schedule
    try:
        return made(stages, micro_batches, **options)
    except ValueError:
        rounds = micro_batches // parallel.pipeline
        raise BadInput(
            f"pp={parallel.pipeline},schedule={parallel.schedule.value} cannot divide {micro_batches} micro-batches "
            f"into {rounds} equal rounds; give --accumulation {rounds * parallel.pipeline}, for one."
        ) from None
    except RuntimeError as error:
        if "torch.compile" in str(error):
            raise BadInput(
                f"torch does not offer schedule={parallel.schedule.value} for compiled stages; leave --compile out."
            ) from None
        raise


def keeps_what_it_sends(parallel: Parallel) -> bool:
    """Whether a step ends before sends are waited for: until then, the work of each holds its tensor
    (`_PipelineScheduleRuntime._step_microbatches`)."""
    return parallel.schedule is not PipelineSchedule.ONE_FORWARD_ONE_BACKWARD


@functools.lru_cache(maxsize=4)
def enough_micro_batches(parallel: Parallel, place: int, micro_batches: int) -> int:
    """How many of them tell what all hold: as many wait at once, in every combination that no other exceeds, and one
    round more takes the place of others. Raises BadInput where there are too few."""
    if micro_batches < parallel.pipeline:
        raise BadInput(
            f"pp={parallel.pipeline} needs at least as many micro-batches; give --accumulation {parallel.pipeline} or "
            "more."
        )
    if parallel.schedule is PipelineSchedule.ONE_FORWARD_ONE_BACKWARD:
        return min(micro_batches, parallel.pipeline - place + 1)
    whole = _waiting(parallel, place, micro_batches)
    round_of = micro_batches // max(1, micro_batches // parallel.pipeline)
    for fewer in range(round_of, micro_batches - round_of, round_of):
        try:
            if _waiting(parallel, place, fewer) == whole:
                return fewer + round_of
        except BadInput:  # so many cannot be divided into rounds
            continue
    return micro_batches


def _waiting(parallel: Parallel, place: int, micro_batches: int) -> set[frozenset[tuple[Any, int]]]:
    """How many micro-batches wait at once, for each stage and each part of their backward; only the largest."""
    # Of its stages, a schedule asks for numbers alone until it runs.
    facts = {"num_stages": parallel.stages, "group_size": parallel.pipeline, "group_rank": place, "submod": nn.Module()}
    stages = [SimpleNamespace(stage_index=number, **facts) for number in parallel.stages_of(place)]
    now: Counter[Any] = Counter()
    seen: dict[frozenset[tuple[Any, int]], Counter[Any]] = {}
    for action in torch_schedule(parallel, stages, micro_batches).pipeline_order[place]:
        if action is None:  # it waits for others
            continue
        work, stage = action.computation_type.name, action.stage_index
        now[stage, "forward"] += (work == "FORWARD") - (work in ("FULL_BACKWARD", "BACKWARD_INPUT"))
        now[stage, "weights"] += (work == "BACKWARD_INPUT") - (work == "BACKWARD_WEIGHT")
        waiting = +now
        seen[frozenset(waiting.items())] = waiting
    return {key for key, one in seen.items() if not any(one < other for other in seen.values())}
