"""The order of the house: what the source promises to those who read it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator

import pytest

from lab.house import SOURCE, Module, is_public, modules, wide_functions

MODULES = modules()
PUBLIC = {name for one in MODULES if one.path.name == "__init__.py" for name in one.exported or ()}


def named(module: Module) -> str:
    return module.name


@pytest.mark.parametrize("module", MODULES, ids=named)
def test_a_module_says_what_it_is_and_what_it_offers(module: Module) -> None:
    assert ast.get_docstring(module.tree), "it has no docstring"
    if len(module.tree.body) > 1 and module.path.name != "__main__.py":
        assert module.exported is not None, "it has no __all__"


@pytest.mark.parametrize("module", MODULES, ids=named)
def test_nobody_imports_what_is_private_elsewhere(module: Module) -> None:
    assert list(_private_imports(module)) == []


def _private_imports(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("oomcast")):
            for name in node.names:
                parts = [*(node.module or "").split("."), name.name]
                yield from (part for part in parts if part.startswith("_") and not part.startswith("__"))


OPERATORS = {
    ("capture/torch/personality/normalization.py", "_batch_norm"),
    ("capture/torch/personality/recurrent.py", "_cudnn"),
}
"""Stand in for operators of torch, whose signature they must have."""


@pytest.mark.parametrize("module", MODULES, ids=named)
def test_only_public_functions_take_many_parameters(module: Module) -> None:
    wide = {name: count for name, count in wide_functions(module) if (module.name, name) not in OPERATORS}
    assert {name: count for name, count in wide.items() if not is_public(name, PUBLIC)} == {}


ROOMS = [one for one in MODULES if one.path.name == "__init__.py" and one.exported]


@pytest.mark.parametrize("room", ROOMS, ids=named)
def test_every_name_that_a_room_offers_is_there(room: Module) -> None:
    loaded = importlib.import_module(".".join(("oomcast", *room.path.relative_to(SOURCE).parent.parts)))
    names = room.exported or ()
    assert len(set(names)) == len(names)
    assert [name for name in names if not hasattr(loaded, name)] == []
