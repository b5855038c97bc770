"""What goes between oomcast and its capture process: one line of JSON each way, then the Trace's bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, BinaryIO

from ..workload import Workload

__all__ = ["Answer", "Request"]


@dataclass(frozen=True)
class Request:
    workload: Workload
    gpu: str

    def write(self, stream: BinaryIO) -> None:
        plain = {"workload": self.workload.as_dict(), "gpu": self.gpu}
        stream.write(json.dumps(plain).encode() + b"\n")
        stream.flush()

    @classmethod
    def read(cls, stream: BinaryIO) -> Request | None:
        line = stream.readline()
        if not line:
            return None
        plain: dict[str, Any] = json.loads(line)
        return cls(Workload.from_dict(plain["workload"]), plain["gpu"])


@dataclass(frozen=True)
class Answer:
    """Either a Trace in bytes or an error by name. `ended` is set where the process died before it could answer."""

    payload: bytes = b""
    error: str | None = None
    message: str = ""
    traceback: str = ""
    exit_code: int = 0
    ended: tuple[int, int] | None = None
    """Signal and exit code."""
    log: str = ""
    """The last lines that the process printed."""

    def write(self, stream: BinaryIO) -> None:
        header = {
            "bytes": len(self.payload),
            "error": self.error,
            "message": self.message,
            "traceback": self.traceback,
            "exit_code": self.exit_code,
            "ended": self.ended,
            "log": self.log,
        }
        stream.write(json.dumps(header).encode() + b"\n" + self.payload)
        stream.flush()

    @classmethod
    def from_bytes(cls, data: bytes) -> Answer | None:
        """None while the message is not complete."""
        line, newline, payload = data.partition(b"\n")
        if not newline:
            return None
        header = json.loads(line)
        if len(payload) < header.pop("bytes"):
            return None
        ended = header.pop("ended")
        return cls(payload=payload, ended=tuple(ended) if ended else None, **header)
