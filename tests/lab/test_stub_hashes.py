"""The stand-ins for libcuda that ship are those that were checked, and come from the source beside them."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

import pytest

from lab.cudnn.build_stub import build
from oomcast.simulate.cudnn.library import MACHINES, SOURCE, stub_name

ZIG = "0.17.0"


def test_source_and_libraries_have_the_hashes_that_are_written_down() -> None:
    listed = {}
    for line in (SOURCE.parent / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        listed[name] = digest
    shipped = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in SOURCE.parent.iterdir()
        if path.suffix in (".c", ".so")
    }
    assert listed == shipped
    assert set(shipped) == {SOURCE.name, *map(stub_name, MACHINES)}


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="the compiler, ziglang, is not installed")
@pytest.mark.parametrize("machine", MACHINES)
def test_compiled_again_they_are_the_same_bytes(machine: str, tmp_path: Path) -> None:
    made = build([sys.executable, "-m", "ziglang", "cc"], machine, tmp_path)
    assert made.read_bytes() == (SOURCE.parent / stub_name(machine)).read_bytes()
