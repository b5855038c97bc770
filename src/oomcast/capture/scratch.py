"""A folder for each job that runs, gone when the job has ended, even if nobody was left to remove it.

Whoever made a folder holds a lock on it. A process that was killed cannot clean up, but the lock goes with it, so the
next one removes what it left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows: what a killed process left there, nobody removes
    fcntl = None  # type: ignore[assignment]

from ..errors import CaptureFailed

__all__ = ["check_temporary_folder", "scratch_folder"]

_USUAL = ("/tmp", "/var/tmp", "/usr/tmp")

_YOUNG = 60.0
"""Seconds in which a folder is not taken for abandoned: its maker may be about to lock it."""


def check_temporary_folder() -> None:
    """Raises CaptureFailed where Python would put temporary files into the current folder, for want of a better one."""
    named = {os.path.abspath(os.environ[name]) for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)}
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError:
        folder = os.getcwd()
    if os.name == "posix" and folder == os.getcwd() and folder not in {*named, *_USUAL}:
        raise CaptureFailed(
            f"no folder for temporary files has room ({', '.join(sorted(named) or _USUAL[:2])}); "
            "free some space there, or name another folder with TMPDIR."
        )


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """An empty folder that only this user may read; it is removed, with all in it, at the end. Raises OSError."""
    parent = _parent()
    if parent != tempfile.gettempdir():
        _remove_abandoned(parent)
    folder = tempfile.mkdtemp(prefix="oomcast-", dir=parent)
    try:
        with _lock(folder):
            yield folder
    finally:
        _remove(folder)


def _parent() -> str:
    """The user's own folder for them; the common one, if somebody else was quicker to take its name."""
    temporary = tempfile.gettempdir()
    if os.name != "posix":
        return temporary  # there it is the user's own
    own = os.path.join(temporary, f"oomcast-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(own, 0o700)
    status = os.lstat(own)
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    return own if is_ours else temporary


@contextlib.contextmanager
def _lock(folder: str) -> Iterator[bool]:
    """Whether we have the lock of a folder; nobody else has it then."""
    if os.name != "posix":
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        is_ours = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another has it, or this file system has no locks
            is_ours = False
        yield is_ours
    finally:
        os.close(descriptor)


def _remove_abandoned(parent: str) -> None:
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime < _YOUNG:
                    continue
                with _lock(entry.path) as is_abandoned:
                    if is_abandoned:
                        _remove(entry.path)


def _remove(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.isdir(folder):  # the job has taken our right to change a folder of its own
        for place, _, _ in os.walk(folder):
            with contextlib.suppress(OSError):
                os.chmod(place, 0o700)
        shutil.rmtree(folder, ignore_errors=True)
