"""Standard output and error as people really connect them: closed, full, ASCII only, or with a reader that has gone.

A command prints as if none of this could happen. `CarefulOutput` stands in for the two streams meanwhile: what cannot
be written is dropped, so that the exit code is still the answer's, and characters that the stream cannot encode are
spelt in ASCII. `harmless` shows the control characters of names, files and messages instead of sending them.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
from typing import Any, TextIO, cast

__all__ = ["CarefulOutput", "harmless"]

# Control characters but tab and line feed, and those that turn the direction of the text around.
_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_IN_ASCII = {"×": "x", "–": "-", "—": "-", "…": "...", "→": "->", "±": "+-", "≥": ">=", "≤": "<=", "·": "*"}
_ERROR_HANDLER = "oomcast.in_ascii"


def harmless(text: str) -> str:
    """The text with its control characters written out, so that a name cannot steer the terminal."""
    return re.sub(_CONTROLS, lambda match: _written_out(match.group()), text)


def _written_out(characters: str) -> str:
    return characters.encode("unicode_escape").decode("ascii")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """For `codecs`: what stands for the characters that a stream's encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_IN_ASCII.get(character) or _written_out(character) for character in lacking), error.end


class _CarefulStream:
    """A stream that takes everything; the first failure is kept, and nothing is written after it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def write(self, text: str) -> int:
        if self.failure is None:
            try:
                self._stream.write(text)
            except OSError as error:
                self._give_up(error)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self.failure is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.failure = error
        try:
            # What the stream still holds goes nowhere: Python's own flush at the end would fail as well.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        except (OSError, ValueError):
            pass  # a stream in memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class CarefulOutput:
    """`with CarefulOutput() as output`: sys.stdout and sys.stderr are safe to print to until the block ends."""

    def __enter__(self) -> CarefulOutput:
        _open_missing_descriptors()
        codecs.register_error(_ERROR_HANDLER, _in_ascii)
        self._before = sys.stdout, sys.stderr
        self._handlers = [_set_error_handler(stream, _ERROR_HANDLER) for stream in self._before]
        self._out = _CarefulStream(_present(sys.stdout))
        sys.stdout = cast(TextIO, self._out)
        sys.stderr = cast(TextIO, _CarefulStream(_present(sys.stderr)))
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, handler in zip(self._before, self._handlers, strict=True):
            if handler is not None:
                _set_error_handler(stream, handler)
        sys.stdout, sys.stderr = self._before

    def loss(self) -> str:
        """Why the output was lost, as on a full disk; "" where it was not, or where its reader has gone by choice."""
        self._out.flush()
        failure = self._out.failure
        return "" if failure is None or isinstance(failure, BrokenPipeError) else failure.strerror or str(failure)


def _open_missing_descriptors() -> None:
    """A file opened where a standard stream is closed would get that stream's number, and its output."""
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)


def _present(stream: TextIO | None) -> TextIO:
    """Python has no stream where the descriptor is closed (`>&-`)."""
    return open(os.devnull, "w", encoding="utf-8") if stream is None else stream


def _set_error_handler(stream: Any, handler: str) -> str | None:
    """The handler that it had; None where the stream cannot be told."""
    before = getattr(stream, "errors", None)
    if before is None or not hasattr(stream, "reconfigure"):
        return None
    stream.reconfigure(errors=handler)
    return str(before)
