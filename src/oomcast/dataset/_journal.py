"""An unfinished build: a line for every finished row, so that a build that was killed goes on where it was.

The first line holds the settings. A build with others may not add to it: its rows would be labelled by other rules.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from ..errors import BadInput, UnreadableFile

__all__ = ["Journal", "journal_path", "open_journal"]


def journal_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


class Journal:
    """Made by `open_journal`."""

    def __init__(self, stream: TextIO, entries: dict[str, dict[str, Any]]) -> None:
        self._stream = stream
        self.entries = entries
        """What is finished, by id: a flat row, or `{"error": …}`."""

    def add(self, name: str, entry: dict[str, Any]) -> None:
        """One write, at once: a killed process leaves whole lines and at most one torn one at the end.

        A row that is there stays; only an error gives way.
        """
        if "error" not in self.entries.get(name, {"error": ""}):
            return
        self._stream.write(json.dumps([name, entry], separators=(",", ":")) + "\n")
        self._stream.flush()
        self.entries[name] = entry


@contextlib.contextmanager
def open_journal(path: Path, settings: Mapping[str, Any], restart: bool = False) -> Iterator[Journal]:
    """Of the build of `path`. One process at a time."""
    place = journal_path(path)
    try:
        stream = place.open("a+", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {place}: {error.strerror or error}.") from None
    with stream:
        _lock(stream, path)
        if restart:
            stream.truncate(0)
        stream.seek(0)
        yield Journal(stream, _entries(stream, place, settings))


def _entries(stream: TextIO, place: Path, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    header, *lines = stream.read().split("\n")
    if not header or not lines:
        _cut(stream, 0)
        stream.write(json.dumps({"settings": dict(settings)}) + "\n")
        stream.flush()
        return {}
    try:
        before = json.loads(header)["settings"]
        entries = dict(map(json.loads, lines[:-1]))
    except (ValueError, KeyError, TypeError):
        raise UnreadableFile(f"{place} is not an unfinished build; remove it, or add --restart.") from None
    _check_same(before, settings, place)
    if lines[-1]:  # torn: its row is made again
        whole = "\n".join([header, *lines[:-1]]) + "\n"
        _cut(stream, len(whole.encode()))
    return entries


def _cut(stream: TextIO, length: int) -> None:
    stream.flush()
    os.truncate(stream.fileno(), length)
    stream.seek(0, os.SEEK_END)


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], place: Path) -> None:
    different = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    if different:
        told = ", ".join(f"{key.replace('_', ' ')} {_said(before, key)}, not {_said(now, key)}" for key in different)
        raise BadInput(
            f"{place} is an unfinished build with other settings: {told}. Finish it with those, or add --restart to "
            "throw it away."
        )


def _said(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _lock(stream: TextIO, path: Path) -> None:
    try:
        import fcntl
    except ModuleNotFoundError:  # not on Windows
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise BadInput(f"another process is building {path} now.") from None
