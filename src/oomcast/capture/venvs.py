"""Environments for frameworks that cannot live in the one that oomcast runs in: made when asked, found by themselves.

An environment is a `venv` in oomcast's cache folder with the framework at fixed versions. It has no oomcast of its own:
a link leads to the package that is running, so that both ends of a capture are always the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ..errors import BadInput, OomcastError, UnknownName
from ..files import cache_folder

__all__ = ["ENVIRONMENTS", "Environment", "environment_python", "environments", "make_environment"]

_PACKAGE = Path(__file__).parents[1]
_MADE = "made"
"""Name of the file that says that an environment is whole."""


@dataclass(frozen=True)
class Environment:
    package: str
    """What is imported to see that it works."""
    requirements: tuple[str, ...]
    constraints: str
    """Name of the data file with exact versions, in this room."""
    pythons: tuple[tuple[int, int], ...]
    """Versions that it runs with, the best first."""


ENVIRONMENTS: Mapping[str, Environment] = {
    "mxnet": Environment("mxnet", ("mxnet", "numpy", "rich"), "mxnet/constraints.txt", ((3, 11), (3, 10))),
}


def environment_python(framework: str) -> str | None:
    """The interpreter of the environment that was made for a framework; None if there is none."""
    folder = _folder(framework)
    if framework not in ENVIRONMENTS or not (folder / _MADE).exists():
        return None
    python = folder / "bin" / "python"
    return str(python) if python.exists() else None


def environments() -> dict[str, str | None]:
    """Framework → the interpreter of its environment, where it was made."""
    return {framework: environment_python(framework) for framework in ENVIRONMENTS}


def make_environment(framework: str, say: Callable[[str], None]) -> str:
    """Make it anew and return its interpreter; `say` is told what is done. Needs pip, and what pip needs."""
    if framework not in ENVIRONMENTS:
        raise UnknownName(
            "virtual environment", framework, ENVIRONMENTS, f"There is one for {', '.join(ENVIRONMENTS)}."
        )
    if os.name != "posix":
        raise BadInput(f"a virtual environment for {framework} can be made on Linux and macOS only.")
    wanted = ENVIRONMENTS[framework]
    folder = _folder(framework)
    base = _base_python(framework, wanted)
    say(f"making {folder} with {base}")
    if folder.exists():
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run([base, "-m", "venv", str(folder)], f"no environment could be made in {folder}")
    python = str(folder / "bin" / "python")
    constraints = resources.files(__package__).joinpath(wanted.constraints)
    say(f"installing {', '.join(wanted.requirements)} at the versions that oomcast was tested with")
    with resources.as_file(constraints) as path:
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(path)]
        _run([*command, *wanted.requirements], f"{framework} could not be installed")
    (_packages_of(python) / _PACKAGE.name).symlink_to(_PACKAGE, target_is_directory=True)
    _run([python, "-c", f"import {wanted.package}, oomcast.capture"], f"{framework} was installed and does not load")
    (folder / _MADE).write_text("")
    return python


def _folder(framework: str) -> Path:
    return cache_folder() / "environments" / framework


def _base_python(framework: str, wanted: Environment) -> str:
    """An interpreter of a version that the framework runs with: ours, if it is one."""
    if sys.version_info[:2] in wanted.pythons:
        return sys.executable
    for major, minor in wanted.pythons:
        found = shutil.which(f"python{major}.{minor}")
        if found is not None:
            return found
    versions = " or ".join(f"{major}.{minor}" for major, minor in wanted.pythons)
    raise BadInput(
        f"{framework} runs with Python {versions}, and neither is here; install one so that it is on the PATH."
    )


def _packages_of(python: str) -> Path:
    told = _run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], "the environment does not run"
    )
    return Path(told.strip())


def _run(command: list[str], problem: str) -> str:
    """What the command printed; raises OomcastError with its last line if it fails."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise OomcastError(f"{problem}: {error.strerror}.") from error
    if ran.returncode:
        lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
        raise OomcastError(f"{problem}: {lines[-1][:300] if lines else f'exit code {ran.returncode}'}")
    return ran.stdout
