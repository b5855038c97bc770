"""The process that answers questions: one after the other, in an empty folder, and it ends with the server.

It speaks through its pipes: a length of four bytes, then JSON. Nothing else in it may write to them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from ..capture import limit_captures_at_once, remember_captures
from ..children import die_with_parent
from ..errors import OomcastError
from .answering import answer
from .questions import Limits, Question

__all__ = ["main", "read_message", "write_message"]

_KEPT_CAPTURES = 16
"""Traces: the sliders of one job and its report share theirs."""
_LARGEST = 1 << 30


def main() -> int:
    """Serve until the pipe is closed."""
    die_with_parent()
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="oomcast-serve-") as folder:
        os.chdir(folder)  # relative names find only what a question brought along
        limit_captures_at_once(1)  # how much is done at once is the server's to say
        remember_captures(_KEPT_CAPTURES)
        while (message := read_message(questions)) is not None:
            write_message(answers, _answered(message, Path(folder)))
        os.chdir("/")
    return 0


def _answered(message: dict[str, Any], folder: Path) -> dict[str, Any]:
    question, limits = Question.from_dict(message["question"]), Limits(**message["limits"])
    if question.files:
        remember_captures(_KEPT_CAPTURES)  # what was kept may be of files of the same names
    try:
        for name, text in question.files.items():
            (folder / name).write_text(text, encoding="utf-8", errors="replace")
        content = answer(question, limits)
        return {"state": "done", "media": content.media, "text": content.text}
    except OomcastError as error:
        return {"state": "refused" if error.exit_code == 2 else "failed", "error": str(error)}
    except (MemoryError, RecursionError, OverflowError, OSError) as error:
        return {"state": "failed", "error": f"this machine could not do it: {type(error).__name__}."}
    except Exception as error:  # a fault of ours must not take the next question with it
        sys.stderr.write(f'{{"event": "fault", "error": {json.dumps(repr(error)[:500])}}}\n')
        return {"state": "failed", "error": f"oomcast could not answer: {type(error).__name__}."}
    finally:
        if question.files:
            for name in question.files:
                with contextlib.suppress(OSError):
                    (folder / name).unlink()
            remember_captures(_KEPT_CAPTURES)


def write_message(pipe: BinaryIO, plain: dict[str, Any]) -> None:
    data = json.dumps(plain).encode()
    pipe.write(len(data).to_bytes(4, "big") + data)
    pipe.flush()


def read_message(pipe: BinaryIO) -> dict[str, Any] | None:
    """None where the other side has gone."""
    head = pipe.read(4)
    if len(head) < 4:
        return None
    length = int.from_bytes(head, "big")
    data = pipe.read(length) if length <= _LARGEST else b""
    if len(data) < length or length > _LARGEST:
        return None
    plain: dict[str, Any] = json.loads(data)
    return plain
