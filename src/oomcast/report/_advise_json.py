"""What fits, which GPU is enough, what to change: for programs. Integers in bytes."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..advise import Advice, Change, Fit, GpuChoice, GpuRanking
from ._json import estimate_as_json

__all__ = ["advice_as_json", "fit_as_json", "gpus_as_json"]


def fit_as_json(fit: Fit) -> dict[str, Any]:
    """Plain data for `json.dumps`."""
    plain: dict[str, Any] = {
        field.name: getattr(fit, field.name)
        for field in dataclasses.fields(fit)
        if field.name not in ("estimate", "checks", "curve", "floor", "unverified")
    }
    return plain | {
        "fits": fit.fits,
        "captures": fit.captures,
        "unverified": list(fit.unverified),
        "checks": [dataclasses.asdict(check) for check in fit.checks],
        "curve": [dataclasses.asdict(point) for point in fit.curve],
        "floor": None if fit.floor is None else dataclasses.asdict(fit.floor) | {"model": fit.floor.model},
        "estimate": estimate_as_json(fit.estimate),
    }


def gpus_as_json(ranking: GpuRanking) -> dict[str, Any]:
    return {
        "job": ranking.job,
        "confidence": ranking.confidence,
        "smallest": ranking.smallest,
        "cheapest": ranking.cheapest,
        "captures": ranking.captures,
        "failed": dict(ranking.failed),
        "environment": ranking.environment,
        "not_supported": list(ranking.not_supported),
        "seconds": ranking.seconds,
        "gpus": [_choice(choice) for choice in ranking.choices],
    }


def advice_as_json(advice: Advice) -> dict[str, Any]:
    return {
        "job": advice.job,
        "device": advice.device,
        "goal": advice.goal,
        "confidence": advice.confidence,
        "reached": advice.reached,
        "reachable": advice.reachable,
        "base": estimate_as_json(advice.base),
        "single": [_change(change) for change in advice.single],
        "combined": [_change(change) for change in advice.combined],
        "failed": [{"remedy": remedy, "reason": reason} for remedy, reason in advice.failed],
        "captures": advice.captures,
        "seconds": advice.seconds,
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "remedies": [
            {
                "key": remedy.key,
                "title": remedy.title,
                "cost": remedy.cost,
                "source": remedy.source,
                "flag": remedy.flag,
                "code": remedy.code,
                "by_formula": remedy.formula is not None,
            }
            for remedy in change.remedies
        ],
        "saving": change.saving,
        "saving_total": change.saving_total,
        "reaches": change.reaches,
        "patch": change.patch,
        "estimate": estimate_as_json(change.estimate),
    }


def _choice(choice: GpuChoice) -> dict[str, Any]:
    return {
        "gpu": choice.gpu.name,
        "enough": choice.enough,
        "usable_memory": choice.gpu.usable_memory,
        "device_total": choice.device_total,
        "least_capacity": choice.needed,
        "headroom": choice.headroom,
        "p_oom": choice.p_oom,
        "own_capture": choice.own_capture,
        "price": None if choice.price is None else dataclasses.asdict(choice.price),
    }
