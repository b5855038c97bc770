"""Bytes as text, in powers of two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast.errors import BadInput
from oomcast.units import GiB, KiB, MiB, check_size, format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 * MiB, "5.0 MiB"),
        (24 * GiB, "24.00 GiB"),
        (-MiB, "-1.0 MiB"),
    ],
)
def test_formatting(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("24GiB", 24 * GiB), ("512 MiB", 512 * MiB), ("1.5kib", 1536), ("80GB", 80 * 10**9), ("123", 123), ("7 B", 7)],
)
def test_parsing(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "12 XB", "-3MiB", "1e9", "nan", "9" * 400 + "GiB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(BadInput, match="size"):
        parse_bytes(text)


@given(st.integers(0, 1 << 50))
def test_what_is_printed_can_be_read(size: int) -> None:
    read = parse_bytes(format_bytes(size))
    assert abs(read - size) <= max(0.06 * KiB, 0.06 * size)


def test_numbers_without_end_are_told_in_a_sentence() -> None:
    for text in ("9" * 400, "1" + "0" * 19 + "GiB", f"{2**61}"):
        with pytest.raises(BadInput):
            parse_bytes(text)
    with pytest.raises(BadInput, match="more than any machine has"):
        check_size(10**400)
    assert format_bytes(10**400) == "2^1328 B or more"
    assert format_bytes(-(10**400)) == "-2^1328 B or more"
    assert check_size(1 << 50) == 1 << 50
