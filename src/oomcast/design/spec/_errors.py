"""What is wrong with a specification's text, and where."""

from __future__ import annotations

from dataclasses import dataclass

from oomcast.errors import UnknownName, UnreadableFile

__all__ = ["Place", "SpecificationError", "UnknownInSpecification"]


@dataclass(frozen=True)
class Place:
    """A place in a specification's text; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class SpecificationError(UnreadableFile):
    """A specification that does not follow the language. Its text starts with the place."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(f"{place}: {message}")
        self.place = place


class UnknownInSpecification(UnknownName):
    """A name that a specification uses and nobody defined."""

    def __init__(self, place: Place, kind: str, name: str, known: list[str]) -> None:
        super().__init__(f"{kind} at {place},", name, known)
        self.place = place
