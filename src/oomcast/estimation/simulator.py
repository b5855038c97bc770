"""The static estimator: a job is captured, on several GPUs once for each kind of rank, and its Trace estimated."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..capture import capture, expecting, guess_framework
from ..errors import BadInput, OomcastError
from ..spec import Spec
from ..trace import ScriptRun, Trace
from .answer import Estimate, RankEstimate, Verdict
from .estimating import ESTIMATOR, estimate_trace
from .estimators import Estimator
from .ranks import KindOfRank, communication_of, kinds_of_ranks
from .target import Target

__all__ = ["Simulator", "estimate_rank", "target_of"]


def target_of(spec: Spec) -> Target:
    """Where the job runs; its framework, as far as that is known before it runs, decides which software it meets."""
    return Target.of(spec.place, guess_framework(spec.workload))


class Simulator(Estimator):
    """What the job itself allocates, followed on a virtual GPU and through the simulated allocator."""

    name = ESTIMATOR

    def estimate(self, spec: Spec, options: Any) -> Estimate:
        target = target_of(spec)  # before anything is captured: what is wrong with the place is told at once
        if spec.place.machines.world_size > 1:
            return _worst_of_the_ranks(spec)
        return estimate_trace(capture(spec), target, keep_history=spec.effort.keep_history)

    def estimate_trace(self, trace: Trace, target: Target, options: Any = None) -> Estimate:
        return estimate_trace(trace, target)


def estimate_rank(spec: Spec, trace: Trace) -> Estimate:
    """The Estimate of one rank of several GPUs, whose Trace is known: what its groups of ranks hold comes on top."""
    target = target_of(spec)
    communication, told = communication_of(spec, trace, target)
    trace = dataclasses.replace(trace, assumptions=(*trace.assumptions, *told))
    answer = estimate_trace(trace, target, keep_history=spec.effort.keep_history, communication=communication)
    machines = spec.place.machines
    return dataclasses.replace(
        answer, host_memory=trace.on_host * min(machines.gpus_per_node, machines.world_size) or None
    )


def _worst_of_the_ranks(spec: Spec) -> Estimate:
    """Each kind of rank is captured once; the answer is the one that needs most, with the table of all."""
    if spec.script is not None:
        answers, told = _ranks_of_a_script(spec)
    else:
        kinds = kinds_of_ranks(spec)
        with expecting([_as_rank(spec, kind) for kind in kinds] if len(kinds) > 1 else ()):
            answers, told = [(kind, _of_kind(spec, kind)) for kind in kinds], ()
    _, worst = max(answers, key=lambda pair: pair[1].device_total)
    ranks = tuple(
        RankEstimate(
            rank=kind.rank,
            count=kind.count,
            role=kind.role,
            peak_allocated=answer.peak_allocated,
            peak_reserved=answer.peak_reserved,
            device_total=answer.device_total,
            will_not_exceed=answer.will_not_exceed,
            p_oom=answer.p_oom,
            verdict=answer.verdict,
        )
        for kind, answer in answers
    )
    return dataclasses.replace(worst, ranks=ranks, assumptions=(*worst.assumptions, *told))


def _of_kind(spec: Spec, kind: KindOfRank) -> Estimate:
    return estimate_rank(spec, capture(_as_rank(spec, kind)))


def _as_rank(spec: Spec, kind: KindOfRank) -> Spec:
    return spec.with_place(rank=kind.rank)


def _ranks_of_a_script(spec: Spec) -> tuple[list[tuple[KindOfRank, Estimate]], tuple[str, ...]]:
    """Rank 0 and, where it can be followed by itself, the last one; with what is to be told of it."""
    first, *others = kinds_of_ranks(spec)
    answers = [(first, _of_kind(spec, first))]
    _check_own_gpu(spec, first, answers[0][1].script)
    for kind in others:
        try:
            answer = _of_kind(spec, kind)
        except OomcastError as error:
            reason = str(error).rstrip(".")
        else:
            _check_own_gpu(spec, kind, answer.script)
            if answer.verdict is not Verdict.UNKNOWN:
                answers.append((kind, answer))
                continue
            reason = "" if answer.script is None else answer.script.reason
        like_first = dataclasses.replace(first, count=first.count + kind.count)
        return [(like_first, answers[0][1])], (
            f"rank {kind.rank} could not be followed by itself, so that all ranks are taken to hold what rank 0 does: "
            f"{reason}",
        )
    return answers, ()


def _check_own_gpu(spec: Spec, kind: KindOfRank, script: ScriptRun | None) -> None:
    """Processes that choose no GPU all work on the first one, where their memory adds up."""
    own = kind.rank % spec.place.machines.gpus_per_node
    if script is not None and own > 0 and script.gpus == (0,):
        raise BadInput(
            f"{spec.workload.job.reference} works on cuda:0 as rank {kind.rank}, too: all processes of a node would "
            "share the first GPU; let each choose its own: torch.cuda.set_device(int(os.environ['LOCAL_RANK']))."
        )
