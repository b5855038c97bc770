"""The models of timm and torchvision, read from their source: importing them would take seconds and load torch."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["timm_modules", "torchvision_modules", "why_unknown"]


@functools.cache
def timm_modules() -> Mapping[str, str]:
    """Model name → module; names that timm has deprecated are there too. Empty where timm is not installed."""
    return _modules("timm", "*.py")


@functools.cache
def torchvision_modules() -> Mapping[str, str]:
    """Model name → module. Empty where torchvision is not installed."""
    return _modules("torchvision", "**/*.py")


def why_unknown(library: str, model: str) -> str:
    """Why that library does not give us this model."""
    if importlib.util.find_spec(library) is None:
        return f"{library} is not installed"
    return f"the installed {library} has no {model}"


def _modules(library: str, files: str) -> dict[str, str]:
    found = importlib.util.find_spec(library)
    if found is None or found.origin is None:
        return {}
    modules: dict[str, str] = {}
    for path in sorted((Path(found.origin).parent / "models").glob(files)):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in _registered(node):
                modules[name] = path.stem
    return modules


def _registered(node: ast.stmt) -> Iterator[str]:
    """What a statement enters into the library's list: by a decorator, or as an old name of a model."""
    if isinstance(node, ast.FunctionDef):
        for mark in node.decorator_list:
            called = mark.func if isinstance(mark, ast.Call) else mark
            if isinstance(called, ast.Name) and called.id == "register_model":
                yield node.name
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
        call = node.value
        names = call.args[-1] if node.value.func.id == "register_model_deprecations" and call.args else None
        for key in names.keys if isinstance(names, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value
