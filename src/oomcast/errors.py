"""Every failure that oomcast reports on purpose, each with the exit code of the command line.

    OomcastError            1   oomcast could not answer
      CaptureFailed         1   … because the job did not run on the virtual GPU, though it may be fine
      BadInput              2   what was given cannot be used; the text says what to change
        UnknownName         2   … no device, model, option … has this name; `near` has those that were meant
        JobFailed           2   … the job's own code raised or refused; `traceback` has its lines
          TookTooLong       2   … or did not return within the time limit
        UnreadableFile      2   … a file is damaged, hostile, or of another version

Exit codes of answers are 0 (the job fits) and 3 (it does not). The text of an error is one sentence for the user:

>>> import oomcast
>>> from oomcast.errors import OomcastError, UnknownName
>>> try:
...     oomcast.estimate("zoo:resnet50", batch_size=64, device="a10o")
... except UnknownName as error:
...     print("Did you mean", error.near)
... except OomcastError as error:
...     print("No estimate:", error)
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["BadInput", "CaptureFailed", "JobFailed", "OomcastError", "TookTooLong", "UnknownName", "UnreadableFile"]


_LONGEST_TEXT, _LONGEST_NAME = 1200, 200
_FEW_NAMES = 50


class OomcastError(Exception):
    """Base of all errors that oomcast raises on purpose. Its text is one sentence for the user.

    What a hostile file or a mistyped option brings into it is shortened, so that it stays one that can be read.
    """

    exit_code = 1

    def __init__(self, text: str = "") -> None:
        super().__init__(_readable(text))


class BadInput(OomcastError):
    """What the user gave cannot be used; the text says what to change."""

    exit_code = 2


class UnknownName(BadInput):
    """A device, optimizer, precision or model name that does not exist; near matches are shown, else all of a few."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        name = _readable(name, _LONGEST_NAME)
        self.kind = kind
        self.name = name
        known = list(known)
        self.near = near_matches(name, known)
        if not hint and not self.near and 0 < len(known) <= _FEW_NAMES:
            hint = f"There are {', '.join(known)}."
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


def _readable(text: str, most: int = _LONGEST_TEXT) -> str:
    """The beginning and the end of a text that is too long: the end says what to do."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def near_matches(name: str, known: Iterable[str], limit: int = 5) -> tuple[str, ...]:
    """The known names closest to a mistyped one, best first."""
    import difflib  # here, as most runs meet no mistyped name

    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=limit, cutoff=0.5)
    if len(name) >= 3:
        close += [candidate for candidate in by_lower if name.lower() in candidate and candidate not in close]
    return tuple(by_lower[candidate] for candidate in close[:limit])


def _or_list(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]
