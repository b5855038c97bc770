"""Environments of frameworks that need their own: made with pip, found by captures."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import oomcast
from oomcast.capture import ENVIRONMENTS, environments, make_environment
from oomcast.capture import venvs as _environments
from oomcast.capture.frameworks import interpreter_of, missing_framework
from oomcast.capture.venvs import Environment, environment_python
from oomcast.cli import main
from oomcast.errors import BadInput, OomcastError, UnknownName

CONSTRAINTS = Path(oomcast.__file__).parent / "capture" / ENVIRONMENTS["mxnet"].constraints


def wheel(folder: Path) -> Path:
    """A package that pip installs without asking anybody."""
    path = folder / "tiny-1.0-py3-none-any.whl"
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("tiny.py", "answer = 42\n")
        for name, text in about.items():
            file.writestr(f"tiny-1.0.dist-info/{name}", text)
    return path


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OOMCAST_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("OOMCAST_PYTHON_MXNET", raising=False)
    return tmp_path


def instead_of_mxnet(monkeypatch: pytest.MonkeyPatch, requirement: str, package: str = "tiny") -> None:
    own = Environment(package, (requirement,), "mxnet/constraints.txt", ((sys.version_info[0], sys.version_info[1]),))
    monkeypatch.setattr(_environments, "ENVIRONMENTS", {"mxnet": own})


def test_an_environment_is_made_and_found(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_mxnet(monkeypatch, str(wheel(own_cache)))
    said: list[str] = []

    assert interpreter_of("mxnet") == sys.executable
    python = make_environment("mxnet", said.append)
    code = "import tiny, oomcast; print(tiny.answer, oomcast.__file__)"
    ran = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)

    assert python.startswith(str(own_cache / "cache"))
    assert interpreter_of("mxnet") == environment_python("mxnet") == python
    assert Path(ran.stdout.split()[1]).resolve() == Path(oomcast.__file__).resolve()
    assert ran.stdout.startswith("42 ")
    assert any("installing" in sentence for sentence in said)
    monkeypatch.setenv("OOMCAST_PYTHON_MXNET", "/usr/bin/python3")
    assert interpreter_of("mxnet") == "/usr/bin/python3"


def test_one_that_fails_is_told_and_not_found(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = own_cache / "python"
    broken.write_text("#!/bin/sh\necho first >&2\necho no room on the disk >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(_environments, "_base_python", lambda framework, wanted: str(broken))

    with pytest.raises(OomcastError, match=r"no environment could be made in .*mxnet: no room on the disk"):
        make_environment("mxnet", lambda text: None)
    assert environment_python("mxnet") is None
    assert environments() == {"mxnet": None}


def test_a_python_that_is_not_here_is_told(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_environments, "ENVIRONMENTS", {"mxnet": Environment("tiny", (), "", ((2, 99), (2, 98)))})

    with pytest.raises(BadInput, match=r"mxnet runs with Python 2\.99 or 2\.98, and neither is here"):
        make_environment("mxnet", lambda text: None)


def test_other_frameworks_have_none(own_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownName, match="mxnet"):
        make_environment("mxnett", lambda text: None)
    assert environment_python("torch") is None
    assert main(["venv", "make", "caffe"]) == 2
    assert "There is one for mxnet" in capsys.readouterr().err


def test_the_command_lists_them_and_the_sentence_names_it(own_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["venv", "list"]) == 0
    assert "mxnet: not made yet" in capsys.readouterr().out
    assert "oomcast venv make mxnet" in str(missing_framework("mxnet", "mxnet"))


def test_the_versions_are_those_that_are_tested() -> None:
    def pins(path: Path) -> set[str]:
        return {line for line in path.read_text().splitlines() if line and not line.startswith("#")}

    shipped = pins(CONSTRAINTS)

    assert all("==" in line for line in shipped)
    assert {"mxnet==1.9.1", "numpy==1.23.5"} <= shipped
    assert shipped <= pins(Path(__file__).parents[2] / "constraints-mxnet.txt")
