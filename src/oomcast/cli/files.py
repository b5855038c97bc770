"""Files that a command writes: a place that cannot be written is told before the work, not after it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..errors import BadInput
from ..files import write_atomically

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
    """Refuse what `check_targets` refuses, and a name that does not end in .svg or .png; None is no figure."""
    if file is not None:
        from ..report.figures import check_picture

        check_picture(str(file))
        check_targets([str(file)])


def write_figure(file: str | Path, svg: str) -> None:
    """As SVG or PNG, by the file's name."""
    from ..report.figures import as_picture

    write_target(str(file), as_picture(svg, str(file)))


def write_target(file: str, content: bytes) -> None:
    """Whole or not at all."""
    write_atomically(Path(file), content)
