"""What a training script does besides training, as far as its code tells: whether it evaluates, whether it saves.

The file that is started is read, and what it imports from its own repository; nothing runs. A word of it may lie behind
an option that the line does not give: then it has the phase here, and it is not reached.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["what_follows"]

_EVALUATION = frozenset(
    {"no_grad", "inference_mode", "eval", "evaluate", "validation_step", "fit_one_cycle", "fine_tune", "generate"}
)
_SAVING = frozenset(
    {"save_pretrained", "save_state", "save_checkpoint", "save_model", "save_weights", "save_file", "LightningCLI"}
)
_SAVERS = frozenset({"torch", "th", "accelerator", "trainer", "xm", "learn"})
"""Of which `.save(…)` writes a checkpoint, not a picture."""


def what_follows(script: Path, roots: Sequence[Path]) -> tuple[str, ...]:
    """`evaluation`, `saving`: those that the code has. `roots` are the folders that it imports from."""
    found: set[str] = set()
    met: set[Path] = set()
    waiting = [script.resolve()]
    while waiting:
        path = waiting.pop()
        if path in met or not path.is_file():
            continue
        met.add(path)
        try:
            tree = ast.parse(path.read_text(errors="replace"))
        except (SyntaxError, ValueError):
            continue
        found.update(_phases(tree))
        for name in _imports(tree):
            waiting.extend(_files_of(name, (path.parent, *roots)))
    return tuple(phase for phase in ("evaluation", "saving") if phase in found)


def _phases(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in _EVALUATION:
            yield "evaluation"
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            owner = getattr(getattr(node.func, "value", None), "id", "")
            if name in _EVALUATION:
                yield "evaluation"
            if name in _SAVING or (name == "save" and owner in _SAVERS) or (owner in ("L", "pl") and name == "Trainer"):
                yield "saving"


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def _files_of(name: str, folders: Sequence[Path]) -> Iterator[Path]:
    place = Path(*name.split(".")) if name else Path()
    for folder in folders:
        for path in (folder / place.with_suffix(".py") if name else folder, folder / place / "__init__.py"):
            if path.is_file():
                yield path.resolve()
