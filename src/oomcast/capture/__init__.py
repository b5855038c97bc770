"""Framework → Trace. Frameworks are imported only in the process that captures."""

from ._capture import capture

__all__ = ["capture"]
