"""Outputs as people really connect them, in processes of their own: the exit code is the answer's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomcast.cli.output import harmless

FITS, FAILED, BAD_INPUT, DOES_NOT_FIT = 0, 1, 2, 3

JOB = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self._modules["[/x]"] = nn.Linear(64, 4096)
        self._modules["\\x1b[31mred"] = nn.Linear(4096, 10)

    def forward(self, x):
        return self._modules["\\x1b[31mred"](self._modules["[/x]"](x).relu())

def model():
    return Model()

def batch(batch_size):
    return torch.randn(batch_size, 64), torch.randint(0, 10, (batch_size,))
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("job") / "job.py"
    path.write_text(JOB)
    return path


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`oomcast` stands for this interpreter's."""
    words = f'oomcast() {{ "{sys.executable}" -m oomcast "$@"; }}\n{command}'
    return subprocess.run(
        ["bash", "-c", words], capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )


def estimate(job: Path, device: str = "t4") -> str:
    return f"oomcast estimate {job} --batch-size 4 --device {device}"


@pytest.mark.parametrize(("device", "code"), [("t4", FITS), ("256MiB", DOES_NOT_FIT)])
def test_a_reader_who_has_gone_does_not_change_the_verdict(job: Path, device: str, code: int) -> None:
    done = shell(f"{estimate(job, device)} --json | true; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (code, "")


def test_a_closed_output_does_not_change_the_verdict(job: Path) -> None:
    done = shell(f"{estimate(job, '256MiB')} >&-")
    assert (done.returncode, done.stderr) == (DOES_NOT_FIT, "")
    assert shell(f"{estimate(job, '256MiB')} >&- 2>&- <&-").returncode == DOES_NOT_FIT


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("command", ["devices", "devices --json", "--help", "estimate --help", "--version"])
def test_a_full_output_is_a_failure_in_one_sentence(command: str) -> None:
    done = shell(f"oomcast {command} >/dev/full")
    assert done.returncode == FAILED
    assert done.stderr == "oomcast: the output was lost: No space left on device.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_error_output_keeps_the_code() -> None:
    assert shell("oomcast estimate nothing.py --batch-size 1 --device t4 2>/dev/full").returncode == BAD_INPUT


def test_an_ascii_output_gets_ascii_and_names_stay_names(job: Path) -> None:
    done = shell(estimate(job), PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (done.returncode, done.stderr) == (FITS, "")
    assert done.stdout.isascii()
    assert "4096x64 float32" in done.stdout
    assert "[/x]" in done.stdout
    assert "\x1b" not in done.stdout
    assert r"\x1b[31mred" in done.stdout


def test_escapes_in_json_are_json_s_own(job: Path) -> None:
    done = shell(f"{estimate(job)} --json")
    assert "\x1b" not in done.stdout
    assert any("\x1b[31mred" in module for module in json.loads(done.stdout)["peak_by_module"])


@pytest.mark.parametrize("mistake", ["$'zoo:\\e[31m'", "$'x\\e]0;t\\a.py'", "zoo:mlp $'--\\e[31m'"])
def test_escapes_in_errors_are_shown(mistake: str) -> None:
    done = shell(f"oomcast estimate --batch-size 1 --device t4 {mistake}")
    assert done.returncode == BAD_INPUT
    assert "\x1b" not in done.stderr
    assert r"\x1b" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_device_called_dashes_is_unknown() -> None:
    done = shell("oomcast estimate zoo:mlp --batch-size 1 --device=--")
    assert done.returncode == BAD_INPUT
    assert done.stderr.startswith("oomcast: unknown device ")


def test_control_characters_are_written_out() -> None:
    assert harmless("a\x1b[0m\x9b\u202eb\ttab\nline ×") == "a\\x1b[0m\\x9b\\u202eb\ttab\nline ×"


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(job: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    done = shell(f"ulimit -f 8; {estimate(job)} --html {page}")
    assert done.returncode == BAD_INPUT
    assert done.stderr == f"oomcast: cannot write {page}: File too large.\n"
    assert [kept.name for kept in tmp_path.iterdir()] == ["page.html"]
    assert page.read_text() == "old"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a process to such a limit")
@pytest.mark.parametrize("most", [200_000, 500_000, 550_000, 600_000])
def test_a_limit_on_memory_is_told_as_such(most: int) -> None:
    done = shell(f"ulimit -v {most}; oomcast estimate zoo:mlp --batch-size 2 --device t4")
    assert done.returncode == FAILED
    assert "(ulimit -v) is too low" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="limits of files are Linux's")
def test_without_room_for_temporary_files_nothing_is_put_elsewhere(tmp_path: Path) -> None:
    done = shell(f"cd {tmp_path}; ulimit -f 0; oomcast estimate zoo:mlp --batch-size 2 --device t4")
    assert done.returncode == FAILED
    assert "no folder for temporary files has room" in done.stderr
    assert "TMPDIR" in done.stderr
    assert list(tmp_path.iterdir()) == []
