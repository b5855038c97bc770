"""What a case may leave behind: processes and its folder, both known by its marker."""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from pathlib import Path

from ._processes import end_marked

__all__ = ["MARKER", "case_folder", "clean_up", "new_marker"]

MARKER = "OOMCAST_CASE"
"""The variable by which processes that a case started are known as its own."""


def new_marker() -> str:
    return secrets.token_hex(16)


def case_folder(marker: str) -> Path:
    return Path(tempfile.gettempdir()) / f"oomcast-case-{marker}"


def clean_up(marker: str) -> None:
    """Kill and remove what is left on this machine of the case with that marker. Anything but a marker of ours is left
    alone: it may come from a database that others can write to, and names what is deleted."""
    if not re.fullmatch(r"[0-9a-f]{32}", marker):
        return
    end_marked(f"{MARKER}={marker}")
    shutil.rmtree(case_folder(marker), ignore_errors=True)
