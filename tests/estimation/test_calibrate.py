"""From one real run to better estimates: what changes, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.capture import capture
from oomcast.devices import find_gpu
from oomcast.errors import BadInput, UnreadableFile
from oomcast.estimation import (
    Calibration,
    CalibrationChange,
    Estimate,
    MeasuredRun,
    Verdict,
    calibration_path,
    estimate_trace,
    kept_calibrations,
    target_of,
    undo_calibration,
)
from oomcast.spec import Spec
from oomcast.trace import Trace
from oomcast.units import GiB, MiB

WIDTH = 1024
ENVIRONMENT = "torch-2.8-cu128"
JOB = SimpleNamespace(
    model=lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)),
    batch=lambda n: (torch.randn(n, WIDTH), torch.randint(0, 10, (n,))),
)
OPTIONS: dict[str, Any] = {"batch_size": 4096, "device": "rtx-3090", "environment": ENVIRONMENT}


def ask(**options: Any) -> Estimate:
    return oomcast.estimate(JOB, **{**OPTIONS, **options})


def calibrate(**options: Any) -> CalibrationChange:
    return oomcast.calibrate(JOB, **{**OPTIONS, **options})


_captured: dict[tuple[int, str], Trace] = {}


def capture_once(spec: Spec) -> Trace:
    """The real capture, kept: this job's Trace depends on its batch and on the kind of chip only."""
    key = spec.workload.batch_size, find_gpu(spec.place.device).sm
    if key not in _captured:
        _captured[key] = capture(spec)
    return _captured[key]


@pytest.fixture(scope="module", autouse=True)
def framework_is_warm() -> None:
    """A capture forks: what torch loads at the first step is then loaded once, here."""
    with oomcast.virtual_gpu("rtx-3090"):
        nn.Linear(1, 1).cuda()(torch.randn(1, 1, device="cuda")).sum().backward()


@pytest.fixture(autouse=True)
def captures_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in ("measuring", "simulator"):
        monkeypatch.setattr(f"oomcast.estimation.{room}.capture", capture_once)


@pytest.fixture
def plain() -> Estimate:
    return ask(use_calibration=False)


def stats(tmp_path: Path, allocated: int, reserved: int) -> Path:
    path = tmp_path / "stats.json"
    path.write_text(json.dumps({"allocated_bytes.all.peak": allocated, "reserved_bytes.all.peak": reserved}))
    return path


def test_nvidia_smi_sets_the_context_of_the_environment(plain: Estimate) -> None:
    total = plain.peak_reserved + 700 * MiB
    change = calibrate(nvidia_smi=f"{total}b")
    assert change.before.device_total == plain.device_total
    assert change.after.device_total == total
    assert change.constants_before.context == plain.breakdown["context"]
    assert change.constants_after.context == 700 * MiB
    later = ask()
    assert later.device_total == total
    assert later.breakdown["context"] == 700 * MiB
    assert later.peak_reserved == plain.peak_reserved
    assert later.least_capacity == plain.least_capacity + 700 * MiB - plain.breakdown["context"]
    assert later.provenance["calibration"] == f"rtx-3090@{ENVIRONMENT}, 1 real run"
    assert later.provenance["interval"].partition("-times-")[0].endswith("calibrated")
    assert plain.provenance["calibration"].startswith("none")
    # Another batch, GPU or environment: the first uses it, the others do not.
    assert ask(batch_size=64).breakdown["context"] == 700 * MiB
    assert ask(device="a100-40gb").provenance["calibration"].startswith("none")
    assert ask(environment="torch-2.4-cu121").provenance["calibration"].startswith("none")
    assert ask(use_calibration=False).device_total == plain.device_total


def test_counters_add_what_the_allocator_misses(plain: Estimate, tmp_path: Path) -> None:
    path = stats(tmp_path, plain.peak_allocated + 20 * MiB, plain.peak_reserved + 60 * MiB)
    change = calibrate(memory_stats=path)
    after = change.after
    assert after.peak_allocated == plain.peak_allocated + 20 * MiB
    assert after.peak_reserved == plain.peak_reserved + 60 * MiB
    assert after.breakdown["calibrated"] == 20 * MiB
    assert after.breakdown["context"] == plain.breakdown["context"]
    assert sum(after.breakdown.values()) == after.device_total
    assert after.least_capacity == plain.least_capacity + 60 * MiB
    assert after.provenance["interval"].partition("-times-")[0].endswith("catalogue")
    # The total comes later and is not counted twice.
    total = plain.peak_reserved + 500 * MiB
    both = calibrate(nvidia_smi=f"{total}b")
    assert both.before.device_total == after.device_total
    assert both.after.device_total == total
    assert both.after.breakdown["context"] == 440 * MiB
    assert len(both.calibration.runs) == 2


def test_a_snapshot_tells_reserved_bytes_and_its_allocators_settings(plain: Estimate, tmp_path: Path) -> None:
    size = plain.peak_reserved + 40 * MiB
    block = {"address": 1 << 40, "size": size, "requested_size": size, "state": "active_allocated"}
    segment = {"device": 0, "address": 1 << 40, "total_size": size, "segment_type": "large", "blocks": [block]}
    content = {"segments": [segment], "device_traces": [[]], "allocator_settings": {"expandable_segments": True}}
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(content))
    change = calibrate(snapshot=path)
    # The run had expandable segments, so that is what it is compared with.
    expandable = ask(alloc_conf="expandable_segments:True", use_calibration=False)
    assert change.run.simulated_reserved == expandable.peak_reserved
    assert change.after.peak_reserved == size
    assert change.after.breakdown["context"] == plain.breakdown["context"]
    path.write_bytes(pickle.dumps(content)[:-9])
    with pytest.raises(UnreadableFile):
        calibrate(snapshot=path)


def test_calibrations_combine_and_are_kept_in_one_file(plain: Estimate) -> None:
    for extra in (400, 500, 900):
        change = calibrate(nvidia_smi=f"{plain.peak_reserved + extra * MiB}b")
    assert change.after.breakdown["context"] == 500 * MiB
    [(path, found)] = kept_calibrations()
    assert path == change.path == calibration_path("rtx-3090", ENVIRONMENT)
    assert found == change.calibration


def test_an_artifact_goes_to_another_machine(plain: Estimate, tmp_path: Path) -> None:
    path = tmp_path / "shared.json"
    calibrate(nvidia_smi=f"{plain.peak_reserved + 700 * MiB}b", output=path)
    assert kept_calibrations() == ()
    assert ask().device_total == plain.device_total
    assert ask(calibration=path).breakdown["context"] == 700 * MiB
    with pytest.raises(BadInput, match="not of a a100-40gb"):
        ask(calibration=path, device="a100-40gb")
    with pytest.raises(BadInput, match="is of the environment"):
        ask(calibration=path, environment="torch-2.4-cu121")
    # A second calibration joins the first, and only where it belongs.
    before = path.read_bytes()
    with pytest.raises(BadInput, match="is of a rtx-3090"):
        calibrate(nvidia_smi="3000", output=path, device="a100-40gb")
    assert path.read_bytes() == before


def test_a_damaged_or_newer_artifact_stops_and_stays(plain: Estimate) -> None:
    path = calibration_path("rtx-3090", ENVIRONMENT)
    path.parent.mkdir(parents=True)
    newer = json.dumps({"kind": "oomcast calibration", "schema": 99})
    for text, sentence in (("{", "is damaged"), (newer, "written by a newer oomcast")):
        path.write_text(text)
        with pytest.raises(UnreadableFile, match=sentence):
            ask()
        with pytest.raises(UnreadableFile, match=sentence):
            calibrate(nvidia_smi=f"{plain.peak_reserved + 700 * MiB}b")
        assert path.read_text() == text
        assert ask(use_calibration=False).device_total == plain.device_total


@pytest.mark.parametrize(
    ("figure", "sentence"),
    [
        (lambda p: 25 * GiB, r"more than the 24\.00 GiB of a rtx-3090: it is from another GPU"),
        (lambda p: p.peak_allocated - MiB, "less than the .* of this job's tensors: check that --batch-size"),
        (lambda p: p.peak_reserved + 8 * MiB, "for the CUDA context .* less than any has"),
        (lambda p: p.peak_reserved + 6 * GiB, "is usual and no known software .* check .* no other process"),
    ],
)
def test_absurd_totals_are_refused(plain: Estimate, figure: Any, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        calibrate(nvidia_smi=f"{figure(plain)}b")
    assert kept_calibrations() == ()


def test_absurd_counters_are_refused(plain: Estimate, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="it is from another GPU"):
        calibrate(memory_stats=stats(tmp_path, GiB, 40 * GiB))
    with pytest.raises(BadInput, match="more than simulated, which no constant"):
        calibrate(memory_stats=stats(tmp_path, plain.peak_allocated, plain.peak_reserved + 2 * GiB))
    big = ask(batch_size=400_000)
    assert big.peak_allocated > 2 * GiB
    with pytest.raises(BadInput, match="less than simulated"):
        calibrate(memory_stats=stats(tmp_path, GiB, GiB), batch_size=400_000)
    assert kept_calibrations() == ()


def test_a_job_that_fills_the_card_tells_only_its_size() -> None:
    with pytest.raises(BadInput, match="calibrate with a smaller batch"):
        calibrate(nvidia_smi="24000", batch_size=3_000_000)


def test_exactly_one_measurement(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"exactly one of .* not none"):
        calibrate()
    with pytest.raises(BadInput, match="not --nvidia-smi and --run"):
        calibrate(nvidia_smi=3000, run=True)
    with pytest.raises(BadInput, match="needs --environment"):
        calibrate(nvidia_smi=3000, environment=None)
    with pytest.raises(BadInput, match="does not run on a rtx-5090"):
        calibrate(nvidia_smi=3000, device="rtx-5090", environment="torch-1.12-cu113")


@pytest.mark.parametrize("batch_size", [64, 4096])
def test_the_risk_falls_with_the_size_of_the_device(batch_size: int) -> None:
    # Like an RTX 3090 in all but its memory, so that only the room changes.
    plain = ask(batch_size=batch_size)
    need, whole = plain.least_capacity // MiB, plain.device_total // MiB
    sizes = (*(need + more for more in (-100, -20, 0, 17)), *range(whole + 18, whole + 90, 6), whole + 8000)
    answers = [ask(device=f"{size}MiB", batch_size=batch_size) for size in sizes]
    risks = [answer.p_oom for answer in answers]
    assert risks == sorted(risks, reverse=True)
    assert risks[0] > 0.9
    assert risks[-1] < 0.001
    for answer in answers:
        # What is needed at least decides, not what is reserved where nothing limits it.
        assert answer.interval_basis is not None
        interval = answer.interval_basis.interval
        assert answer.p_oom == interval.chance_above(answer.least_capacity, answer.device_usable)
        assert (answer.verdict is Verdict.OOM) == (answer.least_capacity > answer.device_usable)
        if plain.device_total <= answer.device_usable:
            assert (answer.verdict is Verdict.FITS) == (answer.p_oom <= 0.05)
    assert {answer.verdict for answer in answers} == {Verdict.FITS, Verdict.TIGHT, Verdict.OOM}
    if batch_size == 64:  # with hardly any cache to release, only the risk makes it tight
        roomy = [answer.verdict for answer in answers if plain.device_total <= answer.device_usable]
        assert set(roomy) == {Verdict.TIGHT, Verdict.FITS}


def test_what_the_allocator_misses_takes_room_too(plain: Estimate) -> None:
    spec = Spec.read(JOB, **{**OPTIONS, "device": f"{plain.least_capacity // MiB + 60}MiB"})
    target = target_of(spec)
    run = MeasuredRun("memory-stats", None, 100 * MiB, 100 * MiB, 0, 0, convolutions=False)
    known = Calibration(target.gpu.name, ENVIRONMENT, (run,))
    trace = capture_once(spec)
    assert estimate_trace(trace, target).verdict is not Verdict.OOM
    found = estimate_trace(trace, target.calibrated_by(known))
    assert found.verdict is Verdict.OOM
    assert found.least_capacity > found.device_usable


def test_coverage_is_served_from_the_curve(plain: Estimate) -> None:
    less = ask(coverage=0.8)
    assert less.coverage == 0.8
    assert plain.low <= less.low <= less.device_total <= less.high <= plain.high
    assert less.will_not_exceed <= plain.will_not_exceed <= plain.high
    assert less.p_oom == plain.p_oom
    with pytest.raises(BadInput, match="coverage must be above 0"):
        ask(coverage=0.999)


def test_a_context_that_no_software_has_is_refused(plain: Estimate) -> None:
    """3,456 MiB for a job of 622 MiB once set a context of 3.29 GiB."""
    with pytest.raises(BadInput, match="no known software holds more than"):
        calibrate(nvidia_smi=f"{plain.peak_reserved + 3 * GiB}b")
    assert kept_calibrations() == ()


def test_runs_that_contradict_each_other_are_told_and_both_held(plain: Estimate) -> None:
    first = calibrate(nvidia_smi=f"{plain.peak_reserved + 300 * MiB}b")
    assert first.constants_after.contradiction is None
    calibrate(batch_size=64, nvidia_smi=f"{ask(batch_size=64, use_calibration=False).peak_reserved + 900 * MiB}b")
    later = ask()
    totals = [plain.peak_reserved + context * MiB for context in (300, 900)]
    assert all(later.low <= total <= later.high for total in totals)
    assert later.will_not_exceed >= max(totals)
    assert any("contradict each other" in sentence for sentence in later.assumptions)
    assert not later.provenance["interval"].partition("-times-")[0].endswith("calibrated")
    # The newest is taken back: as if it had not been told.
    path, kept = undo_calibration(f"rtx-3090@{ENVIRONMENT}")
    assert kept is not None
    assert len(kept.runs) == 1
    assert dataclasses.replace(ask(), seconds=0.0) == dataclasses.replace(first.after, seconds=0.0)
    assert undo_calibration(path.stem) == (path, None)
    assert not path.exists()
