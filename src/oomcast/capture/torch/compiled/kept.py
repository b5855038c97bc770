"""Plans of compiled graphs, kept on disk from one job to the next.

A file holds data alone (`plan.py`), each part of which is looked at before it is used (`steps.py`): what is damaged, of
another version, of somebody else, or no plan at all is as if it were not there, and is made anew. The folder is the
user's own; it holds at most `_MOST_BYTES`, and what was not asked for longest goes first.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....errors import OomcastError
from ....files import cache_folder, write_atomically
from .lowering import GraphCode
from .plan import Plan
from .steps import can_be_followed

__all__ = ["KeptCodes"]

_MOST_BYTES = 64 << 20
_MOST_OF_ONE = 8 << 20


class KeptCodes:
    """By the word that a graph is known by (`identity.py`)."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or cache_folder() / "compiled"

    def get(self, identity: str, places: Sequence[tuple[str, str]]) -> GraphCode | None:
        """`places`: those of the graph's nodes at hand, each once; a kept plan knows them by their numbers."""
        path = self._path(identity)
        try:
            if not _is_ours(self._folder) or not _is_ours(path) or path.stat().st_size > _MOST_OF_ONE:
                return None
            told = json.loads(path.read_bytes())
            code = _read(told, identity, places)
            if code.plan is None or not can_be_followed(code.plan):
                return None
            os.utime(path)
        except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            return None
        return code

    def put(self, identity: str, places: Sequence[tuple[str, str]], code: GraphCode) -> None:
        """Nothing is kept of code that has no plan, and where the disk does not take it."""
        numbers = {place: number for number, place in enumerate(places)}
        if code.plan is None or code.constants or not set(code.made_for.values()) <= set(numbers):
            return
        told = {
            "identity": identity,
            "plan": code.plan.as_data(),
            "made_for": {name: numbers[place] for name, place in code.made_for.items()},
            "made_by": code.made_by,
            "products": code.products,
            "strides": code.strides,
        }
        content = json.dumps(told, separators=(",", ":")).encode()
        if len(content) > _MOST_OF_ONE:
            return
        with contextlib.suppress(OSError, OomcastError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_ours(self._folder):
                self._make_room(len(content))
                write_atomically(self._path(identity), content)
                self._path(identity).chmod(0o600)

    def _path(self, identity: str) -> Path:
        return self._folder / f"{identity}.json"

    def _make_room(self, nbytes: int) -> None:
        files = [(entry.stat().st_mtime, entry.stat().st_size, entry) for entry in self._folder.glob("*.json")]
        held = sum(size for _, size, _ in files) + nbytes
        for _, size, file in sorted(files):
            if held <= _MOST_BYTES:
                return
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
            held -= size


def _is_ours(path: Path) -> bool:
    """Nobody else may have written there."""
    known = path.stat()
    if not hasattr(os, "getuid"):
        return True
    return known.st_uid == os.getuid() and not known.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _read(told: Mapping[str, Any], identity: str, places: Sequence[tuple[str, str]]) -> GraphCode:
    if told["identity"] != identity:
        raise ValueError("a file under another's name")
    plan = told["plan"]
    slots, kernels = plan["slots"], plan["kernels"]
    return GraphCode(
        source="",
        made_for={_word(name): places[_number(place)] for name, place in told["made_for"].items()},
        made_by={_word(name): _word(kernel) for name, kernel in told["made_by"].items()},
        products=tuple(tuple(_number(nbytes) for nbytes in product) for product in told["products"]),
        strides=tuple(None if one is None else tuple(_number(stride) for stride in one) for one in told["strides"]),
        plan=Plan(
            tuple(_word(name) for name in slots),
            tuple(list(step) for step in plan["steps"]),
            {_word(name): (_word(digest), _word(launch)) for name, (digest, launch) in kernels.items()},
        ),
    )


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a word")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not a number")
    return value
