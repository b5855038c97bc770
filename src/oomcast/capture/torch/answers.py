"""What libraries are told when they ask what they deal with. Apart, since a compiler traces these functions as the
job's own code (`compiled/tracing.py`), while all else here is kept from it."""

from __future__ import annotations

from typing import Any

__all__ = ["is_never_fake"]


def is_never_fake(tensor: Any) -> bool:
    return False
