"""timm's models and the file each is in, read from its source: importing it would take seconds and load torch."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Mapping
from pathlib import Path

from ..errors import BadInput

__all__ = ["timm_modules"]


@functools.cache
def timm_modules() -> Mapping[str, str]:
    """Model name → module; names that timm has deprecated are there too."""
    found = importlib.util.find_spec("timm")
    if found is None or found.origin is None:
        raise BadInput("timm is not installed; install it with: pip install 'oomcast[timm]'")
    modules: dict[str, str] = {}
    for path in sorted((Path(found.origin).parent / "models").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in _registered(node):
                modules[name] = path.stem
    return modules


def _registered(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef):
        marks = [mark.id for mark in node.decorator_list if isinstance(mark, ast.Name)]
        return [node.name] if "register_model" in marks else []
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return []
    names = call.args[-1] if call.func.id == "register_model_deprecations" and call.args else None
    keys = names.keys if isinstance(names, ast.Dict) else []
    return [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
