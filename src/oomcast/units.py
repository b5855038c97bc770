"""Bytes are int everywhere; this is the one place where they become text, in powers of two, named so."""

from __future__ import annotations

import re

from .errors import BadInput

__all__ = ["GiB", "KiB", "MiB", "check_size", "format_bytes", "parse_bytes"]

KiB = 1 << 10
MiB = 1 << 20
GiB = 1 << 30

_LARGEST = 1 << 60
"""An exbibyte: more than all cards of the world's largest machine."""

_UNITS = {"": 1, "b": 1, "kib": KiB, "mib": MiB, "gib": GiB, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def format_bytes(size: int) -> str:
    """`1536 MiB` as people read it: GiB from 1 GiB on, then MiB, KiB and B."""
    sign, size = ("-", -size) if size < 0 else ("", size)
    if size > 1 << 200:
        return f"{sign}2^{size.bit_length() - 1} B or more"
    if size >= GiB:
        return f"{sign}{size / GiB:.2f} GiB"
    if size >= MiB:
        return f"{sign}{size / MiB:.1f} MiB"
    if size >= KiB:
        return f"{sign}{size / KiB:.1f} KiB"
    return f"{sign}{size} B"


def parse_bytes(text: str) -> int:
    """Read `24GiB`, `500 MiB`, `80GB` (decimal, as the word says) or a plain number of bytes."""
    match = re.fullmatch(r"\s*([0-9]{1,20}(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    unit = _UNITS.get(match.group(2).lower()) if match else None
    if match is None or unit is None:
        raise BadInput(f"cannot read {text!r} as a size; write it like 24GiB, 512MiB or a number of bytes.")
    return check_size(round(float(match.group(1)) * unit))


def check_size(nbytes: int) -> int:
    """The same number; raises BadInput where it is more than any machine has, which no sum or share should meet."""
    if nbytes > _LARGEST:
        raise BadInput(f"{format_bytes(nbytes)} is more than any machine has; write a size like 24GiB.")
    return nbytes
