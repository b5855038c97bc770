"""Which ranks of a job differ, as the layout alone tells, and which groups of them talk, as its code showed."""

from __future__ import annotations

from dataclasses import dataclass

from ..capture import guess_framework
from ..devices import Exchange, NcclFigure, RankGroup, nccl_figure, nccl_in_words, nccl_version
from ..errors import BadInput
from ..spec import Parallel, Spec
from ..trace import Trace
from .target import Target

__all__ = ["KindOfRank", "communication_of", "kinds_of_ranks"]


@dataclass(frozen=True)
class KindOfRank:
    """Ranks that hold the same; the first of them stands for all."""

    rank: int
    count: int
    role: str


def _layout(spec: Spec) -> Parallel:
    parallel = spec.workload.parallel
    if parallel is None:
        raise BadInput(
            f"{spec.place.device.strip()} is several GPUs, but {spec.workload.job.reference} does not say how it uses "
            "them; add --parallel ddp, fsdp2, zero3, tp=2, …"
        )
    return parallel


def _is_one_program(spec: Spec) -> bool:
    """JAX runs one program over all GPUs, each with its part of every array, TensorFlow one over all replicas."""
    how = _SAYING_IT_THEMSELVES.get(guess_framework(spec.workload))
    if how is None:
        return False
    if spec.workload.parallel is not None:
        raise BadInput(f"--parallel is for PyTorch; {how}.")
    return True


_SAYING_IT_THEMSELVES = {
    "jax": "a JAX job says itself how it is divided, by its shardings",
    "tensorflow": "a TensorFlow job says itself how it is divided, by its strategy",
}


def kinds_of_ranks(spec: Spec) -> tuple[KindOfRank, ...]:
    """Stages of a pipeline differ. Within one, shards are of equal size, padded, or rank 0's are the largest."""
    world_size = spec.place.machines.world_size
    if spec.place.rank is not None:
        return (KindOfRank(spec.place.rank, 1, f"rank {spec.place.rank}"),)
    if spec.script is not None:
        # Which of a script's ranks differ is not known before they run: rank 0 has extras, the last one may have the
        # loss of a pipeline.
        return (KindOfRank(0, world_size - 1, "as rank 0"), KindOfRank(world_size - 1, 1, "the last rank"))
    if _is_one_program(spec):
        return (KindOfRank(0, world_size, "every GPU"),)
    parallel = _layout(spec)
    if parallel.pipeline == 1:
        return (KindOfRank(0, world_size, "every rank"),)
    to_a_place = world_size // parallel.pipeline

    def role(place: int) -> str:
        numbers = [str(stage + 1) for stage in parallel.stages_of(place)]
        return f"stage{'s' * (len(numbers) > 1)} {', '.join(numbers)} of {parallel.stages}"

    return tuple(KindOfRank(place * to_a_place, to_a_place, role(place)) for place in range(parallel.pipeline))


def _rank_groups(spec: Spec, trace: Trace) -> tuple[RankGroup, ...]:
    """The groups that a rank has a communicator for: those in which its code exchanged something.

    Of one program over all GPUs, whose exchanges are not followed, there is one for all of them.
    """
    machines = spec.place.machines
    if not trace.communicators and _is_one_program(spec):
        return (RankGroup(machines.world_size, machines.nodes),)
    return tuple(
        RankGroup(group.size, group.nodes, frozenset(map(Exchange, group.exchanges)), group.near_peers)
        for group in trace.communicators
    )


def communication_of(spec: Spec, trace: Trace, target: Target) -> tuple[NcclFigure, tuple[str, ...]]:
    """What NCCL holds on a rank whose Trace is known, and what is to be told of it."""
    version = nccl_version(target.stack)
    figure = nccl_figure(target.gpu, version, _rank_groups(spec, trace), dict(trace.settings.nccl))
    return figure, (nccl_in_words(figure, version),) if figure.high else ()
