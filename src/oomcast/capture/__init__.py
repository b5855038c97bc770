"""Framework → Trace. Frameworks are imported only in the process that captures."""

from __future__ import annotations

from .capturing import capture, captures_at_once, expecting, remember_captures
from .engines import limit_captures_at_once
from .frameworks import guess_framework
from .venvs import ENVIRONMENTS, environments, make_environment

__all__ = [
    "ENVIRONMENTS",
    "capture",
    "captures_at_once",
    "environments",
    "expecting",
    "guess_framework",
    "limit_captures_at_once",
    "make_environment",
    "remember_captures",
]
