"""Files that a command writes: a place that cannot be written is told before the work, not after it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..errors import BadInput
from ..report._picture import as_picture, check_picture

__all__ = ["check_figure", "check_targets", "write_figure", "write_target"]


def check_targets(files: Iterable[str]) -> None:
    """Refuse folders, folders that do not exist, and one file named twice."""
    seen: set[Path] = set()
    for file in files:
        path = Path(file)
        if path.is_dir():
            raise BadInput(f"cannot write {file}: it is a folder; name a file in it.")
        if not path.parent.is_dir():
            raise BadInput(f"cannot write {file}: there is no folder {path.parent}.")
        if path.resolve() in seen:
            raise BadInput(f"{file} is named for two outputs; give each its own file.")
        seen.add(path.resolve())


def check_figure(file: str | Path | None) -> None:
    """The same for a figure, whose form its name tells; None is one that was not asked for."""
    if file is not None:
        check_picture(str(file))
        check_targets([str(file)])


def write_figure(file: str | Path, svg: str) -> None:
    write_target(str(file), as_picture(svg, str(file)))


def write_target(file: str, content: bytes) -> None:
    try:
        Path(file).write_bytes(content)
    except OSError as error:
        raise BadInput(f"cannot write {file}: {error.strerror or error}.") from None
