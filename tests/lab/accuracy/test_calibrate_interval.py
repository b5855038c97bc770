"""The interval fitted on measured runs, in both kinds, and written for the estimates to read."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab.accuracy import Case, Measure, fit_interval, write_interval
from oomcast.errors import BadInput
from oomcast.estimation import Doubt
from oomcast.estimation.interval import interval_from_json
from oomcast.spec import Workload
from oomcast.units import GiB


def case(family: str, truth: int, measure: Measure = Measure.DEVICE_TOTAL) -> Case:
    workload = Workload.create("zoo:mlp")
    return Case("drawn", "one", "1", family, workload, "rtx-3090", "torch-2.8-cu128", measure, truth, ran=True)


def plain(truth: int, estimate: int = 10 * GiB) -> Any:
    return cast(Any, SimpleNamespace(truth=truth, estimate=estimate, doubt=None, device_total=estimate))


def pairs(spread: float, families: int = 120, seed: int = 1) -> list[tuple[Case, Any]]:
    """Three runs a family, the families off by `spread`."""
    rng = random.Random(seed)
    drawn = []
    for family in range(families):
        centre = rng.gauss(0, spread)
        for _ in range(3):
            truth = round(10 * GiB * (1 + centre + rng.gauss(0, spread / 5)))
            drawn.append((case(f"f{family}", truth), plain(truth)))
    return drawn


def test_both_kinds_are_fitted_and_written(tmp_path: Path) -> None:
    fitted = fit_interval(pairs(0.05), pairs(0.02), label="drawn")
    assert fitted.calibrated is not None
    wide, narrow = fitted.catalogue.interval, fitted.calibrated.interval
    assert wide.lower < narrow.lower < 1 < narrow.upper_one_sided < narrow.upper < wide.upper
    assert fitted.one_sided == wide.upper_one_sided
    for kind in (fitted.catalogue, fitted.calibrated):
        assert len(kind.interval.curve.levels) == 41
        assert 0.02 < kind.exceeded < 0.08
        assert kind.families == 120
        assert "360 runs in 120 model families (drawn)" in kind.interval.provenance
    path = tmp_path / "interval.json"
    write_interval(fitted, path)
    content = json.loads(path.read_text())
    assert content["id"] == "drawn-360"
    for calibrated, interval in ((False, wide), (True, narrow)):
        read = interval_from_json(content, calibrated)
        assert (read.lower, read.upper, read.upper_one_sided) == (
            interval.lower,
            interval.upper,
            interval.upper_one_sided,
        )
        assert read.curve == interval.curve


def test_levels_that_few_families_cannot_promise_are_left_out(tmp_path: Path) -> None:
    fitted = fit_interval(pairs(0.05, families=45))
    assert fitted.calibrated is None
    levels = fitted.interval.curve.levels
    assert (levels[0], levels[-1]) == (0.025, 0.975)
    write_interval(fitted, tmp_path / "interval.json")
    content = json.loads((tmp_path / "interval.json").read_text())
    assert interval_from_json(content, calibrated=True) == interval_from_json(content, calibrated=False)


def uneven_pairs(families: int = 160, seed: int = 3) -> list[tuple[Case, Any]]:
    """Half of the families hold nothing that is not sure and are off by 0.5 %; others' errors grow with the cache."""
    rng = random.Random(seed)
    drawn = []
    for family in range(families):
        share = 0.0 if family % 2 else rng.uniform(0.1, 0.5)
        for _ in range(3):
            truth = round(10 * GiB * (1 + rng.gauss(0, 0.005 + 0.2 * share)))
            doubt = Doubt(cache=round(10 * GiB * share), workspace=0)
            judged = SimpleNamespace(truth=truth, estimate=10 * GiB, doubt=doubt, device_total=10 * GiB)
            drawn.append((case(f"f{family}", truth), cast(Any, judged)))
    return drawn


def test_the_interval_holds_for_sure_and_for_unsure_jobs() -> None:
    """One curve for all would never be exceeded by the sure half, and be too narrow for the other."""
    drawn = uneven_pairs()
    interval = fit_interval(drawn).interval
    assert interval.weights.cache > 10 * interval.weights.base
    for is_sure in (True, False):
        half = [one for _, one in drawn if (one.doubt.cache == 0) is is_sure]
        bounds = [interval.for_job(one.doubt, 10 * GiB).not_exceeded(10 * GiB) for one in half]
        exceeded = sum(one.truth > bound for one, bound in zip(half, bounds, strict=True)) / len(half)
        assert 0.015 < exceeded < 0.085
        assert (max(bounds) < 10.2 * GiB) is is_sure


def test_what_the_allocator_reserved_counts_too() -> None:
    ratios = pairs(0.02)
    reserved = [(case(one.family, judged.truth, Measure.RESERVED), judged) for one, judged in ratios]
    assert fit_interval(reserved).interval.curve == fit_interval(ratios).interval.curve


def test_each_family_weighs_the_same() -> None:
    """One family with a thousand bad runs does not move the bound of 120 good ones."""
    good = pairs(0.02)
    bad = [(case("bad", 30 * GiB), plain(30 * GiB))] * 1000
    assert fit_interval(good + bad).one_sided < 1.1


def test_only_device_totals_count() -> None:
    others = [(case(f"x{i}", GiB, Measure.ALLOCATED), plain(GiB, 9 * GiB)) for i in range(99)]
    assert fit_interval(pairs(0.02) + others).interval == fit_interval(pairs(0.02)).interval
    with pytest.raises(BadInput, match="measured device total"):
        fit_interval(others)


def test_too_few_families() -> None:
    with pytest.raises(BadInput, match="38 model families are too few for an interval of 95%: 39 are needed"):
        fit_interval(pairs(0.05, families=38))
    assert fit_interval(pairs(0.05, families=39)).interval.upper > 1


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot write the interval"):
        write_interval(fit_interval(pairs(0.05)), tmp_path / "none" / "interval.json")
