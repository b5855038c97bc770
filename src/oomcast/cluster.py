"""A Ray cluster that others have started: how oomcast reaches it, with errors as one sentence."""

from __future__ import annotations

import logging
import re
import socket
from typing import Any

from .errors import BadInput

__all__ = ["check_engine", "connect", "ray_module"]


def ray_module() -> Any:
    """The library. Raises BadInput where it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise BadInput("a Ray cluster needs the package ray; install it with: pip install 'oomcast[ray]'") from error
    return ray


def connect(address: str | None) -> None:
    """Join the cluster at `address` (`auto`: the one on this machine, `ray://host:10001` …); None starts one here."""
    _check_reachable(address)
    try:
        ray_module().init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise BadInput(f"cannot reach the Ray cluster at {address!r}: {reason}.") from error


def check_engine(name: str) -> None:
    """Raises BadInput where captures are to be made on a cluster that cannot be reached from here."""
    if name != "local":
        ray_module()
        _check_reachable(name)


def _check_reachable(address: str | None) -> None:
    """Ray itself tries for minutes, and fills the terminal meanwhile."""
    match = re.fullmatch(r"(?:ray://)?\[?([^/\[\]]+)\]?:([0-9]+)", address or "")
    if match is None:
        return
    try:
        socket.create_connection((match.group(1), int(match.group(2))), timeout=10).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"cannot reach the Ray cluster at {address!r}: {reason}.") from error
