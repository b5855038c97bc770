"""The digest of the code that made a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from oomcast.provenance import TRACE_ROOMS, source_digest


def test_every_file_of_a_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = tmp_path / "some_room" / "inner"
    room.mkdir(parents=True)
    (tmp_path / "some_room" / "__init__.py").write_text("raise AssertionError('it is not imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    digests = []
    for name, text in (("a.py", "x = 1"), ("a.py", "x = 2"), ("b.json", "{}"), ("notes.txt", "")):
        (room / name).write_text(text)
        source_digest.cache_clear()
        digests.append(source_digest("some_room"))
    assert len(set(digests)) == len(digests)
    (room / "__pycache__").mkdir()
    (room / "__pycache__" / "a.pyc").write_bytes(b"1")
    source_digest.cache_clear()
    assert source_digest("some_room") == digests[-1]
    assert "some_room" not in sys.modules


def test_the_rooms_of_a_trace_are_there() -> None:
    assert len(source_digest(*TRACE_ROOMS)) == 8
    with pytest.raises(ValueError, match="is no package"):
        source_digest("oomcast.units")
