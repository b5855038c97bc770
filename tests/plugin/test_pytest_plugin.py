"""The plugin as a project's own test suite meets it, and what it costs those that do not use it."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from oomcast.errors import BadInput, UnknownName
from oomcast.testing import assert_fits
from oomcast.units import MiB

pytest.importorskip("torch")

JOB = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(4096, 16384), nn.ReLU(), nn.Linear(16384, 10))

def batch(batch_size):
    return torch.randn(batch_size, 4096), torch.randint(0, 10, (batch_size,))
"""
INSTALLED = any(one.value == "oomcast.pytest_plugin" for one in metadata.entry_points(group="pytest11"))
LOAD = () if INSTALLED else ("-p", "oomcast.pytest_plugin")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    return tmp_path


def run_tests(folder: Path, text: str, *arguments: str) -> tuple[int, str]:
    """In a process of its own, as a user runs it."""
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--no-header", *LOAD, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_suite_with_a_job_that_fits_and_one_that_does_not(folder: Path) -> None:
    text = """
import pytest
from oomcast.testing import assert_fits as check

def test_imported():
    assert check("job.py", device="rtx-3090", batch_size=32).fits

@pytest.mark.oomcast(device="rtx-3090")
def test_marked(assert_fits):
    assert assert_fits("job.py", batch_size=32).device == "rtx-3090"

def test_from_the_command_line(assert_fits):
    assert assert_fits("job.py", batch_size=32).device == "rtx-3090"

def test_too_large(assert_fits):
    assert_fits("job.py", batch_size=400_000)
"""
    code, out = run_tests(folder, text, "--oomcast-device", "rtx-3090")
    assert code == 1, out
    assert "3 passed" in out
    assert "1 failed" in out
    assert "job.py does not fit on rtx-3090 at batch size 400000" in out
    assert "GiB are missing: it runs from" in out
    assert "the largest at the peak" in out
    assert "400000×16384 float32" in out
    assert "in _problem" not in out  # our own lines are hidden


def test_without_a_device_the_ways_to_name_one_are_told(folder: Path) -> None:
    text = "def test_it(assert_fits):\n    assert_fits('job.py', batch_size=1)\n"
    code, out = run_tests(folder, text)
    assert code != 0
    assert "assert_fits needs a device" in out
    assert "--oomcast-device" in out


def test_a_marker_without_a_device_is_told(folder: Path) -> None:
    text = "import pytest\n@pytest.mark.oomcast\ndef test_it(assert_fits):\n    assert_fits('job.py', batch_size=1)\n"
    code, out = run_tests(folder, text)
    assert code != 0
    assert "the marker oomcast needs a device" in out


def test_the_ini_file_and_an_own_fixture_set_the_device(folder: Path) -> None:
    with (folder / "pytest.ini").open("a") as ini:
        ini.write("oomcast_device = t4\n")
    text = """
import pytest
def test_ini(oomcast_device):
    assert oomcast_device == "t4"

class TestOwn:
    @pytest.fixture
    def oomcast_device(self):
        return "a1000"
    def test_own(self, assert_fits):
        with pytest.raises(Exception, match="unknown device 'a1000'"):
            assert_fits("job.py", batch_size=1)
"""
    code, out = run_tests(folder, text)
    assert code == 0, out
    assert "2 passed" in out


def test_the_plugin_costs_nothing_where_it_is_not_used(folder: Path) -> None:
    heavy = ("torch", "numpy", "rich", "oomcast.estimate", "oomcast.capture", "oomcast.testing")
    text = f"import sys\ndef test_it():\n    assert [m for m in {heavy!r} if m in sys.modules] == []\n"
    # Other plugins of this environment may load what they like.
    code, out = run_tests(folder, text, "-p", "no:hypothesispytest", "-p", "no:anyio", "-p", "no:typeguard")
    assert code == 0, out


def test_headroom_and_risk(folder: Path) -> None:
    job = folder / "job.py"
    fitting = assert_fits(job, device="rtx-3090", batch_size=8, headroom="1GiB")
    assert fitting.headroom > 1 << 30
    with pytest.raises(AssertionError, match="of headroom are missing"):
        assert_fits(job, device="rtx-3090", batch_size=8, headroom="23GiB")
    barely = f"{round(fitting.least_capacity * 1.02) // MiB + 17}MiB"
    with pytest.raises(AssertionError, match=r"P\(OOM\) .*% is above the 0.05 that is accepted"):
        assert_fits(job, device=barely, batch_size=8)
    assert assert_fits(job, device=barely, batch_size=8, risk=0.5).p_oom > 0.05


@pytest.mark.parametrize(
    ("options", "told"),
    [({"risk": 0.0}, "the risk must be"), ({"headroom": -1}, "must not be negative"), ({"headroom": "much"}, "read")],
)
def test_wrong_limits(folder: Path, options: dict[str, object], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        assert_fits(folder / "job.py", device="rtx-3090", batch_size=8, **options)  # type: ignore[arg-type]


def test_an_unknown_device(folder: Path) -> None:
    with pytest.raises(UnknownName, match="unknown device"):
        assert_fits(folder / "job.py", device="rtx-309", batch_size=8)
