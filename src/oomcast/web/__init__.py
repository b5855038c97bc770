"""`oomcast serve`: a page to play with and a service to ask, on one port.

Requests hold names and data files, never code and never a path of the server. Each is a `Question`; the store keeps it
and, once a worker process has answered it, its answer. See docs/howto/serve.md.
"""

from __future__ import annotations

from .client import Client

__all__ = ["Client"]
