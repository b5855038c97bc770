"""The service of `oomcast serve` for whoever measures it: started, killed, ended."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from oomcast.errors import OomcastError

__all__ = ["Server", "send", "serving"]


class Server:
    """`oomcast serve`, started on a free port of this machine."""

    def __init__(self, store: Path, port: int = 0, *options: str) -> None:
        self._folder = store.parent
        self._log = (store.parent / "service.log").open("ab")
        words = ["serve", "--port", str(port), "--no-browser", "--store", str(store), *options]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "oomcast", *words], stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self.process.stdout is not None
        found = re.search(r"http://[^ ]*:(\d+)/", self.process.stdout.readline())
        if found is None:
            raise OomcastError(f"the service did not start: {(store.parent / 'service.log').read_text()[-500:]}")
        self.port = int(found[1])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self._end()

    def _end(self) -> None:
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


@contextlib.contextmanager
def serving(store: Path, *options: str) -> Iterator[Server]:
    server = Server(store, 0, *options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


def send(
    port: int, method: str, path: str, body: bytes | None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """One request on a connection of its own: status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
    sent = {"Content-Type": "application/json"} if body is not None else {}
    try:
        connection.request(method, path, body, {**sent, **(headers or {})})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
