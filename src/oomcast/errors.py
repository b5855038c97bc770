"""The error tree: every failure a user can meet, each with the exit code of the command line.

Exit codes: 0 the job fits, 3 it does not, 2 the input is at fault, 1 oomcast could not answer.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["BadInput", "CaptureFailed", "JobFailed", "OomcastError", "TookTooLong", "UnknownName", "UnreadableFile"]


class OomcastError(Exception):
    """Base of all errors that oomcast raises on purpose. Its text is one sentence for the user."""

    exit_code = 1


class BadInput(OomcastError):
    """What the user gave cannot be used; the text says what to change."""

    exit_code = 2


class UnknownName(BadInput):
    """A device, optimizer, precision or model name that does not exist; near matches are shown."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind = kind
        self.name = name
        self.near = near_matches(name, known)
        suggestion = f"; did you mean {_or_list(self.near)}?" if self.near else "."
        super().__init__(f"unknown {kind} {name!r}{suggestion}{' ' + hint if hint else ''}")


class JobFailed(BadInput):
    """The user's own code raised, rejected its input or did not return. `traceback` holds the user's lines only."""

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class TookTooLong(JobFailed):
    """The user's code did not return within the time limit: that tells of this machine more than of the job."""


class UnreadableFile(BadInput):
    """A file that is not what it should be: corrupt, truncated, of another version, or hostile."""


class CaptureFailed(OomcastError):
    """The job is fine as far as we know, but oomcast could not run it on its virtual GPU."""

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


def near_matches(name: str, known: Iterable[str], limit: int = 5) -> tuple[str, ...]:
    """The known names closest to a mistyped one, best first."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=limit, cutoff=0.5)
    if len(name) >= 3:
        found += [candidate for candidate in by_lower if name.lower() in candidate and candidate not in found]
    return tuple(by_lower[candidate] for candidate in found[:limit])


def _or_list(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]
