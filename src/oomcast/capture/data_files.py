"""The files that a job names, found in its plain data: what decides its answer beside its options."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["data_files", "names_in"]


def data_files(workload: Mapping[str, Any]) -> list[Path]:
    """Those that are there."""
    return [Path(text) for text in names_in(workload) if os.path.isfile(text)]


def names_in(workload: Mapping[str, Any]) -> Iterator[str]:
    """Whatever may name a file: each text as it is, and without its kind, as in `hf:config.json`."""
    for text in _texts(workload):
        yield text
        if ":" in text:
            yield text.partition(":")[2]


def _texts(plain: Any) -> Iterator[str]:
    """All that a plain value says, in an order of its own."""
    if isinstance(plain, str):
        yield plain
    elif isinstance(plain, dict):
        for name in sorted(plain):
            yield from _texts(plain[name])
    elif isinstance(plain, (list, tuple)):
        for item in plain:
            yield from _texts(item)
