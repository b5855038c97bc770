"""Files of what was fitted to real runs: readable JSON, written whole or not at all, never executed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..errors import BadInput, UnreadableFile

__all__ = ["FittedFile"]

Fitted = TypeVar("Fitted")
_LARGEST = 256 * 1024 * 1024


class FittedFile(NamedTuple):
    """One kind of such files."""

    kind: str
    """What the file says of itself."""
    schema: int
    command: str
    """Which command writes it."""
    what: str
    """`campaign`, for the sentences."""

    def write(self, content: Mapping[str, Any], target: Path) -> Path:
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            part.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
            os.replace(part, target)
        except OSError as error:
            raise BadInput(f"cannot write {target}: {error.strerror or error}.") from None
        return target

    def read(self, source: Path, make: Callable[[Mapping[str, Any]], Fitted]) -> Fitted:
        """`make` of the content; anything else is told with the file's name."""
        try:
            if source.stat().st_size > _LARGEST:
                raise UnreadableFile(f"{source} is too large to be a fitted {self.what}.")
            plain = json.loads(source.read_text(encoding="utf-8"))
        except OSError as error:
            raise UnreadableFile(f"{source} cannot be read: {error.strerror}.") from None
        except (ValueError, RecursionError):
            raise UnreadableFile(f"{source} is not a file of {self.command}.") from None
        if not isinstance(plain, dict) or plain.get("kind") != self.kind:
            raise UnreadableFile(f"{source} is not a file of {self.command}.")
        if plain.get("schema") != self.schema:
            raise UnreadableFile(
                f"{source} has schema {plain.get('schema')!r}, this oomcast reads {self.schema}; "
                f"fit the {self.what} again."
            )
        try:
            return make(plain)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, BadInput) as error:
            raise UnreadableFile(f"{source} is damaged ({error}); fit the {self.what} again.") from None
