"""What an installed package must bring: every file under src that is not Python is data somebody reads."""

import importlib
import shutil
import subprocess
import sys
import venv
import zipfile
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


IN_A_BARE_ENVIRONMENT = """
import contextlib, io, sys
from importlib.util import find_spec
from oomcast.cli import main

assert find_spec("torch") is None and find_spec("lab") is None and find_spec("numpy") is None
for words in (["--help"], ["devices"], ["environments"], ["models"], ["estimators"], ["accuracy"]):
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        assert main(words) == 0, words
    assert shown.getvalue().strip(), words
with contextlib.redirect_stderr(io.StringIO()) as told:
    assert main("estimate zoo:mlp --batch-size 2 --device t4".split()) == 2
print(told.getvalue())
"""


def test_the_wheel_has_no_laboratory_and_works_in_a_bare_environment(tmp_path: Path) -> None:
    """Built from a copy, unpacked into a new environment with nothing beside it but what it requires."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "lab"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    build = f"from setuptools.build_meta import build_wheel; build_wheel({str(tmp_path)!r})"
    made = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False)
    installed = next((bare / "lib").glob("python*")) / "site-packages"
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        wheel.extractall(installed)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"oomcast"}
    for required in ("rich", "pygments", "markdown_it", "mdurl"):
        (installed / required).symlink_to(Path(importlib.import_module(required).__path__[0]))
    done = subprocess.run(
        [str(bare / "bin" / "python"), "-c", IN_A_BARE_ENVIRONMENT],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"OOMCAST_CACHE_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'oomcast[torch]'" in done.stdout
