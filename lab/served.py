"""The service of `oomcast serve` for whoever measures it: started, killed, ended."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from oomcast.errors import OomcastError

__all__ = ["Server", "serving"]


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

    def resident(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def serving(store: Path, *options: str) -> Iterator[Server]:
    server = Server(store, 0, *options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
