"""A job's own writing, kept apart: the files it names stay as they are, and it reads what it has written.

As with the kernel's overlay file systems, what a job writes lies in a folder of its own, under the same path; a file
that it changes is copied there first; what it removes is remembered. Everything is on the disk, so that forks of the
job share it. The folder is thrown away when the job has ended.

- Python's functions (`open`, `os`, and what is built on them: `pathlib`, `shutil`, `tempfile`, `glob`, `gzip` …) are
  led there by `keep_apart`.
- What gets past them is refused: within Python by an audit hook, in C++ and Rust code and in other programs by the
  kernel, where it has Landlock (`landlock.py`). Elsewhere such code still reaches the user's files.
- Caches of libraries, `/dev` and `/proc` are written as they are.

Known limitation: what is not Python finds written files only under their real place, `Overlay.located`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..files import cache_folder

__all__ = ["REAL", "Overlay", "library_caches"]

REAL = SimpleNamespace(**{name: getattr(os, name) for name in dir(os) if callable(getattr(os, name))})
"""The functions of `os` as they were before any was replaced."""
_MOST_COPIED = 4 << 30
_MOST_LINKS = 40


def library_caches() -> tuple[str, ...]:
    """Folders of what can be made or fetched again, which libraries share between runs; those that are there."""
    home = Path.home()
    base = os.environ.get("XDG_CACHE_HOME") or home / ".cache"
    told = [
        os.environ.get(name) for name in ("HF_HOME", "HF_HUB_CACHE", "TORCH_HOME", "TRITON_CACHE_DIR", "KERAS_HOME")
    ]
    folders = [base, home / ".triton", home / ".keras", cache_folder(), *(name for name in told if name)]
    return tuple(os.path.realpath(folder) for folder in folders if os.path.isdir(folder))


class Overlay:
    """Where each path is to be read and written. A path is *logical* as the job knows it: absolute, links followed.

    Its methods are called within `aside`, so that what they do themselves goes where it says.
    """

    def __init__(self, folder: str, as_they_are: tuple[str, ...] = ()) -> None:
        self.folder = os.path.realpath(folder)
        self.temporary = os.path.join(self.folder, "tmp")
        """For the job's temporary files."""
        self.as_they_are = ("/dev", "/proc", self.temporary, *as_they_are)
        self._files = os.path.join(self.folder, "files")
        self._removed = os.path.join(self.folder, "removed")
        self._thread = threading.local()
        REAL.mkdir(self.temporary)

    # -- whether ---------------------------------------------------------------------------------------------------

    def is_used(self) -> bool:
        """Whether anything was written or removed so far, by this process or by a fork of it."""
        return _is_there(self._files)

    def written(self) -> tuple[str, ...]:
        """The files, as the job names them."""
        with self.aside():
            return tuple(
                os.path.join(folder, name)[len(self._files) :]
                for folder, _, names in os.walk(self._files)
                for name in sorted(names)
            )

    @property
    def is_aside(self) -> bool:
        return getattr(self._thread, "aside", False)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Within, this thread's calls go where they say."""
        before, self._thread.aside = self.is_aside, True
        try:
            yield
        finally:
            self._thread.aside = before

    def passes(self, logical: str) -> bool:
        """Whether it is written as it is: a cache, a device, a pipe."""
        if any(logical == folder or logical.startswith(folder + os.sep) for folder in self.as_they_are):
            return True
        try:
            mode = REAL.stat(logical).st_mode
        except OSError:
            return False
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))

    # -- where -----------------------------------------------------------------------------------------------------

    def logical(self, path: Any, dir_fd: int | None = None, follow: bool = True) -> str:
        """`follow`: whether a link is meant for what it points to, when it is the last part."""
        text = os.fsdecode(path)
        base = self.working_folder() if dir_fd is None else self._plain(REAL.readlink(f"/proc/self/fd/{dir_fd}"))
        done, links = "/", 0
        parts = self._plain(os.path.join(base, text)).split(os.sep)[::-1]
        while parts:
            part = parts.pop()
            if part in ("", "."):
                continue
            if part == "..":
                done = os.path.dirname(done)
                continue
            here = os.path.join(done, part)
            target = self._link(here) if follow or any(parts) else None
            if target is None:
                done = here
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), text)
            if os.path.isabs(target):
                done = "/"
            parts.extend(self._plain(target).split(os.sep)[::-1])
        return done

    def working_folder(self) -> str:
        return self._plain(REAL.getcwd())

    def located(self, logical: str) -> str:
        """Where a file or folder really lies; a path that does not exist for one that was removed."""
        top = self._files + logical
        return top if _is_there(top) or self._is_removed(logical) else logical

    def shows(self, logical: str) -> bool:
        """Whether something of before is there, and not removed."""
        return _is_there(logical) and not self._is_removed(logical)

    def to_read(self, path: Any, dir_fd: int | None = None, follow: bool = True) -> Any:
        """What to hand to a function that reads: `path` itself, if the job has not touched it."""
        if not self.is_used():
            return path
        logical = self.logical(path, dir_fd, follow)
        real = self.located(logical)
        return real if real != logical else self._as_given(path, logical)

    def to_write(self, path: Any, flags: int, dir_fd: int | None = None, follow: bool = True) -> Any:
        """What to hand to a function that opens a file with these flags to write to it; copies its content, if kept."""
        logical = self.logical(path, dir_fd, follow)
        if self.passes(logical):
            return self._as_given(path, logical)
        real = self.located(logical)
        exists = _is_there(real)
        if exists and flags & os.O_CREAT and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if not exists and not flags & os.O_CREAT:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if exists and os.path.isdir(real):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if real.startswith(self._files) and exists:
            return real
        if not REAL.access(real if exists else self.located(os.path.dirname(logical)), os.W_OK):
            self._demand_folder(logical, path)
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        top = self._place(logical, path)
        if exists and not flags & os.O_TRUNC:
            self._copy(logical, top)
        return top

    # -- changes ---------------------------------------------------------------------------------------------------

    def make_folder(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        logical = self.logical(path, dir_fd, follow=False)
        if self.passes(os.path.dirname(logical)) or self.passes(logical):
            REAL.mkdir(path, mode, dir_fd=dir_fd)
            return
        if _is_there(self.located(logical)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        REAL.mkdir(self._place(logical, path))

    def remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._remove(path, dir_fd, "remove")

    def remove_folder(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._remove(path, dir_fd, "rmdir")

    def _remove(self, path: Any, dir_fd: int | None, function: str) -> None:
        logical = self.logical(path, dir_fd, follow=False)
        if self.passes(logical):
            getattr(REAL, function)(path, dir_fd=dir_fd)
            return
        real = self.located(logical)
        is_folder = stat.S_ISDIR(_mode(real, path))
        if is_folder != (function == "rmdir"):
            number = errno.EISDIR if is_folder else errno.ENOTDIR
            raise OSError(number, os.strerror(number), path)
        if is_folder and self.names_in(logical):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        if real != logical:
            getattr(REAL, function)(real)
        if _is_there(logical):
            self._mark_removed(logical)

    def rename(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        old, new = self.logical(src, src_dir_fd, follow=False), self.logical(dst, dst_dir_fd, follow=False)
        if self.passes(old) and self.passes(new):
            REAL.rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            return
        mode = _mode(self.located(old), src)
        if stat.S_ISDIR(mode) and (_is_there(old) or self.passes(old) or self.passes(new)):
            # A folder with content of before: as the kernel's overlays, whoever asks is told to copy it.
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), src, None, dst)
        target = self.located(new)
        if stat.S_ISDIR(mode) and _is_there(target) and (not os.path.isdir(target) or self.names_in(new)):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), src, None, dst)
        if not stat.S_ISDIR(mode) and os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), src, None, dst)
        top = new if self.passes(new) else self._place(new, dst)
        if self.located(old) == old:
            self._copy(old, top)
            self._retire(old)
            return
        REAL.replace(self.located(old), top)
        if _is_there(old):
            self._mark_removed(old)

    def link(self, src: Any, dst: Any, **options: Any) -> None:
        """A copy: what is written through one name would else reach the other's file."""
        old = self.logical(src, options.get("src_dir_fd"))
        new = self.logical(dst, options.get("dst_dir_fd"), follow=False)
        if self.passes(new):
            REAL.link(src, dst, **options)
            return
        if _is_there(self.located(new)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), src, None, dst)
        self._copy(self.located(old), self._place(new, dst))

    def symbolic_link(
        self, src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None
    ) -> None:
        logical = self.logical(dst, dir_fd, follow=False)
        if self.passes(logical):
            REAL.symlink(src, dst, dir_fd=dir_fd)
            return
        if _is_there(self.located(logical)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), src, None, dst)
        REAL.symlink(src, self._place(logical, dst))

    def names_in(self, logical: str) -> list[str]:
        """What a folder holds, as the job sees it."""
        top = self._files + logical
        names = set(REAL.listdir(top)) if os.path.isdir(top) else set()
        if not self._is_removed(logical) and os.path.isdir(logical):
            names.update(name for name in REAL.listdir(logical) if not self._is_removed(os.path.join(logical, name)))
        return sorted(names)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _as_given(self, path: Any, logical: str) -> Any:
        """The job's own words, unless they lead into our folder, as when that is its current one."""
        text = os.fsdecode(path)
        return logical if (text if os.path.isabs(text) else REAL.getcwd()).startswith(self._files) else path

    def _plain(self, path: str) -> str:
        """The job may know the real place of what it wrote, from `os.scandir` or since it is its current folder."""
        if path == self._files or path.startswith(self._files + os.sep):
            return path[len(self._files) :] or os.sep
        return path

    def _link(self, logical: str) -> str | None:
        try:
            target: str = REAL.readlink(self.located(logical))
        except OSError:
            return None
        return target

    def _is_removed(self, logical: str) -> bool:
        if not _is_there(self._removed):
            return False
        path = self._removed
        for part in logical.split(os.sep)[1:]:
            path = os.path.join(path, part)
            try:
                if stat.S_ISREG(REAL.lstat(path).st_mode):
                    return True
            except OSError:
                return False
        return False

    def _retire(self, logical: str) -> None:
        """After a copy: what was copied is gone for the job."""
        if self.passes(logical):
            REAL.remove(logical)
        else:
            self._mark_removed(logical)

    def _mark_removed(self, logical: str) -> None:
        if self._is_removed(logical):
            return
        mark = self._removed + logical
        os.makedirs(os.path.dirname(mark), exist_ok=True)
        if os.path.isdir(mark):  # a folder all of whose files were removed before
            shutil.rmtree(mark)
        REAL.close(REAL.open(mark, os.O_CREAT | os.O_WRONLY))
        os.makedirs(self._files, exist_ok=True)

    def _demand_folder(self, logical: str, path: Any) -> None:
        if not os.path.isdir(self.located(os.path.dirname(logical))):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def _place(self, logical: str, path: Any) -> str:
        """Its place among the written files, with the folders above it; the last of them must be there."""
        self._demand_folder(logical, path)
        top = self._files + logical
        os.makedirs(os.path.dirname(top), exist_ok=True)
        return top

    def _copy(self, source: str, target: str) -> None:
        if REAL.stat(source).st_size > _MOST_COPIED:
            raise OSError(errno.EFBIG, "oomcast copies no file above 4 GiB for a job; see --write-files", source)
        shutil.copyfile(source, target)
        REAL.chmod(target, stat.S_IMODE(REAL.stat(source).st_mode) | stat.S_IWUSR)


def _is_there(path: str) -> bool:
    try:
        REAL.lstat(path)
    except OSError:
        return False
    return True


def _mode(real: str, path: Any) -> int:
    try:
        mode: int = REAL.lstat(real).st_mode
    except OSError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    return mode
