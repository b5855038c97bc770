"""Which framework a job is written in: what its `model()` returns decides; its imports are a first guess."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadInput, UnknownName
from ..spec import FRAMEWORKS, JobKind, Workload
from ..syntax import syntax_tree
from .venvs import ENVIRONMENTS, environment_python

__all__ = [
    "OtherFramework",
    "check_framework",
    "framework_of",
    "guess_framework",
    "interpreter_of",
    "keras_backend",
    "load_packages",
    "missing_framework",
    "older_than_promised",
    "require_packages",
]

_BY_PACKAGE = {
    "torch": "torch",
    "tf_keras": "tensorflow",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "flax": "jax",
    "equinox": "jax",
    "haiku": "jax",
    "mxnet": "mxnet",
    "onnx": "onnx",
}
"""The package that an object's class comes from → the framework that captures it. Keras is of what it computes with."""
_BY_ENDING = {".onnx": "onnx", "-symbol.json": "mxnet"}
_KERAS, _BACKEND = "keras", "KERAS_BACKEND"
_DEFAULT_BACKEND = "tensorflow"


class OtherFramework(BadInput):
    """The job's model belongs to another framework than the one that was asked; the text is that framework's name."""


@dataclass(frozen=True)
class _Imports:
    packages: frozenset[str]
    backend: str | None = None
    """What the file has Keras compute with."""

    def framework(self) -> str | None:
        """The one framework that is imported; a file with several, or none, tells nothing."""
        found = {_BY_PACKAGE[package] for package in self.packages if package in _BY_PACKAGE}
        if _KERAS in self.packages:
            backend = self.backend or keras_backend()
            if backend != _DEFAULT_BACKEND:  # somebody chose it
                return backend
            found.add(backend)
        return found.pop() if len(found) == 1 else None


def guess_framework(workload: Workload) -> str:
    """Before the job runs: what the user said, else what the job's file imports, else torch. Nothing is run here."""
    job = workload.job
    if job.kind is JobKind.FILE and job.name.endswith(".onnx"):
        if workload.framework not in (None, "onnx"):
            raise BadInput(f"{job.name} is an ONNX model; leave --framework out.")
        return "onnx"
    if workload.framework is not None:
        return workload.framework
    path = job.name if job.kind is JobKind.FILE else _file_of(job.target) if job.kind is JobKind.OBJECT else None
    return (_imports_of(path).framework() if path else None) or "torch"


def framework_of(model: Any) -> str | None:
    """The framework whose class an object's class descends from, or whose kind of file a path names."""
    if isinstance(model, str):
        return next((framework for ending, framework in _BY_ENDING.items() if model.endswith(ending)), None)
    for base in type(model).__mro__:
        package = base.__module__.partition(".")[0]
        found = keras_backend() if package == _KERAS else _BY_PACKAGE.get(package)
        if found is not None:
            return found
    return None


def keras_backend() -> str:
    """What Keras computes with: as its variable says, which a job may set before it imports Keras, or its file."""
    told = os.environ.get(_BACKEND)
    if told:
        return told
    loaded = sys.modules.get(_KERAS)
    if loaded is not None:
        return str(loaded.config.backend())
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    try:
        settings = json.loads(Path(home, "keras.json").read_text())
        return str(settings.get("backend") or _DEFAULT_BACKEND)
    except (OSError, ValueError, AttributeError):
        return _DEFAULT_BACKEND


def check_framework(model: Any, asked: str) -> None:
    """Raise `OtherFramework` where `model()` returned what another framework captures."""
    found = framework_of(model)
    if found is not None and found != asked:
        raise OtherFramework(found)


def interpreter_of(framework: str) -> str:
    """The Python that has the framework.

    `OOMCAST_PYTHON_TENSORFLOW` and the like say it, else it is the one of an environment that `oomcast environment`
    made, else the one that runs oomcast.
    """
    told = os.environ.get(f"OOMCAST_PYTHON_{framework.upper()}")
    return told or environment_python(framework) or sys.executable


def load_packages(packages: Iterable[str]) -> None:
    """Import those that are there; `require_packages` says what is not, when a job needs it."""
    for package in packages:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(package)


def require_packages(framework: str, packages: Iterable[str]) -> None:
    """Raises BadInput for the first that `load_packages` did not find."""
    for package in packages:
        if sys.modules.get(package) is None:
            raise missing_framework(framework, package)


def older_than_promised(framework: str, least: Mapping[str, str]) -> str | None:
    """Of the loaded packages, the first that is older than what is promised, as a sentence; None if there is none."""
    for package, oldest in least.items():
        version = str(getattr(sys.modules.get(package), "__version__", oldest))
        if _numbers(version) < _numbers(oldest):
            return (
                f"{package} {version} is installed, and oomcast promises {oldest} and newer "
                f"(pip install 'oomcast[{framework}]')"
            )
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """The release of `2.4.1+cu124`: what comes before it is older."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def missing_framework(framework: str, package: str) -> BadInput:
    """For a framework that is not installed where it was looked for."""
    how = f"install it with: pip install 'oomcast[{framework}]'"
    if framework in ENVIRONMENTS:
        how = f"make a virtual environment that has it with: oomcast venv make {framework}"
    return BadInput(
        f"this job needs {package}, which is not installed; {how}, "
        f"or say in OOMCAST_PYTHON_{framework.upper()} which Python has it."
    )


def known_framework(name: str, captured: tuple[str, ...]) -> str:
    """A framework that a capture exists for."""
    if name not in captured:
        raise UnknownName("framework", name, FRAMEWORKS, f"Jobs of {', '.join(captured)} can be captured.")
    return name


def _file_of(holder: Any) -> str | None:
    try:
        return inspect.getsourcefile(inspect.unwrap(holder.model))
    except (TypeError, OSError, AttributeError):
        return None


def _imports_of(path: str) -> _Imports:
    try:
        tree = syntax_tree(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return _Imports(frozenset())  # the capture says what is wrong with the file
    packages: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages.update(name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            packages.add(node.module.partition(".")[0])
    return _Imports(frozenset(packages), _backend_set_in(tree))


def _backend_set_in(tree: ast.AST) -> str | None:
    """Of `os.environ["KERAS_BACKEND"] = "jax"` or its `setdefault`; what else sets it shows when the job has run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            name, value = node.targets[0].slice, node.value
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setdefault" and len(node.args) == 2:
            if os.environ.get(_BACKEND):
                continue
            name, value = node.args
        else:
            continue
        if isinstance(name, ast.Constant) and name.value == _BACKEND and isinstance(value, ast.Constant):
            return str(value.value)
    return None
