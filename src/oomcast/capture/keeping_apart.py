"""Python's file functions led to an `Overlay` while a job runs, and what gets past them refused."""

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import io
import os
import pathlib
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from ..files import cache_folder
from .landlock import change_files_only_in
from .overlay import REAL, Overlay, library_caches

__all__ = ["current_overlay", "keep_apart", "what_was_written"]

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FLAGS_OF_MODES = {
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}
_AUDITED = {
    "open": 1,
    "os.remove": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.mkdir": 1,
    "os.truncate": 1,
    "os.link": 2,
    "os.symlink": 2,
    "os.chmod": 1,
    "os.chown": 1,
    "os.utime": 1,
    "os.setxattr": 1,
    "os.removexattr": 1,
    "sqlite3.connect": 1,
}
"""Events of Python that change files → how many of their first arguments are paths."""
_current: list[Overlay] = []
_SAYS = "this way of changing files is not followed"


def current_overlay() -> Overlay | None:
    """The one that this process writes to."""
    return _current[-1] if _current else None


def what_was_written() -> str | None:
    """A sentence about what the job wrote; None if it wrote nothing."""
    overlay = current_overlay()
    if overlay is None or not overlay.is_used():
        return None
    names = [os.path.basename(path) for path in overlay.written()]
    shown = f" ({', '.join(names[:3])}{' …' if len(names) > 3 else ''})" if names else ""
    return f"what the job wrote{shown} was not kept: its files stay as they are"


@contextlib.contextmanager
def keep_apart(folder: str) -> Iterator[Overlay]:
    """Within, what this process writes lies in `folder`, which must be there. For a process that runs one job.

    Where the kernel can forbid it, this process and what it starts will never again change files elsewhere.
    """
    with contextlib.suppress(OSError):  # ours, which may not be there yet: what is kept in it is none of the job's
        cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    overlay = Overlay(folder, library_caches())
    before = tempfile.tempdir, os.environ.get("TMPDIR"), sys.dont_write_bytecode
    tempfile.tempdir = os.environ["TMPDIR"] = overlay.temporary
    sys.dont_write_bytecode = True  # Python writes it past all functions
    change_files_only_in((overlay.folder, *overlay.as_they_are))
    _current.append(overlay)
    sys.addaudithook(functools.partial(_refuse, overlay))
    try:
        with _replaced(overlay):
            yield overlay
    finally:
        _current.remove(overlay)
        tempfile.tempdir, sys.dont_write_bytecode = before[0], before[2]
        if before[1] is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before[1]


def _refuse(overlay: Overlay, event: str, arguments: tuple[Any, ...]) -> None:
    """The audit hook. Hooks stay for ever, so it does nothing once its overlay is gone."""
    paths = _AUDITED.get(event)
    if paths is None or overlay not in _current or overlay.is_aside:
        return
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITES):
        return
    with overlay.aside():
        for path in arguments[:paths]:
            if not isinstance(path, (str, bytes, os.PathLike)) or os.fsdecode(path) in ("", ":memory:"):
                continue
            logical = os.path.realpath(os.fsdecode(path))
            if not logical.startswith(overlay.folder + os.sep) and not overlay.passes(logical):
                raise PermissionError(errno.EACCES, _SAYS, os.fsdecode(path))


# -- the functions -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _replaced(overlay: Overlay) -> Iterator[None]:
    replacements = _functions(overlay)
    opening = _open(overlay)
    with contextlib.ExitStack() as contexts:

        def put(owner: Any, name: str, value: Any) -> None:
            contexts.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)

        put(builtins, "open", opening)
        put(io, "open", opening)
        for name, module in (("bltn_open", "tarfile"), ("_builtin_open", "bz2"), ("_builtin_open", "tokenize")):
            if module in sys.modules and hasattr(sys.modules[module], name):
                put(sys.modules[module], name, opening)
        for name, function in replacements.items():
            for supporting in (os.supports_dir_fd, os.supports_follow_symlinks, os.supports_fd):
                if getattr(REAL, name) in supporting:
                    supporting.add(function)
            put(os, name, function)
        put(shutil, "_use_fd_functions", False)  # it would walk down folders by descriptors, past the overlay
        accessor = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10 keeps copies of the functions there
        for name in () if accessor is None else (*replacements, "open"):
            if name in vars(accessor):
                put(accessor, name, staticmethod(opening if name == "open" else replacements[name]))
        yield


def _open(overlay: Overlay) -> Callable[..., Any]:
    real: Callable[..., Any] = io.open

    @functools.wraps(real)
    def open(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        told = options.get("opener") or (args[5] if len(args) > 5 else None)
        if overlay.is_aside or isinstance(file, int) or told is not None or not isinstance(mode, str):
            return real(file, mode, *args, **options)
        flags = next((flags for letter, flags in _FLAGS_OF_MODES.items() if letter in mode), 0)
        if "+" in mode:
            flags = flags & ~os.O_WRONLY | os.O_RDWR
        with overlay.aside():
            place = overlay.to_write(file, flags) if flags else overlay.to_read(file)
            # Opened by us, so that the file object has the name that the job gave.
            return real(file, mode, *args[:5], **options, opener=lambda _, wanted: REAL.open(place, wanted, 0o666))

    return open


def _functions(overlay: Overlay) -> dict[str, Callable[..., Any]]:
    """What stands in for the functions of `os` that take paths."""
    reading = {
        name: _reading(overlay, name) for name in ("stat", "access", "readlink", "statvfs", "getxattr", "listxattr")
    }
    changing = {
        name: _changing(overlay, name) for name in ("chmod", "chown", "utime", "truncate", "setxattr", "removexattr")
    }
    whole: dict[str, Callable[..., Any]] = {
        "mkdir": overlay.make_folder,
        "remove": overlay.remove,
        "unlink": overlay.remove,
        "rmdir": overlay.remove_folder,
        "rename": overlay.rename,
        "replace": overlay.rename,
        "link": overlay.link,
        "symlink": overlay.symbolic_link,
    }
    found = {
        **reading,
        **changing,
        **{name: _aside(overlay, name, function) for name, function in whole.items()},
        "lstat": _reading(overlay, "lstat"),
        "open": _open_descriptor(overlay),
        "listdir": _listing(overlay),
        "scandir": _scanning(overlay),
        "chdir": _entering(overlay),
        "getcwd": overlay.working_folder,
    }
    return {name: function for name, function in found.items() if hasattr(REAL, name)}


def _aside(overlay: Overlay, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    real = getattr(REAL, name)

    @functools.wraps(real)
    def replacement(*args: Any, **options: Any) -> Any:
        if overlay.is_aside:
            return real(*args, **options)
        with overlay.aside():
            return function(*args, **options)

    return replacement


def _reading(overlay: Overlay, name: str) -> Callable[..., Any]:
    real = getattr(REAL, name)
    follows = name not in ("lstat", "readlink")

    @functools.wraps(real)
    def replacement(path: Any, *args: Any, **options: Any) -> Any:
        if overlay.is_aside or isinstance(path, int):
            return real(path, *args, **options)
        with overlay.aside():
            follow = follows and options.get("follow_symlinks", True)
            place = overlay.to_read(path, options.get("dir_fd"), follow)
            with _named(path):
                return real(place, *args, **options)

    return replacement


def _changing(overlay: Overlay, name: str) -> Callable[..., Any]:
    """Of a file's content or properties: it is copied first. Properties of folders of before stay as they are."""
    real = getattr(REAL, name, None)

    def replacement(path: Any, *args: Any, **options: Any) -> Any:
        assert real is not None
        if overlay.is_aside or isinstance(path, int):
            return real(path, *args, **options)
        with overlay.aside(), _named(path):
            follow = options.get("follow_symlinks", True)
            logical = overlay.logical(path, options.get("dir_fd"), follow)
            place = overlay.located(logical)
            if not overlay.passes(logical) and place == logical:
                if stat.S_ISDIR(REAL.stat(place).st_mode):
                    return None
                place = overlay.to_write(path, os.O_RDWR, options.get("dir_fd"), follow)
            return real(place, *args, **{key: value for key, value in options.items() if key != "dir_fd"})

    return replacement


def _open_descriptor(overlay: Overlay) -> Callable[..., Any]:
    @functools.wraps(REAL.open)
    def open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if overlay.is_aside:
            return int(REAL.open(path, flags, mode, dir_fd=dir_fd))
        with overlay.aside(), _named(path):
            if getattr(os, "O_TMPFILE", 0) and flags & os.O_TMPFILE == os.O_TMPFILE:
                return int(REAL.open(overlay.temporary, flags, mode))
            writes = flags & _WRITES
            place = overlay.to_write(path, flags, dir_fd) if writes else overlay.to_read(path, dir_fd)
            return int(REAL.open(place, flags, mode, dir_fd=dir_fd))

    return open


def _listing(overlay: Overlay) -> Callable[..., Any]:
    @functools.wraps(REAL.listdir)
    def listdir(path: Any = ".") -> Any:
        if overlay.is_aside or isinstance(path, int) or not overlay.is_used():
            return REAL.listdir(path)
        with overlay.aside(), _named(path):
            logical = overlay.logical(path if path is not None else ".")
            if not os.path.isdir(overlay.located(logical)):
                return REAL.listdir(overlay.located(logical))
            names = overlay.names_in(logical)
            return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    return listdir


class _Entries:
    """What `os.scandir` returns: an iterator that can be closed."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def _scanning(overlay: Overlay) -> Callable[..., Any]:
    @functools.wraps(REAL.scandir)
    def scandir(path: Any = ".") -> Any:
        if overlay.is_aside or isinstance(path, (int, bytes)) or not overlay.is_used():
            return REAL.scandir(path)
        with overlay.aside(), _named(path):
            logical = overlay.logical(path if path is not None else ".")
            folders = (overlay.located(logical), logical)
            names = set(overlay.names_in(logical))
            entries: dict[str, Any] = {}
            for folder in folders if os.path.isdir(folders[0]) else folders[:1]:
                with (
                    # The first must be there; a folder that the job made has nothing of before beneath it.
                    contextlib.nullcontext() if folder == folders[0] else contextlib.suppress(OSError),
                    REAL.scandir(folder) as real,
                ):
                    for entry in real:
                        if entry.name in names:
                            entries.setdefault(entry.name, entry)
            return _Entries(list(entries.values()))

    return scandir


def _entering(overlay: Overlay) -> Callable[..., Any]:
    @functools.wraps(REAL.chdir)
    def chdir(path: Any) -> None:
        if overlay.is_aside or isinstance(path, int):
            REAL.chdir(path)
            return
        with overlay.aside(), _named(path):
            logical = overlay.logical(path)
            REAL.chdir(logical if overlay.shows(logical) else overlay.located(logical))

    return chdir


@contextlib.contextmanager
def _named(path: Any) -> Iterator[None]:
    """An error names the path that the job gave."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            error.filename = path
        raise
