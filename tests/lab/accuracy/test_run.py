"""The benchmark runs, keeps what it found, and goes on from there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from case_builder import make_case

from lab.accuracy import Measure, check_estimators, run_cases
from lab.accuracy.gpumemnet_rows import read_mlp_step1
from lab.accuracy.simulators import SIMULATORS, value_of
from lab.accuracy.traces import TraceCache, trace_key
from oomcast.capture import capture
from oomcast.errors import UnknownName
from oomcast.units import MiB

HEADER = "Filename,Total Parameters,Batch Size,Max GPU Memory (MiB)"
ROWS = (
    "input:8_output:2_depth:2_arch:pyramid_batch:16.out,52,16,1479",
    "input:8_output:2_depth:1_arch:uniform_batch:16.out,90,16,1480",
)


@pytest.fixture
def cases(tmp_path: Path) -> tuple:
    path = tmp_path / "x.csv"
    path.write_text("\n".join((HEADER, *ROWS)) + "\n", encoding="utf-8")
    return read_mlp_step1(path).cases


def test_results_are_kept_and_read_again(tmp_path: Path, cases: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    first = list(run_cases(cases, ["no-workspace"], tmp_path))
    assert not any(result.error for result in first)
    answers = [result.answers["no-workspace"].prediction for result in first]
    # cuBLAS takes a workspace in forward and one in backward; the rest is small.
    assert all(20 * MiB <= answer.reserved <= 24 * MiB for answer in answers)
    assert all(result.features is not None and result.features.parameters in (52, 90) for result in first)

    def nothing(*_: object) -> None:
        raise AssertionError("captured again")

    monkeypatch.setattr("lab.accuracy.traces.capture", nothing)
    assert list(run_cases(cases, ["no-workspace"], tmp_path)) == first
    # Another estimator finds the traces there.
    assert not any(result.error for result in run_cases(cases, ["no-workspace", "simulator"], tmp_path))


def test_a_damaged_trace_is_captured_again(tmp_path: Path, cases: tuple) -> None:
    cache = TraceCache(tmp_path)
    whole = cache.get(cases[0]).trace
    assert whole is not None
    (kept,) = cache.folder.glob("*.trace")
    kept.write_bytes(kept.read_bytes()[:50])
    again = cache.get(cases[0]).trace
    assert again is not None
    assert again.events == whole.events


def test_another_batch_or_network_is_another_trace(cases: tuple) -> None:
    assert trace_key(cases[0]) == trace_key(cases[0])
    assert trace_key(cases[0]) != trace_key(cases[1])


def test_unknown_estimators_are_told() -> None:
    with pytest.raises(UnknownName, match="simulator"):
        check_estimators(["simulater"])


@pytest.mark.parametrize("name", ["simulator", "no-workspace"])
def test_what_a_campaign_holds_beyond_its_stack_is_part_of_the_context(name: str) -> None:
    case = make_case(1, "mlp", 900 * MiB)
    trace = capture(case.spec)
    plain = SIMULATORS[name](case, trace)
    more = SIMULATORS[name](replace(case, more_context=34 * MiB), trace)
    assert more.context - plain.context == 34 * MiB
    assert value_of(more, Measure.DEVICE_TOTAL) - value_of(plain, Measure.DEVICE_TOTAL) == 34 * MiB
    assert more.reserved == plain.reserved
