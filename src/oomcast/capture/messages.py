"""What goes between oomcast and its capture process: a line of JSON each way, after an answer's line the Trace's bytes.

Both carry the request's id. An answer with another id is never taken for the one that is waited for.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from ..errors import OomcastError
from ..spec import Spec

__all__ = [
    "Answer",
    "Ended",
    "Order",
    "ProcessEnded",
    "Request",
    "TimeLimit",
    "answer_length",
    "checked",
    "new_id",
    "write_all",
]


def new_id() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True)
class Request:
    """The whole question; its environment is named, as the caller knows it."""

    spec: Spec
    id: str = field(default_factory=new_id)
    folder: str | None = None
    """The caller's current one, which paths start from."""
    variables: Mapping[str, str] | None = None
    """The caller's environment, for a script, which may read it."""

    @classmethod
    def of(cls, spec: Spec) -> Request:
        """From here and now."""
        folder = None
        with contextlib.suppress(OSError):  # the folder may have been deleted
            folder = os.getcwd()
        return cls(spec, folder=folder, variables=None if spec.script is None else dict(os.environ))

    def as_plain(self) -> dict[str, Any]:
        return {"id": self.id, "folder": self.folder, "variables": self.variables, "spec": self.spec.as_dict()}

    def to_bytes(self) -> bytes:
        return json.dumps(self.as_plain()).encode() + b"\n"

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Request:
        """From the JSON of the line. Raises BadInput, for a job file may be gone meanwhile."""
        return cls(Spec.from_dict(plain["spec"]), plain["id"], plain["folder"], plain["variables"])


@dataclass(frozen=True)
class Order:
    """What a process that starts anew for one request is told: the request, and where to work."""

    desk: Mapping[str, Any]
    log: str
    """A file for what the job prints."""
    begun: str
    """A file to make when the framework is loaded: from then on the job's time counts."""
    request: Mapping[str, Any] | None
    pickled: str | None
    """The file with the request, where its job is an object."""
    folder: str | None
    path: list[str] | None
    """Where the caller looks for modules, such as those of the object's classes."""

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


class Ended(NamedTuple):
    """How a job's process ended that did not answer."""

    signal: int = 0
    exit_code: int = 0
    log: str = ""
    """The last lines that it printed."""
    too_long: bool = False
    """It was ended at its time limit."""


@dataclass(frozen=True)
class Answer:
    """Either a Trace in bytes, or an error by name, or how the job's process ended without either."""

    payload: bytes = b""
    error: str | None = None
    message: str = ""
    traceback: str = ""
    exit_code: int = 0
    ended: Ended | None = None
    id: str = ""
    """Of the request."""

    @classmethod
    def of_error(cls, error: OomcastError) -> Answer:
        lines = getattr(error, "traceback", "")
        return cls(error=type(error).__name__, message=str(error), traceback=lines, exit_code=error.exit_code)

    def to(self, request_id: str) -> Answer:
        return replace(self, id=request_id)

    def to_bytes(self) -> bytes:
        header = {
            "id": self.id,
            "bytes": len(self.payload),
            "error": self.error,
            "message": self.message,
            "traceback": self.traceback,
            "exit_code": self.exit_code,
            "ended": self.ended,
        }
        return json.dumps(header).encode() + b"\n" + self.payload

    @classmethod
    def from_bytes(cls, data: bytes) -> Answer | None:
        """None for anything but one whole answer."""
        line, newline, payload = data.partition(b"\n")
        try:
            header = json.loads(line)
            if not newline or len(payload) != header.pop("bytes"):
                return None
            ended = header.pop("ended")
            return cls(payload=payload, ended=Ended(*ended) if ended else None, **header)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def answer_length(start: bytes) -> int | None:
    """How long an answer is that begins so; None while its first line is not complete. Raises ValueError."""
    line, newline, _ = start.partition(b"\n")
    if not newline:
        return None
    try:
        return len(line) + 1 + int(json.loads(line)["bytes"])
    except (KeyError, TypeError) as error:
        raise ValueError("not an answer") from error


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class TimeLimit(Exception):
    """The capture took too long and was ended."""


class ProcessEnded(Exception):
    """The capture process died without an answer."""

    def __init__(self, how: Ended) -> None:
        super().__init__(how)
        self.signal = how.signal
        self.exit_code = how.exit_code
        self.log = how.log

    def last_words(self) -> str:
        """The last line that says something; C++ prints its reason before it aborts."""
        lines = [line.strip() for line in self.log.splitlines() if line.strip()]
        telling = [line for line in lines if "rror" in line or "what()" in line]
        return (telling or lines or [""])[-1][:300]


def checked(answer: Answer) -> Answer:
    """The answer, if it is one. Raises TimeLimit or ProcessEnded where the job's process ended without."""
    if answer.ended is None:
        return answer
    if answer.ended.too_long:
        raise TimeLimit
    raise ProcessEnded(answer.ended)
