"""A service in a process of its own, as a user starts it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class Service:
    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        try:
            connection.request(method, path, body=data, headers={**sent, **(headers or {})})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    def ask(self, kind: str, **asked: Any) -> Any:
        """The JSON of the answer; waits for it."""
        while True:
            status, _, body = self.send("POST", f"/{kind}?wait=60", asked)
            if status != 202:
                assert status == 200, body
                return json.loads(body)


@contextlib.contextmanager
def running(folder: Path, *options: str) -> Iterator[Service]:
    log = folder / "service.log"
    command = [sys.executable, "-m", "oomcast", "serve", "--port", "0", "--no-browser", "--store", str(folder / "s.db")]
    with log.open("a") as errors:
        process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ}
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://[^ ]*:(\d+)/", line)
        assert found is not None, line + log.read_text()
        yield Service(process, int(found[1]), log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()
