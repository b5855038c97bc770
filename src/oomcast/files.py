"""Files written whole or not at all, packed ones read within bounds, and the folder for what can be made again.

A reader sees the old content of a file or the new one, never a part of it: the new content goes to a temporary file in
the same folder, which then takes the old one's place in a single step. A write that fails leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .errors import BadInput, UnreadableFile

__all__ = ["atomic_path", "cache_folder", "unpack", "write_atomically"]

_PIECE = 1 << 20


def unpack(data: bytes, most: int, name: str, what: str) -> bytes:
    """The content of a gzipped file, no more of it than `most` bytes; `what` it should be is for the sentences."""
    import gzip  # here, since a command's help needs none of it
    import zlib

    pieces = []
    size = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            # Asked for all at once, Python would first reserve memory for the most that it may be.
            while piece := packed.read(_PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    raise UnreadableFile(f"{name} unpacks to more than {what} can be.")
        return b"".join(pieces)
    except EOFError as error:
        raise UnreadableFile(f"{name} is truncated.") from error
    except (OSError, zlib.error) as error:
        raise UnreadableFile(f"{name} is not {what}, or damaged.") from error
    except MemoryError as error:
        raise UnreadableFile(f"{name} unpacks to more than this machine has memory for.") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file's whole content; raises BadInput with the reason where that cannot be done."""
    with atomic_path(path) as part:
        part.write_bytes(content)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """The temporary file to write, for libraries that want a file's name; it becomes `path` when the block ends.

    >>> with atomic_path(Path("rows.parquet")) as part:
    ...     pyarrow.parquet.write_table(table, part)

    The disk has the content before the name changes, so that a crash of the machine leaves one of the two versions.
    """
    part: Path | None = None
    try:
        # A link stays a link: what it points to is replaced.
        place = Path(os.path.realpath(path))
        if place.exists() and not place.is_file():
            yield place  # a pipe or a device, such as /dev/stdout, is written as it is: it has no old content to keep
            return
        handle, name = tempfile.mkstemp(prefix=f".{place.name[:100]}.", suffix=".part", dir=place.parent)
        os.close(handle)
        part = Path(name)
        yield part
        _synchronise(part)
        _take_usual_mode(part, place)
        os.replace(part, place)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror or error}.") from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)  # nothing is there where the replacement took place


def _synchronise(part: Path) -> None:
    with part.open("rb+") as stream:
        os.fsync(stream.fileno())


def _take_usual_mode(part: Path, path: Path) -> None:
    """mkstemp makes files that only their owner may read; the file gets the mode it had, or that of any new file."""
    try:
        mode = path.stat().st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    os.chmod(part, mode)


def cache_folder() -> Path:
    """`OOMCAST_CACHE_DIR`, else the user's cache folder."""
    given = os.environ.get("OOMCAST_CACHE_DIR")
    if given:
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "oomcast"
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "oomcast"
