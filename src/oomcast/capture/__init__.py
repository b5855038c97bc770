"""Framework → Trace. Frameworks are imported only in the process that captures."""

from __future__ import annotations

from .client import capture, remember_captures
from .frameworks import guess_framework
from .venvs import ENVIRONMENTS, environments, make_environment

__all__ = ["ENVIRONMENTS", "capture", "environments", "guess_framework", "make_environment", "remember_captures"]
