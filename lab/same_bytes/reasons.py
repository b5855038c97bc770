"""Why an answer differs from 0.1.0's: the defects of 0.1.0 that were mended, each with the jobs that it can touch.

A difference that no reason covers is a mistake. A reason is as narrow as its cause: the cards, the environments or the
figures that the mended defect had a part in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oomcast.devices import find_gpu, find_stack
from oomcast.errors import OomcastError

from .jobs import JOBS, Job

__all__ = ["REASONS", "Leaf", "Reason", "reason_for"]

_FIRST_BLACKWELL = (10, 0)
_FIRST_WITH_FOREACH = (2, 0)


@dataclass(frozen=True)
class Leaf:
    """One figure of one job that differs."""

    job: Job
    path: str
    before: Any
    after: Any
    answers: tuple[Mapping[str, Any], Mapping[str, Any]]
    """The job's whole answers, before and after."""


@dataclass(frozen=True)
class Reason:
    sentence: str
    covers: Callable[[Leaf], bool]


_LATER_REMEDIES = (["compile"], ["checkpointing-offload"])


def _assumption_added(leaf: Leaf) -> bool:
    lists = isinstance(leaf.before, list) and isinstance(leaf.after, list)
    return leaf.path.endswith("assumptions") and lists and set(leaf.before) <= set(leaf.after)


def _sentence_of_an_error(leaf: Leaf) -> bool:
    return leaf.path == "error.message" and leaf.job.fails


def _on_blackwell(leaf: Leaf) -> bool:
    parts = leaf.path.split(".")
    named = parts[1] if leaf.job.kind == "rank_gpus" and parts[0] == "choices" else leaf.job.options.get("device", "")
    try:
        return find_gpu(named).compute_capability >= _FIRST_BLACKWELL
    except OomcastError:
        return False


def _under_an_old_torch(leaf: Leaf) -> bool:
    environment = leaf.job.options.get("environment")
    if environment is None:
        return False
    stack = find_stack(environment)
    return stack.framework == "torch" and stack.version < _FIRST_WITH_FOREACH


def _interval_of_a_calibration(leaf: Leaf) -> bool:
    figures = ("low", "high", "will_not_exceed", "provenance.interval")
    return "calibration" in leaf.job.options and leaf.path in figures


def _interval_of_a_job(leaf: Leaf) -> bool:
    """What follows from the interval, of one answer or of several; its own name tells that it was another one."""
    *_, what = leaf.path.rpartition(".")
    if what in ("low", "high", "will_not_exceed", "p_oom", "interval"):
        return True
    return what == "verdict" and {leaf.before, leaf.after} == {"fits", "tight"}


def _decision_by_the_interval(leaf: Leaf) -> bool:
    """What a search or a ranking chose by P(OOM); the bytes of what both looked at are the same."""
    if leaf.job.kind == "fit":
        before, after = leaf.answers
        return leaf.path == "limit" or before["value"] != after["value"]
    if leaf.job.kind == "rank_gpus":
        return leaf.path.rpartition(".")[2] in ("enough", "own_capture", "smallest", "cheapest", "captures")
    return False


def _sizes(remedies: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """All but what follows from the interval, without the remedies that came later."""
    judged = ("p_oom", "verdict", "reaches")
    kept = [one for one in remedies if one["keys"] not in _LATER_REMEDIES]
    return [{name: value for name, value in one.items() if name not in judged} for one in kept]


def _gradient_named(leaf: Leaf) -> bool:
    """Bytes of a sweep's file that change their category alone: both breakdowns sum to the same."""
    if leaf.job.kind != "sweep":
        return False
    part, is_breakdown, what = leaf.path.rpartition(".breakdown.")
    if is_breakdown:
        before, after = (answer[part]["breakdown"] for answer in leaf.answers)
        return what in ("gradient", "temporary") and sum(before.values()) == sum(after.values())
    part, is_tensor, what = leaf.path.rpartition(".top_tensors")
    place, _, field = what.partition("].")
    if not is_tensor or field not in ("category", "module"):
        return False
    before, after = (answer[part]["top_tensors"][int(place[1:])] for answer in leaf.answers)
    categories = (before["category"], after["category"])
    return categories == ("temporary", "gradient") and before["nbytes"] == after["nbytes"]


def _risk_of_a_classifier(leaf: Leaf) -> bool:
    learned = str(leaf.job.options.get("estimator", "")).startswith("gpumemnet")
    return learned and leaf.path == "p_oom" and leaf.after > leaf.before


def _remedies_offered(leaf: Leaf) -> bool:
    """So many remedies more, the others as they were; each takes one capture."""
    if leaf.job.kind != "what_to_change":
        return False
    if leaf.path == "captures":
        return bool(leaf.before < leaf.after <= leaf.before + len(_LATER_REMEDIES))
    return leaf.path == "single" and _sizes(leaf.before) == _sizes(leaf.after)


def _dropped_model(leaf: Leaf) -> bool:
    """A script's counters are lower after a model has gone; a recorded job ends with its parameters freed."""
    if leaf.job.kind == "replay":
        return leaf.path.endswith(".events") and leaf.after > leaf.before
    _, told, counter = leaf.path.rpartition("].")
    lower = counter in ("allocated", "reserved") and leaf.after < leaf.before
    return leaf.job.kind == "script" and bool(told) and (lower or (counter == "free" and leaf.after > leaf.before))


def _of_recurrent_layers(leaf: Leaf) -> bool:
    """The operators of a sweep that are recurrent layers, where they are made; and jobs of nothing else."""
    if leaf.job.kind == "sweep":
        return leaf.path.startswith(("operator_19.", "operator_20.", "operator_21.")) and "phase_peaks" in leaf.path
    return leaf.job.job in ("zoo:lstm-lm", "file:recurrent.py")


REASONS: tuple[Reason, ...] = (
    Reason(
        "the weights of recurrent layers come into one buffer; torch's builds for CPUs left them", _of_recurrent_layers
    ),
    Reason("advise offers compiling and offloaded activations", _remedies_offered),
    Reason("a model that the job drops is free from then on; it was kept", _dropped_model),
    Reason("outside of what was learnt, P(OOM) widens as the bound does", _risk_of_a_classifier),
    Reason("what had to be assumed is said: the optimizer, the versions that were followed", _assumption_added),
    Reason("an error's sentence was rewritten; it is refused as before", _sentence_of_an_error),
    Reason("cuBLAS's workspace on Blackwell is 32 MiB from torch 2.12 on, as the virtual GPU had it", _on_blackwell),
    Reason("the environment reaches the capture: before torch 2.0 optimizers loop over tensors", _under_an_old_torch),
    Reason("runs of one calibration that contradict each other are both held", _interval_of_a_calibration),
    Reason("the interval follows what drives a job's error; it was one for all jobs", _interval_of_a_job),
    Reason("searches and rankings choose by that interval", _decision_by_the_interval),
    Reason("a weight's gradient in another memory format is called a gradient", _gradient_named),
)
_JOBS = {job.name: job for job in JOBS}


def reason_for(
    name: str, path: str, before: Any, after: Any, answers: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> str | None:
    """The sentence of the first reason that covers a difference; None: nothing that was mended explains it."""
    if name not in _JOBS:
        return None
    leaf = Leaf(_JOBS[name], path, before, after, answers)
    return next((reason.sentence for reason in REASONS if reason.covers(leaf)), None)
