"""Pickles of plain data are read; anything that could run code, or eat memory, is refused unexecuted."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oomcast.simulate.recorded.plain_pickle import NotPlainData, read_plain_pickle

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(plain, st.sampled_from([2, 3, 4, 5]))
def test_plain_data_comes_back(value: object, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    # Protocol 2 has no opcode for bytes and calls a codec or a constructor instead.
    assume(protocol > 2 or (b"_codecs" not in data and b"__builtin__" not in data))
    assert read_plain_pickle(data) == value


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_garbage_is_refused_and_nothing_else_happens(garbage: bytes) -> None:
    try:
        value = read_plain_pickle(b"\x80\x04" + garbage)
    except NotPlainData:
        return
    assert isinstance(value, (int, float, str, bytes, list, tuple, dict, type(None)))


@settings(max_examples=200, deadline=None)
@given(plain, st.data())
def test_a_truncated_pickle_is_refused(value: object, data: st.DataObject) -> None:
    whole = pickle.dumps(value, 4)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(NotPlainData):
        read_plain_pickle(whole[:cut])


class Runs:
    """Unpickled, it would create the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("wrapped", [False, True])
def test_code_in_a_pickle_is_never_run(tmp_path: Path, protocol: int, wrapped: bool) -> None:
    target = tmp_path / "ran"
    harm: object = Runs(target)
    data = pickle.dumps({"segments": [], "device_traces": [[harm]]} if wrapped else harm, protocol)
    with pytest.raises(NotPlainData):
        read_plain_pickle(data)
    assert not target.exists()
    # The harm was real: torch's own reader would have run it.
    pickle.loads(data)
    assert target.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04cos\nsystem\n(X\x02\x00\x00\x00lstR.",
        b"\x80\x04(S'ls'\nios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x04]X\x01\x00\x00\x00aR.",
        b"\x80\x04}}b.",
        b"\x80\x04))\x81.",
        b"\x80\x04X\x01\x00\x00\x00aQ.",
        b"\x80\x04Pname\n.",
        b"\x80\x04\x82\x01.",
        b"\x80\x04(X\x01\x00\x00\x00ao.",
        b"\x80\x05\x97.",
    ],
    ids=["GLOBAL", "INST", "STACK_GLOBAL", "REDUCE", "BUILD", "NEWOBJ", "BINPERSID", "PERSID", "EXT1", "OBJ", "BUFFER"],
)
def test_every_opcode_that_builds_or_looks_up_is_refused(data: bytes) -> None:
    with pytest.raises(NotPlainData):
        read_plain_pickle(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04B\xff\xff\xff\xffabc.",
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"abc.",
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"abc.",
        b"\x80\x04X\xff\xff\xff\x7fabc.",
        b"\x80\x04\x8b\xff\xff\xff\x7f\x01.",
        b"\x80\x04\x8b" + struct.pack("<i", 100_000) + b"\x01" * 100_000 + b".",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 60),
        b"\x80\x04Kj\xff\xff\xff\xff.",
    ],
    ids=["BINBYTES", "BINBYTES8", "BINUNICODE8", "BINUNICODE", "LONG4", "long number", "FRAME", "memo"],
)
def test_claims_larger_than_the_file_are_refused(data: bytes) -> None:
    with pytest.raises(NotPlainData):
        read_plain_pickle(data)


def test_a_huge_memo_index_costs_nothing() -> None:
    assert read_plain_pickle(b"\x80\x04K\x07r\xff\xff\xff\xff.") == 7


def test_deep_nesting_needs_no_recursion() -> None:
    depth = 200_000
    value = read_plain_pickle(b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b".")
    assert isinstance(value, list)


def test_keys_that_hide_a_structure_are_refused() -> None:
    # Each tuple holds the one before twice; hashing the last would take 2 ** 60 steps.
    bomb = b"\x80\x04}K\x01" + b"2\x86" * 60 + b"K\x01s."
    with pytest.raises(NotPlainData, match="keys"):
        read_plain_pickle(bomb)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80", b"\x80\x04", b"\x80\x04.", b"\x80\x09N.", b"\x80\x04NN.", b"\x80\x04(N.", b"\x80\x04a.",
     b"\x80\x04e.", b"\x80\x04Na.", b"\x80\x04]K\x01s.", b"\x80\x04}(K\x01u.", b"\x80\x04\x86.", b"\x80\x04]N(a.",
     b"hello"],
)  # fmt: skip
def test_damaged_pickles_are_refused(data: bytes) -> None:
    with pytest.raises(NotPlainData):
        read_plain_pickle(data)
