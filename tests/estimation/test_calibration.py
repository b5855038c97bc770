"""The artifact: what runs add up to, how it is kept, and every way in which a file can be wrong."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast.devices import Gpu, Stack, context_bytes, find_gpu, find_stack
from oomcast.errors import BadInput, OomcastError, UnknownName, UnreadableFile
from oomcast.estimation import (
    Calibration,
    Constants,
    MeasuredRun,
    Target,
    calibration_path,
    calibrations_folder,
    constants_of,
    kept_calibrations,
    read_calibration,
    remove_calibrations,
    write_calibration,
)
from oomcast.estimation.calibration import calibration_for
from oomcast.spec import Place
from oomcast.trace import Trace
from oomcast.units import GiB, MiB

GPU, STACK = find_gpu("rtx-3090"), find_stack("torch-2.8-cu128")
EAGER = find_stack("torch-2.4-cu121-eager")


def a_run(
    total: int | None = 2500 * MiB, reserved: int | None = None, allocated: int | None = None, **more: Any
) -> MeasuredRun:
    known = {"source": "nvidia-smi", "convolutions": True, "date": "2026-11-15", "workload": {"job": "zoo:resnet50"}}
    return MeasuredRun(
        device_total=total,
        reserved=reserved,
        allocated=allocated,
        simulated_reserved=2000 * MiB,
        simulated_allocated=1800 * MiB,
        **{**known, **more},
    )


def calibration(*runs: MeasuredRun) -> Calibration:
    return Calibration(GPU.name, STACK.name, runs)


def constants(known: Calibration, gpu: Gpu = GPU, stack: Stack = STACK, cudnn: bool = True) -> Constants:
    return known.constants(gpu, stack, convolutions=cudnn, batch_norm=cudnn)


def test_without_a_calibration_the_catalogue_speaks() -> None:
    found = constants_of(Target.of(Place(GPU.name, STACK.name)), Trace((), (), (), ()))
    assert found.context == context_bytes(GPU, STACK, convolutions=False, batch_norm=False)
    assert (found.reserved, found.allocated, found.context_is_measured) == (0, 0, False)


def test_a_total_tells_the_context() -> None:
    found = constants(calibration(a_run()))
    assert found.context == 500 * MiB
    assert found.context_is_measured
    assert found.reserved == 0


def test_torchs_counters_tell_what_the_allocator_misses_and_not_the_context() -> None:
    found = constants(calibration(a_run(None, reserved=2060 * MiB, allocated=1840 * MiB)))
    assert (found.reserved, found.allocated) == (60 * MiB, 40 * MiB)
    assert found.context == context_bytes(GPU, STACK)
    assert not found.context_is_measured


def test_nothing_is_counted_twice() -> None:
    """The total without torch's figure holds what the simulation misses; the pair together gives the total back."""
    other = {"job": "zoo:vgg16"}
    both = constants(calibration(a_run(2500 * MiB), a_run(None, reserved=2060 * MiB, workload=other)))
    assert both.reserved == 60 * MiB
    assert both.context == 440 * MiB
    whole = constants(calibration(a_run(2500 * MiB, reserved=2060 * MiB)))
    assert (whole.context, whole.reserved) == (both.context, both.reserved)


def test_total_and_counters_of_one_job_make_the_context_exact() -> None:
    """Also where the simulation says too much, which is then no part of the context."""
    both = constants(calibration(a_run(2500 * MiB), a_run(None, reserved=1900 * MiB)))
    assert (both.context, both.reserved) == (600 * MiB, 0)
    assert both.context_is_sure


def test_a_small_job_tells_the_context_better_than_large_ones() -> None:
    small = a_run(2500 * MiB, workload={"job": "small"})
    large = [
        dataclasses.replace(a_run(total * MiB, workload={"job": str(total)}), simulated_reserved=20 * GiB)
        for total in (21_480, 21_980)
    ]
    found = constants(calibration(*large, small))
    assert found.context == 500 * MiB
    assert found.context_is_sure
    alone = constants(calibration(large[0]))
    assert alone.context == 1000 * MiB
    assert not alone.context_is_sure


def test_runs_combine_by_their_median() -> None:
    runs = [a_run(total * MiB, workload={"job": str(total)}) for total in (2400, 2500, 9000)]
    assert constants(calibration(*runs)).context == 500 * MiB
    assert constants(calibration(*runs[:2])).context == 450 * MiB


def test_a_simulation_that_says_too_much_takes_nothing_off_others() -> None:
    found = constants(calibration(a_run(None, reserved=1500 * MiB, allocated=1500 * MiB)))
    assert (found.reserved, found.allocated) == (0, 0)


def test_cudnns_kernels_go_with_convolutions_only() -> None:
    kernels = (EAGER.cudnn_kernels_mib + EAGER.cudnn_batch_norm_mib) * MiB
    assert kernels > 0
    with_them = Calibration("a100-40gb", EAGER.name, (a_run(),))
    without = Calibration("a100-40gb", EAGER.name, (a_run(convolutions=False),))
    gpu = find_gpu("a100-40gb")
    assert constants(with_them, gpu, EAGER, True).context == 500 * MiB
    assert constants(with_them, gpu, EAGER, False).context == 500 * MiB - kernels
    assert constants(without, gpu, EAGER, False).context == 500 * MiB
    assert constants(without, gpu, EAGER, True).context == 500 * MiB + kernels


def test_the_same_run_told_twice_counts_once() -> None:
    once = calibration().with_run(a_run())
    again = once.with_run(a_run(date="2027-01-01"))
    assert [run.date for run in again.runs] == ["2027-01-01"]
    assert len(again.with_run(a_run(2600 * MiB)).runs) == 2


sizes = st.none() | st.integers(0, 80 * GiB)
runs = st.builds(
    MeasuredRun,
    source=st.sampled_from(["nvidia-smi", "run"]),
    device_total=sizes,
    reserved=st.integers(0, 80 * GiB),
    allocated=sizes,
    simulated_reserved=st.integers(0, 80 * GiB),
    simulated_allocated=st.integers(0, 80 * GiB),
    convolutions=st.booleans(),
    workload=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3),
    date=st.text(max_size=10),
)


@given(st.lists(runs, min_size=1, max_size=4))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, drawn: list[MeasuredRun]) -> None:
    path = tmp_path_factory.mktemp("kept") / "one.json"
    wanted = calibration(*drawn)
    write_calibration(wanted, path)
    assert read_calibration(path) == wanted
    assert [entry.name for entry in path.parent.iterdir()] == ["one.json"]
    found = constants(wanted)
    assert min(found.context, found.reserved, found.allocated) >= 0


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OOMCAST_CONFIG", str(tmp_path / "own"))
    assert calibrations_folder() == tmp_path / "own" / "calibrations"
    monkeypatch.delenv("OOMCAST_CONFIG")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert calibrations_folder() == tmp_path / "xdg" / "oomcast" / "calibrations"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert calibrations_folder() == tmp_path / ".config" / "oomcast" / "calibrations"


def test_kept_listed_and_removed() -> None:
    assert kept_calibrations() == ()
    assert calibration_for(GPU, STACK) is None
    wanted = calibration(a_run())
    path = calibration_path(GPU.name, STACK.name)
    write_calibration(wanted, path)
    other = Calibration("a100-40gb", STACK.name, (a_run(),))
    write_calibration(other, calibration_path("a100-40gb", STACK.name))
    assert calibration_for(GPU, STACK) == wanted
    assert [found for _, found in kept_calibrations()] == [other, wanted]
    with pytest.raises(UnknownName, match=r"rtx-3090@torch-2\.8-cu128"):
        remove_calibrations("rtx-3090@torch-2.8")
    assert remove_calibrations("rtx-3090@torch-2.8-cu128") == (path,)
    assert len(remove_calibrations(STACK.name)) == 1
    assert kept_calibrations() == ()


def test_names_that_are_no_file_names(config_folder: Path) -> None:
    path = calibration_path("24 GiB", "../../x")
    assert path.parent == config_folder / "calibrations"


def test_another_gpus_or_environments_artifact_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shared.json"
    write_calibration(calibration(a_run()), path)
    assert calibration_for(GPU, STACK, path) is not None
    with pytest.raises(BadInput, match="is of a rtx-3090, not of a a100-40gb"):
        calibration_for(find_gpu("a100-40gb"), STACK, path)
    with pytest.raises(BadInput, match=r"is of the environment torch-2\.8-cu128, not"):
        calibration_for(GPU, EAGER, path)


def good() -> dict[str, Any]:
    return {
        "kind": "oomcast calibration",
        "schema": 1,
        "gpu": "rtx-3090",
        "environment": STACK.name,
        "runs": [dataclasses.asdict(a_run())],
    }


def changed(**fields: Any) -> str:
    return json.dumps({**good(), **fields})


def with_run(**fields: Any) -> str:
    return changed(runs=[{**dataclasses.asdict(a_run()), **fields}])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "damaged: it is not JSON"),
        ('{"kind": "oomcast cal', "damaged: it is not JSON"),
        ("[" * 100_000, "damaged: it is not JSON"),
        ("[]", "does not say that it is"),
        ("{}", "does not say that it is"),
        (changed(schema=2), "written by a newer oomcast"),
        (changed(schema=0), "its version 0 is unknown"),
        (changed(schema="1"), "its version '1' is unknown"),
        (changed(gpu="rtx-309000"), "does not know"),
        (changed(gpu=7), "'gpu' is not a text"),
        (changed(runs=[]), "it lists no runs"),
        (changed(runs={}), "it lists no runs"),
        (changed(runs=[3]), "a run is not an object"),
        (with_run(device_total=-5), "'device_total' is not a number of bytes"),
        (with_run(device_total="2 GiB"), "'device_total' is not a number of bytes"),
        (with_run(device_total=1e9), "'device_total' is not a number of bytes"),
        (with_run(device_total=True), "'device_total' is not a number of bytes"),
        (with_run(device_total=None), "no measured figure"),
        (with_run(simulated_reserved=None), "'simulated_reserved' is not a number of bytes"),
        (with_run(convolutions=1), "'convolutions' is not true or false"),
        (with_run(workload=[]), "'workload' is not an object"),
        (changed(runs=[{"source": "x"}]), "'convolutions' is missing"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UnreadableFile, match=sentence) as caught:
        read_calibration(path)
    assert len(str(caught.value).splitlines()) == 1
    assert path.read_text(encoding="utf-8") == text


def test_a_good_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(good()), encoding="utf-8")
    assert read_calibration(path) == calibration(a_run())


def test_bytes_that_are_no_text_and_files_that_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnreadableFile, match="not JSON"):
        read_calibration(path)
    with pytest.raises(UnreadableFile, match="cannot read"):
        read_calibration(tmp_path / "nowhere.json")
    with pytest.raises(UnreadableFile, match="cannot read"):
        read_calibration(tmp_path)


def test_a_damaged_one_is_listed_and_can_be_removed() -> None:
    path = calibration_path(GPU.name, STACK.name)
    path.parent.mkdir(parents=True)
    path.write_text("no", encoding="utf-8")
    [(_, found)] = kept_calibrations()
    assert isinstance(found, OomcastError)
    assert remove_calibrations("rtx-3090") == (path,)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot write the calibration"):
        write_calibration(calibration(a_run()), tmp_path / "file" / "one.json")


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.json"
    write_calibration(calibration(a_run()), path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(BadInput, match="No space left"):
        write_calibration(calibration(a_run(3 * GiB)), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["one.json"]
