"""Numbers that a job file gives a name to (`WIDTH = 512`): found without running it, and run with another value."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ..errors import BadInput

__all__ = ["ChangedFile", "constants_of_file"]


def constants_of_file(path: str) -> dict[str, int]:
    """Whole numbers that are assigned to one name at the file's top level."""
    return {name: node.value for name, node in _assigned(_parse(path)).items() if isinstance(node.value, int)}


class ChangedFile:
    """A job file with one of its numbers changed; the file itself stays as it is. Its functions are the file's."""

    def __init__(self, path: str, name: str, value: int) -> None:
        self.path = path
        self.name = name
        self.value = value
        self._module: ModuleType | None = None

    def model(self) -> Any:
        return self._functions.model()

    def batch(self, batch_size: int, **sizes: Any) -> Any:
        return self._functions.batch(batch_size, **sizes)

    def __getattr__(self, attribute: str) -> Any:
        # `loss` and `optimizer` are there if the file has them.
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return getattr(self._functions, attribute)

    def __deepcopy__(self, memo: Any) -> ChangedFile:
        # A workload as plain data copies its job's parts; a module cannot be copied, and need not be.
        return self

    @property
    def _functions(self) -> ModuleType:
        if self._module is None:
            place = Path(self.path).resolve()
            sys.path.insert(0, str(place.parent))
            loader = _ChangingLoader("oomcast_job", str(place), self.name, self.value)
            specification = importlib.util.spec_from_loader("oomcast_job", loader)
            assert specification is not None
            self._module = sys.modules["oomcast_job"] = importlib.util.module_from_spec(specification)
            loader.exec_module(self._module)
        return self._module


class _ChangingLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, module: str, path: str, name: str, value: int) -> None:
        super().__init__(module, path)
        self._name = name
        self._value = value

    def get_code(self, fullname: str) -> CodeType:
        # Never from a cache of compiled files, which holds the number as it is written.
        return self.source_to_code(self.get_data(self.path), self.path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        tree = ast.parse(data, filename=path)
        _assigned(tree)[self._name].value = self._value
        code: CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)
        return code


def _parse(path: str) -> ast.Module:
    try:
        return ast.parse(Path(path).read_bytes(), filename=path)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}.") from error
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"{path} is not valid Python: {error}.") from error


def _assigned(tree: ast.Module) -> dict[str, ast.Constant]:
    """The constant nodes by the name they are given; bools are not numbers here."""
    found: dict[str, ast.Constant] = {}
    for node in tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Constant):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        is_number = isinstance(node.value.value, int) and not isinstance(node.value.value, bool)
        if is_number and len(targets) == 1 and isinstance(targets[0], ast.Name):
            found[targets[0].id] = node.value
    return found
