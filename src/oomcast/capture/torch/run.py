"""From a PyTorch job to its Trace, in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from ...devices import find_gpu, stack_of
from ...errors import BadInput, CaptureFailed, OomcastError
from ...spec import JobKind, JobPhase, Spec
from ...trace import Trace
from ..explain import first_sentence, note_stand_in
from ..growth import grow
from .inference import run_inference
from .jobs import layers_of_job, load_job
from .jobs.equal_children import EqualChildren, RepeatsChildren, stopping_at_equal_children
from .jobs.tuned import AdapterRefused
from .machine import VirtualGpu, virtual_gpu
from .training import run_training

__all__ = ["capture_here"]


_FURTHER = 4
"""Rounds that the third of three models has more than the first."""
_MIXED = "got mixed torch.Tensor and DTensor"
"""What DTensor says of an operator that gets a part of a tensor and a whole one."""


class _CompiledCodeFailed(Exception):
    """A job that compiles could not be run. Its text is what went wrong."""


def capture_here(spec: Spec) -> Trace:
    """The Trace of a job, captured in this process; of one rank, where the place has several GPUs.

    A job that fails with what it compiles is run again as eager code: if the fault is the job's own, it says so then.
    """
    _check_ranks(spec)
    grown = _grown(spec)
    if grown is not None:
        return grown
    try:
        return _captured_or_grown(spec)
    except _CompiledCodeFailed as failed:
        reason = str(failed)
    return _captured(spec, eager_because=f"compiled code cannot be followed here ({reason})")


def _grown(spec: Spec) -> Trace | None:
    """For a model of equal layers, from two shallow ones: its cost does not grow with its depth.

    Whatever goes wrong is no fault of theirs: the whole model is captured then, and tells its own.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layers = layers_of_job(spec.workload)
    if layers is None:
        return None
    # Some sizes depend on the batch's values, which are drawn: all depths see the same.
    drawn = torch.get_rng_state()
    try:
        shallow = _captured(spec, layers=layers.shallow)
        torch.set_rng_state(drawn)
        deeper = _captured(spec, layers=layers.deeper)
    except Exception:
        return None
    finally:
        torch.set_rng_state(drawn)
    return grow(shallow, deeper, layers.further_rounds, layers.period)


def _captured_or_grown(spec: Spec) -> Trace:
    """The whole job, unless its model turns out to be of children that repeat as soon as it is built."""
    job = spec.workload.job
    if job.kind not in (JobKind.FILE, JobKind.OBJECT) or spec.workload.phase is not JobPhase.TRAINING:
        return _captured(spec)
    drawn = torch.get_rng_state()
    try:
        return _captured(spec, build=lambda model: stopping_at_equal_children(model, spec.workload))
    except RepeatsChildren as found:
        children = found.children
    grown = _grown_from_children(spec, children, drawn)
    torch.set_rng_state(drawn)
    return grown if grown is not None else _captured(spec)


def _grown_from_children(spec: Spec, children: EqualChildren, drawn: torch.Tensor) -> Trace | None:
    """From models of three depths: what the job does with its model is not known, so the third one must be as the two
    others foretell."""
    traces = []
    for more in (0, 1, _FURTHER):
        torch.set_rng_state(drawn)
        try:
            build = partial(children.model, children.shallow + more)
            traces.append(_captured(spec, build=lambda _, build=build: build))  # type: ignore[misc]
        except Exception:  # such as a job that asks for a layer which the shallow model does not have
            return None
    shallow, deeper, third = traces
    if grow(shallow, deeper, _FURTHER - 1, children.period) != third:
        return None
    return grow(shallow, deeper, children.rounds - children.shallow - 1, children.period)


def _captured(
    spec: Spec,
    eager_because: str = "",
    layers: int | None = None,
    build: Callable[[Callable[[], Any]], Callable[[], Any]] | None = None,
) -> Trace:
    """`build`: what to call in the place of the job's `model()`, given that."""
    workload, machines = spec.workload, spec.place.machines
    with warnings.catch_warnings(), contextlib.ExitStack() as contexts:
        warnings.simplefilter("ignore")
        stack = stack_of(spec.place.environment, "torch")
        virtual = contexts.enter_context(virtual_gpu(find_gpu(machines.gpu), stack))
        virtual.compiled.eager_because = eager_because
        contexts.enter_context(_telling_why_it_failed(virtual))
        spread = None
        if workload.parallel is not None:
            from .distributed import Spread, World, join_world

            world = World(machines.world_size, spec.place.rank or 0, machines.gpus_per_node)
            contexts.enter_context(join_world(virtual, world))
            ledger, values = virtual.ledger, virtual.recorder.values
            spread = Spread(workload.parallel, world, workload.precision, ledger.assume, values.know, ledger.put_off)
        if workload.phase is JobPhase.TRAINING:
            job = load_job(workload, layers)
            if build is not None:
                job = dataclasses.replace(job, model=build(job.model))
            run_training(virtual, job, workload, spread)
        elif spread is not None:
            raise BadInput(f"--phase {workload.phase.value} is followed on one GPU only; leave --parallel out.")
        else:
            run_inference(virtual, load_job(workload), workload)
        # An object was made in this very process, and so were the settings that it needs.
        is_object = workload.job.kind is JobKind.OBJECT
        if not is_object:
            _tell_settings(spec, virtual)
        return virtual.trace(workload.as_dict(), whole_process=is_object)


@contextlib.contextmanager
def _telling_why_it_failed(virtual: VirtualGpu) -> Iterator[None]:
    try:
        yield
    except RepeatsChildren:
        raise
    except AdapterRefused as refused:
        if virtual.ledger.reads_data:  # some methods choose the sizes of what they train by the weights themselves
            raise CaptureFailed(
                f"the adapter's code reads values of the model's weights, which are not known here: {refused}"
            ) from None
        raise
    except OomcastError:
        raise
    except Exception as error:
        if virtual.compiled.is_used:
            raise _CompiledCodeFailed(first_sentence(error)[:200].rstrip(".")) from error
        if _MIXED in str(error):
            raise BadInput(
                "tp was asked for, but a weight that is cut over the GPUs is used outside of its layer; write "
                "tensor_parallel_plan(model) in the job, with the layers that may be cut."
            ) from error
        if virtual.recorder.values.last_stand_in:
            note_stand_in(error, virtual.recorder.values.last_stand_in)
        raise


def _check_ranks(spec: Spec) -> None:
    """One capture follows one rank: whoever asks for it must have said which, where they differ."""
    parallel, machines = spec.workload.parallel, spec.place.machines
    if machines.world_size > 1 and parallel is None:
        raise BadInput(
            f"{spec.place.device.strip()} is several GPUs, but {spec.workload.job.reference} does not say how it uses "
            "them; add --parallel ddp, fsdp2, zero3, tp=2, …"
        )
    if parallel is not None and parallel.pipeline > 1 and spec.place.rank is None:
        raise BadInput(f"the stages of {parallel} differ; name one with --rank, or ask oomcast estimate for all.")


def _tell_settings(spec: Spec, virtual: VirtualGpu) -> None:
    """What is set in the shell that oomcast was called from: the job may run elsewhere, where it is not."""
    inherited = virtual.job_settings.inherited()
    if inherited.alloc_conf and inherited.alloc_conf != spec.place.alloc_conf:
        virtual.ledger.assume(
            f"PYTORCH_CUDA_ALLOC_CONF is {inherited.alloc_conf!r} here, not set by the job, and is not followed: "
            "say it by --alloc-conf"
        )
    if inherited.cublas_workspace:
        virtual.ledger.assume(
            f"CUBLAS_WORKSPACE_CONFIG is {inherited.cublas_workspace!r} here, not set by the job, and is not followed"
        )
    if inherited.nccl and spec.place.machines.world_size > 1:
        names = ", ".join(name for name, _ in inherited.nccl)
        virtual.ledger.assume(f"{names} of this shell, not set by the job, is not followed")
