"""What is written down of an answer: every figure, and nothing that changes without one (seconds, versions, lines)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

__all__ = ["ABSENT", "of_advice", "of_estimate", "of_fit", "of_ranking"]

_PLAIN_FIELDS = (
    "peak_allocated", "peak_reserved", "device_total", "low", "high", "coverage", "will_not_exceed", "p_oom", "verdict",
    "breakdown", "unsupported", "assumptions", "least_capacity", "device", "device_usable", "peak_by_module",
)  # fmt: skip
_PROVENANCE = ("estimator", "interval", "environment", "calibration", "convolution_workspace")
_CHECK = ("value", "fits", "needed", "p_oom", "said_to_fit", "same_order", "refused")
_TENSOR = ("nbytes", "category", "operator", "module", "shape", "dtype", "phase", "step")
ABSENT = "<absent>"


def plain(value: Any) -> Any:
    """JSON data; whatever is an object of classes that may be renamed becomes its fields."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return repr(value)


def picked(answer: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Those fields of an object, or of what JSON made of it."""
    get = answer.get if isinstance(answer, Mapping) else lambda name, other: getattr(answer, name, other)
    return {name: plain(get(name, ABSENT)) for name in names}


def of_estimate(answer: Any) -> dict[str, Any]:
    """Source lines are left out: files will move. So are seconds and versions."""
    if isinstance(answer, Mapping):
        parts = dict(answer)
        phases = [[p["step"], p["phase"], p["allocated"], p["reserved"]] for p in answer.get("peak_by_phase", [])]
    else:
        parts = {name: getattr(answer, name) for name in ("peak", "top_tensors", "provenance")}
        phases = plain(answer.phase_peaks)
    return {
        **picked(answer, _PLAIN_FIELDS),
        "peak": picked(parts["peak"], ("phase", "step", "module")),
        "phase_peaks": phases,
        "top_tensors": [picked(tensor, _TENSOR) for tensor in parts["top_tensors"]],
        "provenance": picked(parts["provenance"], _PROVENANCE),
    }


def of_fit(answer: Any) -> dict[str, Any]:
    return {
        **picked(answer, ("parameter", "value", "following", "bound", "confidence", "device", "device_usable", "limit",
                         "unverified", "captures")),
        "checks": [picked(check, _CHECK) for check in answer.checks],
        "curve": [picked(point, ("value", "allocated", "reserved", "captured")) for point in answer.curve],
        "floor": None if answer.floor is None else picked(answer.floor, ("parameters", "gradients", "optimizer_state",
                                                                       "context", "needed", "smallest_gpu", "model")),
        "estimate": of_estimate(answer.estimate),
    }  # fmt: skip


def of_ranking(answer: Any) -> dict[str, Any]:
    choices = {
        choice.gpu.name: {
            **picked(choice, ("device_total", "needed", "p_oom", "enough", "own_capture", "headroom")),
            "per_hour": None if choice.price is None else choice.price.per_hour,
        }
        for choice in answer.choices
    }
    wanted = ("confidence", "smallest", "cheapest", "captures", "failed", "environment", "not_supported")
    return {**picked(answer, wanted), "order": list(choices), "choices": choices}


def of_advice(answer: Any) -> dict[str, Any]:
    def change(advice: Any) -> dict[str, Any]:
        changed = picked(advice, ("keys", "saving", "saving_total", "reaches", "patch"))
        figures = picked(
            advice.estimate, ("peak_allocated", "peak_reserved", "device_total", "least_capacity", "p_oom", "verdict")
        )
        return {**changed, **figures}

    return {
        **picked(answer, ("device", "goal", "confidence", "reached", "reachable", "failed", "captures")),
        "base": of_estimate(answer.base),
        "single": [change(remedy) for remedy in answer.single],
        "combined": [change(remedy) for remedy in answer.combined],
    }
