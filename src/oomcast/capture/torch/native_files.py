"""Functions of C++ and Rust code that are told the path of a file: led to where a job's writing is kept apart.

Python's own functions are led there for all (`keeping_apart.py`); what these open themselves, the kernel refuses. A
trainer that saves its tokenizer with each checkpoint, or a picture of its batch, would end there.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from ..keeping_apart import current_overlay
from ..overlay import Overlay
from .patches import Patches

__all__ = ["install_native_files"]

_CREATES = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def _written(overlay: Overlay, path: Any) -> Any:
    return overlay.to_write(path, _CREATES)


def _written_into(overlay: Overlay, folder: Any) -> Any:
    """For a function that is told a folder: any file's place is in the folder's."""
    return os.path.dirname(overlay.to_write(os.path.join(folder, "file"), _CREATES))


def _read(overlay: Overlay, path: Any) -> Any:
    return overlay.to_read(path)


_FUNCTIONS: dict[str, tuple[tuple[str, str, int, Callable[[Overlay, Any], Any]], ...]] = {
    "tokenizers": (
        ("Tokenizer", "save", 1, _written),
        ("Tokenizer", "from_file", 0, _read),
        *((f"models.{kind}", "save", 1, _written_into) for kind in ("BPE", "Unigram", "WordLevel", "WordPiece")),
    ),
    "cv2": (("", "imwrite", 0, _written), ("", "imread", 0, _read)),
}
"""Library → where the function is, its name, which of its arguments the path is, and what is done with it."""


def install_native_files(patches: Patches) -> None:
    """For the libraries that the job has loaded so far; may be called again."""
    for library, functions in _FUNCTIONS.items():
        if library not in sys.modules:
            continue
        for where, name, place, meant in functions:
            owner = functools.reduce(getattr, where.split("."), sys.modules[library]) if where else sys.modules[library]
            function = getattr(owner, name)
            if not hasattr(function, "_oomcast_led"):
                led = _led(function, place, meant)
                patches.set(owner, name, staticmethod(led) if where and not place else led)


def _led(function: Callable[..., Any], place: int, meant: Callable[[Overlay, Any], Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        overlay = current_overlay()
        if overlay is not None and len(args) > place:
            with overlay.aside():
                args = (*args[:place], os.fspath(meant(overlay, args[place])), *args[place + 1 :])
        return function(*args, **options)

    call._oomcast_led = True  # type: ignore[attr-defined]
    return call
