"""Files of what was fitted to real runs: readable JSON with a version; nothing in them is ever executed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..errors import BadInput, UnreadableFile
from ..files import write_atomically

__all__ = ["FittedFile"]

Fitted = TypeVar("Fitted")
_LARGEST = 32 * 1024 * 1024
"""Bytes. Tens of thousands of runs stay below it; reading takes some ten times as much memory."""


class FittedFile(NamedTuple):
    """A kind of such files: how it is known, and what the sentences about it say."""

    kind: str
    """Written into the file, to know it by."""
    schema: int
    command: str
    """The command that writes it, like `oomcast campaign fit`."""
    what: str
    """What is in it, like `campaign`."""

    def write(self, content: Mapping[str, Any], target: Path) -> Path:
        write_atomically(target, json.dumps(content, indent=1, ensure_ascii=False).encode())
        return target

    def read(self, source: Path, make: Callable[[Mapping[str, Any]], Fitted]) -> Fitted:
        """What `make` makes of the content. A file that is damaged or of another kind is refused, with its name."""
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
            versions = plain.get("versions")
            writer = versions.get("oomcast") if isinstance(versions, dict) else None
            by = f" (written by oomcast {writer[:20]})" if isinstance(writer, str) else ""
            raise UnreadableFile(
                f"{source} has schema {plain.get('schema')!r}{by}, this oomcast reads {self.schema}; "
                f"fit the {self.what} again."
            )
        try:
            return make(plain)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError, BadInput) as error:
            raise UnreadableFile(f"{source} is damaged ({error}); fit the {self.what} again.") from None
