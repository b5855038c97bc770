"""Framework → Trace. Frameworks are imported only in the process that captures."""

from ._capture import capture
from ._frameworks import guess_framework

__all__ = ["capture", "guess_framework"]
