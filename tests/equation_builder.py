"""Stores of made-up runs whose memory is a known equation of their parameters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from campaign_builder import ENVIRONMENT, MIB
from oomcast.methods.measure import CaseSpec, Environment, Measurement, Outcome, Store, case_key
from oomcast.methods.tbem import complete
from oomcast.methods.tbem.templates import TEMPLATES, render

GRID = {"batch_size": (8, 16, 64, 256), "width": (32, 64, 128, 256)}


def known_memory(parameters: Mapping[str, Any]) -> int:
    return 300 * MIB + 4000 * int(parameters["batch_size"]) * int(parameters["width"])


def write_store(
    place: Path,
    grid: Mapping[str, tuple[Any, ...]] | None = None,
    memory: Callable[[Mapping[str, Any]], int] = known_memory,
    *,
    template: str = "mlp",
    framework: str = "torch",
    environment: Environment = ENVIRONMENT,
    fixed: Mapping[str, Any] | None = None,
) -> Path:
    """Every combination of the grid, measured; one that ran out of memory among them."""
    grid = grid or GRID
    settings = {"features": 64, "depth": 3} if template == "mlp" else {}
    with Store.open(place) as store:
        for number, values in enumerate(itertools.product(*grid.values())):
            given = {**settings, **(fixed or {}), **dict(zip(grid, values, strict=True))}
            case = _case(template, given, framework)
            store.register([case])
            store.finish(Measurement(case, Outcome.OK, memory(case.parameters), 1.0, environment))
            if number == 0:
                failed = _case(template, {**given, "batch_size": 4096}, framework)
                store.register([failed])
                store.finish(Measurement(failed, Outcome.OOM, 7, 1.0, environment))
    return place


def _case(template: str, given: Mapping[str, Any], framework: str) -> CaseSpec:
    parameters = complete(TEMPLATES[template], given)
    source = render(TEMPLATES[template].network(parameters), framework, steps=2, device="cpu")
    key = case_key(template, parameters, framework, "cpu", 0, 2, source)
    return CaseSpec(key, "made up", "array", template, parameters, framework, "cpu", 0, 2, source)
