"""Calibrations as files: readable JSON with a version, one for each GPU and environment, in the user's own folder."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..devices import Gpu, Stack, find_gpu
from ..errors import BadInput, OomcastError, UnknownName, UnreadableFile
from ._calibration import Calibration, MeasuredRun, calibration_name

__all__ = [
    "calibration_for",
    "calibration_path",
    "calibrations_folder",
    "kept_calibrations",
    "read_calibration",
    "remove_calibrations",
    "write_calibration",
]

SCHEMA = 1
_KIND = "oomcast calibration"
_LARGEST = 16 << 20
_MOST_BYTES = 1 << 50
_SUFFIX = ".json"


def calibrations_folder() -> Path:
    """In `OOMCAST_CONFIG`, else in the user's configuration folder."""
    given = os.environ.get("OOMCAST_CONFIG")
    if given:
        return Path(given) / "calibrations"
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        told = os.environ.get("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME")
        base = Path(told) if told else Path.home() / ".config"
    return base / "oomcast" / "calibrations"


def calibration_path(gpu: str, environment: str) -> Path:
    """Where the calibration of that pair is kept."""
    safe = re.sub(r"[^A-Za-z0-9.@_-]+", "-", calibration_name(gpu, environment))
    return calibrations_folder() / f"{safe}{_SUFFIX}"


def calibration_for(gpu: Gpu, stack: Stack, file: Path | None = None) -> Calibration | None:
    """The kept one, if there is; or the one in `file`, which must be of this GPU and environment."""
    if file is None:
        path = calibration_path(gpu.name, stack.name)
        if not path.exists():
            return None
    else:
        path = file
    found = read_calibration(path)
    if found.gpu != gpu.name:
        raise BadInput(
            f"the calibration {path} is of a {found.gpu}, not of a {gpu.name}; what it holds beside tensors differs, "
            f"so give --device {found.gpu} or calibrate a {gpu.name}."
        )
    if found.environment != stack.name:
        raise BadInput(
            f"the calibration {path} is of the environment {found.environment}, not {stack.name}; "
            f"give --environment {found.environment}, or calibrate {stack.name}."
        )
    return found


def read_calibration(path: Path) -> Calibration:
    """Raises UnreadableFile with a sentence that says what to do."""
    try:
        if path.stat().st_size > _LARGEST:
            raise UnreadableFile(f"{path} is larger than a calibration can be.")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(f"cannot read the calibration {path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "it is not JSON") from error
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        raise _damaged(path, f"it does not say that it is an {_KIND}")
    schema = content.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise UnreadableFile(
            f"the calibration {path} was written by a newer oomcast (version {schema} of its form, this one reads "
            f"{SCHEMA}); update oomcast, or go without it by --no-calibration."
        )
    try:
        if schema != SCHEMA:
            raise ValueError(f"its version {schema!r} is unknown")
        calibration = _from_json(content)
        find_gpu(calibration.gpu)
        return calibration
    except UnknownName as error:
        raise UnreadableFile(f"the calibration {path} is of a GPU that this oomcast does not know: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)) from error


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Whole or not at all: a reader never sees half of it, and a failure leaves what was there."""
    text = json.dumps(_as_json(calibration), indent=2, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise BadInput(f"cannot write the calibration to {path}: {error.strerror or error}.") from error


def kept_calibrations() -> tuple[tuple[Path, Calibration | OomcastError], ...]:
    """All in the user's folder, by name; for one that cannot be read, why."""
    found: list[tuple[Path, Calibration | OomcastError]] = []
    for path in sorted(calibrations_folder().glob(f"*{_SUFFIX}")):
        try:
            found.append((path, read_calibration(path)))
        except OomcastError as error:
            found.append((path, error))
    return tuple(found)


def remove_calibrations(name: str) -> tuple[Path, ...]:
    """Remove those of that name (`rtx-3090@torch-2.8-cu128`), environment or GPU; damaged ones too, by their file."""
    kept = kept_calibrations()
    wanted = name.strip().removesuffix(_SUFFIX)
    chosen = tuple(path for path, _ in kept if wanted in (path.stem, *path.stem.split("@")))
    if not chosen:
        raise UnknownName("calibration", name, [path.stem for path, _ in kept], "`oomcast calibrate --list` shows all.")
    for path in chosen:
        try:
            path.unlink()
        except OSError as error:
            raise BadInput(f"cannot remove {path}: {error.strerror or error}.") from error
    return chosen


def _damaged(path: Path, what: str) -> UnreadableFile:
    return UnreadableFile(
        f"the calibration {path} is damaged: {what}; remove the file and calibrate again, or go without it by "
        "--no-calibration."
    )


def _as_json(calibration: Calibration) -> dict[str, Any]:
    return {
        "kind": _KIND,
        "schema": SCHEMA,
        "gpu": calibration.gpu,
        "environment": calibration.environment,
        "runs": [asdict(run) for run in calibration.runs],
    }


def _from_json(content: Mapping[str, Any]) -> Calibration:
    listed = content["runs"]
    if not isinstance(listed, list) or not listed:
        raise ValueError("it lists no runs")
    return Calibration(
        gpu=_text(content, "gpu"),
        environment=_text(content, "environment"),
        runs=tuple(_run(entry) for entry in listed),
    )


def _run(entry: Any) -> MeasuredRun:
    if not isinstance(entry, dict):
        raise ValueError("a run is not an object")
    if not isinstance(entry["convolutions"], bool):
        raise ValueError("'convolutions' is not true or false")
    for key in ("workload", "versions"):
        if not isinstance(entry[key], dict):
            raise ValueError(f"{key!r} is not an object")
    run = MeasuredRun(
        source=_text(entry, "source"),
        device_total=_size(entry, "device_total", optional=True),
        reserved=_size(entry, "reserved", optional=True),
        allocated=_size(entry, "allocated", optional=True),
        simulated_reserved=_size(entry, "simulated_reserved") or 0,
        simulated_allocated=_size(entry, "simulated_allocated") or 0,
        convolutions=entry["convolutions"],
        workload=entry["workload"],
        date=_text(entry, "date"),
        versions=entry["versions"],
    )
    if run.device_total is None and run.reserved is None:
        raise ValueError("a run has no measured figure")
    return run


def _text(entry: Mapping[str, Any], key: str) -> str:
    if not isinstance(entry[key], str):
        raise ValueError(f"{key!r} is not a text")
    return str(entry[key])


def _size(entry: Mapping[str, Any], key: str, optional: bool = False) -> int | None:
    value = entry[key]
    if value is None and optional:
        return None
    if type(value) is not int or not 0 <= value < _MOST_BYTES:
        raise ValueError(f"{key!r} is not a number of bytes")
    return value
