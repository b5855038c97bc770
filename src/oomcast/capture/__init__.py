"""Framework → Trace. Frameworks are imported only in the process that captures."""

from ._capture import capture
from ._environments import ENVIRONMENTS, environments, make_environment
from ._frameworks import guess_framework

__all__ = ["ENVIRONMENTS", "capture", "environments", "guess_framework", "make_environment"]
