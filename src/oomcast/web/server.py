"""`oomcast serve`: where it listens, who may ask, where answers are kept; then uvicorn runs until it is stopped."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from ..cluster import check_engine
from ..errors import BadInput, OomcastError
from ..files import cache_folder
from ..spec import Effort
from ..units import format_bytes
from .gate import LOOPBACK, Guards
from .questions import Limits
from .service import make_app
from .store import Store

__all__ = ["Settings", "serve"]

_LEAST_TOKEN = 16
_MOST_CONNECTIONS = 256
_LARGEST_HEAD = 16 * 1024


@dataclass(frozen=True)
class Settings:
    """What `oomcast serve` is told. Port 0 takes any that is free."""

    host: str = "127.0.0.1"
    port: int = 8642
    token: str | None = None
    store: str | None = None
    """A file for SQLite, or `postgresql://user@host/name`; None: a file in the user's cache folder."""
    workers: int = 2
    """So that an answer need not wait for the curves and maps that are being made."""
    time_limit: float = 300.0
    memory_limit: int = 8 << 30
    engine: str = "local"
    """Where captures are made: on this machine, or on a Ray cluster (`oomcast.spec.Effort`)."""
    browser: bool = True

    def __post_init__(self) -> None:
        check_engine(Effort(engine=self.engine).engine)
        if not 0 <= self.port <= 65535:
            raise BadInput(f"the port must be from 0 to 65535, not {self.port}.")
        if self.workers < 1:
            raise BadInput(f"there must be at least one worker, not {self.workers}.")
        if not self.is_loopback and self.token is None:
            raise BadInput(
                f"--host {self.host} can be reached from other machines; give a --token that askers must send."
            )
        if self.token is not None and (
            len(self.token) < _LEAST_TOKEN or not self.token.replace("-", "").replace("_", "").isalnum()
        ):
            raise BadInput(f"a token must have at least {_LEAST_TOKEN} letters and digits (and - or _).")

    @property
    def is_loopback(self) -> bool:
        if self.host in LOOPBACK:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def guards(self) -> Guards:
        """On loopback only its own names are answered. Elsewhere a machine has many names, and the token protects."""
        return Guards((*LOOPBACK, self.host) if self.is_loopback else (), self.token)


def serve(settings: Settings) -> int:
    """Listen until a signal ends it; 0."""
    import uvicorn  # here, since a command's help needs none of it

    listening = _socket(settings)
    try:
        store = Store(_store_place(settings))
        limits = Limits(settings.time_limit, settings.memory_limit, settings.engine)
        app = make_app(store, limits, settings.workers, settings.guards)
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="on",
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=_LARGEST_HEAD,
        )
        _tell(settings, listening, store)
        server = uvicorn.Server(config)
        server.run(sockets=[listening])
        if not server.started:
            raise OomcastError("the service could not start; the lines above say why.")
    finally:
        listening.close()
    return 0


def _store_place(settings: Settings) -> str:
    if settings.store is not None:
        return settings.store
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder / "service.db")


def _socket(settings: Settings) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_MOST_CONNECTIONS)  # who comes before the service has started waits
    except OSError as error:
        raise BadInput(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}; give another --port."
        ) from None
    return listening


def _tell(settings: Settings, listening: socket.socket, store: Store) -> None:
    port = listening.getsockname()[1]
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{name}:{port}/"
    sys.stdout.write(
        f"oomcast serves {address} (API: {address}docs), answers are kept in {Path(store.name).name}; "
        f"a question may take {settings.time_limit:g} s and {format_bytes(settings.memory_limit)}. Ctrl-C ends it.\n"
    )
    sys.stdout.flush()
    if settings.browser and settings.is_loopback and (os.environ.get("DISPLAY") or sys.platform in ("darwin", "win32")):
        with_token = f"{address}?token={settings.token}" if settings.token else address
        threading.Timer(1.0, webbrowser.open, (with_token,)).start()
