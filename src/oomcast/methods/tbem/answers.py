"""Estimates whose total is what real runs teach: the static answer of a job, with the learnt total put in its place.

Both methods that learn from campaigns answer so: testing-based estimation (`tbem`) and equations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...devices import find_gpu
from ...errors import BadInput
from ...estimation import ACCEPTED_RISK, Estimate, Verdict, agreeing_chance, estimate_trace
from ...estimation.estimating import peak_moment, top_tensors
from ...trace import Trace
from .factors import Value
from .seeds import Seed
from .specification import check_network
from .static_figures import CPU, cpu_timeline, live_peak, uncalibrated_target
from .templates import Template, complete

__all__ = ["LearntTotal", "buildable", "device_of_runs", "environment_in_words", "static_answer", "with_learnt_total"]


@dataclass(frozen=True)
class LearntTotal:
    """What real runs say of a job: the bytes that it holds, how sure that is, and where it comes from."""

    total: int
    low: int
    high: int
    coverage: float
    """That of the interval, which may be less than was asked for: few runs cannot promise much."""
    will_not_exceed: int
    chance_above: Callable[[int, int], float]
    """The probability that a job which is thought to need `needed` bytes takes more than `usable` ones."""
    remarks: tuple[str, ...]
    """What a reader must know of this answer."""
    provenance: Mapping[str, Any]


def device_of_runs(device: str, environment: Mapping[str, Any], asked: str, told_by: str) -> str:
    """The device that runs were made on, `cpu` or a GPU of the catalogue; it must be the one that is asked for.

    `device` is what their campaign names, `told_by` what learnt from them, for the sentence that refuses another.
    """
    of_runs = device if device != "cuda" else find_gpu(str(environment.get("gpu", ""))).name
    wanted = CPU if asked.strip().lower() == CPU else find_gpu(asked).name
    if wanted != of_runs:
        raise BadInput(f"{told_by} on {of_runs}; it tells nothing of {wanted}.")
    return of_runs


def buildable(template: Template | Seed, parameters: Mapping[str, Value]) -> dict[str, Value]:
    """All parameters of a template, the defaults filled in; refused where no such network can be built."""
    whole = complete(template, parameters)
    rejection = template.check(whole) if hasattr(template, "check") else check_network(template.network(whole))
    if rejection is not None:
        raise BadInput(f"this network cannot be built: {rejection}.")
    return whole


def environment_in_words(environment: Mapping[str, Any]) -> str:
    """The framework of the runs, with its version."""
    return f"{environment.get('framework', '')} {environment.get('version', '')}".strip()


def static_answer(trace: Trace, device: str, memory: int) -> Estimate:
    """What is known of a captured job without a run. `memory` is that of the machine, where the device is a CPU."""
    if device != CPU:
        return estimate_trace(trace, uncalibrated_target(device))
    return _tensors_on_cpu(trace, memory)


def _tensors_on_cpu(trace: Trace, memory: int) -> Estimate:
    """The tensors alone: what a framework holds beside them on a CPU, only real runs tell."""
    timeline, live = cpu_timeline(trace), live_peak(trace, on_cpu=True)
    total = sum(live.values())
    return Estimate(
        peak_allocated=total,
        peak_reserved=total,
        device_total=total,
        low=total,
        high=total,
        coverage=0.0,
        will_not_exceed=total,
        p_oom=0.0,
        verdict=Verdict.FITS,
        breakdown={category.value: size for category, size in live.items()},
        top_tensors=top_tensors(trace, timeline),
        peak=peak_moment(trace, timeline),
        phase_peaks=tuple((s.step, s.phase.value, s.allocated, s.allocated) for s in timeline.spans),
        least_capacity=total,
        device=CPU,
        device_usable=memory,
        unsupported={**trace.unsupported},
        assumptions=trace.assumptions,
        workload=trace.workload,
        seconds=0.0,
        provenance={"versions": dict(trace.versions)},
    )


def with_learnt_total(static: Estimate, learnt: LearntTotal, job: str) -> Estimate:
    """The static answer with the learnt total; what lies between the two is the breakdown's `gap`."""
    needed = static.least_capacity + learnt.total - static.device_total
    usable = static.device_usable
    p_oom = agreeing_chance(learnt.chance_above(needed, usable) if usable else 1.0, needed <= usable)
    verdict = Verdict.OOM if needed > usable else Verdict.TIGHT if p_oom > ACCEPTED_RISK else Verdict.FITS
    return dataclasses.replace(
        static,
        device_total=learnt.total,
        low=learnt.low,
        high=learnt.high,
        coverage=learnt.coverage,
        will_not_exceed=learnt.will_not_exceed,
        p_oom=p_oom,
        verdict=verdict,
        breakdown={**static.breakdown, "gap": learnt.total - static.device_total},
        least_capacity=needed,
        assumptions=(*static.assumptions, *learnt.remarks),
        workload={**static.workload, "job": job},
        interval_basis=None,
        calibrated_by=str(learnt.provenance["calibration"]),
        provenance={**static.provenance, **learnt.provenance},
    )
