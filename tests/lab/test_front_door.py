"""`python -m lab`: what it lists, and that it loads only what is asked for."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from lab.__main__ import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]


def test_without_a_command_it_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown and command.summary.split()[0] in shown for name, command in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(importlib.import_module(COMMANDS[name].module).add_to)
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert f"python -m lab {name}" in capsys.readouterr().out


def test_an_unknown_command_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accurracy"]) == 2
    assert "accuracy" in capsys.readouterr().err
    assert main(["bench", "replai", "--truth", "nowhere"]) == 2
    assert "replay" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["--truth nowhere", "replay --truth nowhere", "--truth nowhere replay"])
def test_the_folder_of_benchmarks_stands_before_or_behind_their_names(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *line.split()]) == 2
    assert "'nowhere' holds no measurements" in capsys.readouterr().err


def test_only_what_is_asked_for_is_loaded() -> None:
    code = (
        "import sys; from lab.__main__ import main; main([]); "
        "loaded = [name for name in sys.modules if name.startswith('lab.') and name != 'lab.__main__']; "
        "assert not loaded and 'torch' not in sys.modules, loaded"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_the_product_never_imports_the_laboratory() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert not any(line.strip().startswith(("from lab", "import lab")) for line in lines), path
