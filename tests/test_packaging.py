"""What an installed package must bring: every file under src that is not Python is data somebody reads."""

import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "oomcast"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_every_data_file_goes_into_the_wheel() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["oomcast"]
    data = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    ]
    assert "simulate/cudnn/table.bin" in data
    assert [name for name in data if not any(fnmatch(name, pattern) for pattern in patterns)] == []


def test_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "oomcast", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("oomcast ")
