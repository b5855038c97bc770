"""The rooms of the methods: what they show, what importing them costs, and who may know whom."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import oomcast.methods

ROOT = Path(oomcast.methods.__path__[0])
HEAVY = ("numpy", "lark", "sqlalchemy", "rich", "torch", "scipy", "pyarrow")
LAZY_ROOMS = (
    "measure",
    "tbem",
    "equations",
    "gpumemnet",
    "gpumemnet.dataset",
    "gpumemnet.networks",
    "gpumemnet.training",
)


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("room", LAZY_ROOMS)
def test_every_public_name_is_there(room: str) -> None:
    module = importlib.import_module(f"oomcast.methods.{room}")
    for name in module.__all__:
        assert getattr(module, name) is not None, name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing  # noqa: B018
    assert module.__doc__ is not None
    assert "Why" in module.__doc__, "a room says why it is there"


def test_commands_and_estimators_can_be_asked_without_loading_what_computes() -> None:
    groups = {"oomcast.commands": 3, "oomcast.estimators": 5}
    for group, least in groups.items():
        entries = [entry.value for entry in metadata.entry_points(group=group) if "oomcast.methods" in entry.value]
        assert len(entries) >= least
        assert loaded_after("import " + ", ".join(entry.partition(":")[0] for entry in entries)) == set()
    assert loaded_after("import " + ", ".join(f"oomcast.methods.{room}" for room in LAZY_ROOMS)) == set()


def test_the_proof_can_fail() -> None:
    assert "numpy" in loaded_after("import oomcast.methods.tbem.polynomial")


def test_every_command_has_a_summary() -> None:
    for entry in metadata.entry_points(group="oomcast.commands"):
        command = entry.load()
        assert isinstance(command.SUMMARY, str)
        assert 10 < len(command.SUMMARY) < 100


def _imports(file: Path) -> Iterator[tuple[str, str]]:
    """The modules that a file imports, by their whole names, each with the name that is taken from it."""
    package = ["oomcast", "methods", *file.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - (node.level - 1)] if node.level else []
            for alias in node.names:
                yield ".".join([*above, *(node.module or "").split(".")]).strip("."), alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, ""


def test_rooms_know_only_those_below_them() -> None:
    allowed = {
        "measure": {"measure"},
        "tbem": {"measure", "tbem"},
        "equations": {"measure", "tbem", "equations"},
        "gpumemnet": {"measure", "tbem", "gpumemnet"},
    }
    for room, below in allowed.items():
        for file in (ROOT / room).rglob("*.py"):
            for module, name in _imports(file):
                parts = [*module.split("."), name]
                if parts[:2] == ["oomcast", "methods"] and len(parts) > 2 and parts[2] in allowed:
                    assert parts[2] in below, f"{file} imports {module}"


def test_no_room_takes_the_private_or_inner_parts_of_another() -> None:
    for file in ROOT.rglob("*.py"):
        own = file.relative_to(ROOT).parts[0]
        for module, name in _imports(file):
            parts = module.split(".")
            if parts[0] == "oomcast":
                assert not any(part.startswith("_") and not part.startswith("__") for part in [*parts, name]), file
            if parts[:2] == ["oomcast", "methods"] and len(parts) > 3 and parts[2] != own:
                pytest.fail(f"{file} reaches into {module}; let it import oomcast.methods.{parts[2]}")
