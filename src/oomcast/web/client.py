"""Ask a service that runs elsewhere, with nothing but Python's own library.

>>> from oomcast.web import Client
>>> Client("http://127.0.0.1:8642").estimate("zoo:resnet50", batch_size=64, device="rtx-3090")["verdict"]
'fits'
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from ..errors import BadInput, OomcastError, TookTooLong

__all__ = ["Client"]

_WAIT = 30.0
_AGAIN = 1.0


class Client:
    """`token` is what the service was started with; `timeout` bounds the wait for one answer, in seconds."""

    def __init__(self, address: str, token: str | None = None, timeout: float = 600.0) -> None:
        if not address.startswith(("http://", "https://")):
            raise BadInput(f"the service's address must begin with http:// or https://, not {address!r}.")
        self._address, self._token, self._timeout = address.rstrip("/"), token, timeout

    def estimate(self, job: str, *, files: Mapping[str, str] | None = None, **options: Any) -> dict[str, Any]:
        """What `oomcast estimate --json` prints. `files` are the texts of configurations by name."""
        answer: dict[str, Any] = json.loads(self.ask("estimate", job, files=files, **options))
        return answer

    def ask(self, kind: str, job: str | None = None, *, files: Mapping[str, str] | None = None, **options: Any) -> str:
        """The answer's text: JSON, or the page of a `report`. Raises BadInput where the service refuses the question.
        Only a `replay` has no job.

        While the service is restarted, it is asked again until the time is over: questions are kept.
        """
        named = {} if job is None else {"job": job}
        body = json.dumps({**named, **({"files": dict(files)} if files else {}), **options}).encode()
        deadline = time.monotonic() + self._timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TookTooLong(f"the service did not answer within {self._timeout:g} seconds.")
            try:
                status, text = self._send(f"/{kind}?wait={min(_WAIT, max(left, 0)):.0f}", body)
            except OSError as error:
                if time.monotonic() + _AGAIN > deadline:
                    raise OomcastError(f"the service at {self._address} cannot be reached: {error}.") from None
                time.sleep(_AGAIN)
                continue
            if status == 200:
                return text
            if status == 503:
                time.sleep(_AGAIN)
            elif status != 202:
                raise _error(status, text)

    def get(self, path: str) -> str:
        """Of what only reads: /models, /devices, /health, /metrics, /questions/ID."""
        try:
            status, text = self._send(path, None)
        except OSError as error:
            raise OomcastError(f"the service at {self._address} cannot be reached: {error}.") from None
        if status >= 400:
            raise _error(status, text)
        return text

    def _send(self, path: str, body: bytes | None) -> tuple[int, str]:
        request = urllib.request.Request(f"{self._address}{path}", data=body)
        if body is not None:
            request.add_header("Content-Type", "application/json")
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=_WAIT + 30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(errors="replace")


def _error(status: int, text: str) -> OomcastError:
    try:
        sentence = str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        sentence = f"the service answered with the status {status}."
    return BadInput(sentence) if status in (400, 401, 403, 413, 415, 421) else OomcastError(sentence)
