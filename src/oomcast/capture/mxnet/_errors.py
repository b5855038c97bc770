"""MXNet's error messages in one sentence."""

from __future__ import annotations

import re

from .._explain import first_sentence

__all__ = ["reason"]

_PLACE = re.compile(r"\[[\d:]+\] \S+: ")
"""The time, and the line of MXNet's source."""


def reason(error: BaseException) -> str:
    """They begin with a stack of MXNet's own; the last line with `Error` or a failed check says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line or "Check failed" in line]
    sentence = telling[-1] if telling else first_sentence(error)
    return _PLACE.sub("", sentence).removeprefix("MXNetError: ")[:300]
