"""A figure as a file: SVG as it is drawn, PNG by resvg, which the extra `png` brings."""

from __future__ import annotations

import functools
from pathlib import PurePath
from typing import Any

from ..errors import BadInput

__all__ = ["as_picture", "check_picture"]

_PIXELS = 3
"""Of the PNG for each unit of the SVG: 288 dots per inch."""
_FAMILIES = (
    *("Helvetica", "Arial", "Liberation Sans", "DejaVu Sans", "Noto Sans", "Segoe UI", "Roboto", "Open Sans"),
    *("Nimbus Sans", "FreeSans", "Ubuntu", "Cantarell", "Lato", "Verdana", "Droid Sans", "Source Sans 3", "Inter"),
)
_WORD = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><text y="16" font-family="{}">Mm</text></svg>'


def check_picture(file: str) -> None:
    """Refuse what cannot be written, before the work."""
    suffix = PurePath(file).suffix.lower()
    if suffix not in (".svg", ".png"):
        raise BadInput(f"figures are written as SVG or PNG; name a file like figure.svg or figure.png, not {file!r}.")
    if suffix == ".png":
        _family()


def as_picture(svg: str, file: str) -> bytes:
    """In the form that the file's name asks for."""
    check_picture(file)
    if PurePath(file).suffix.lower() == ".svg":
        return svg.encode()
    drawn = _renderer().svg_to_bytes(
        svg_string=svg, zoom=_PIXELS, background="white", font_family=_family(), sans_serif_family=_family()
    )
    return bytes(drawn)


def _renderer() -> Any:
    try:
        import resvg_py
    except ModuleNotFoundError:
        raise BadInput(
            "PNG needs the package resvg-py; install it with: pip install 'oomcast[png]', or write a .svg file."
        ) from None
    return resvg_py


@functools.cache
def _family() -> str:
    """The first family that this machine has: resvg leaves text out, without a word, where it finds no font."""
    draw = _renderer().svg_to_bytes
    blank = bytes(draw(svg_string=_WORD.format("none"), skip_system_fonts=True))
    for family in _FAMILIES:
        if bytes(draw(svg_string=_WORD.format(family))) != blank:
            return family
    raise BadInput(
        "this machine has no font for the words of a PNG; install one, such as fonts-dejavu, or write a .svg file."
    )
