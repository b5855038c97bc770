"""What a person names: a file with a model, a model of the zoo, of timm, torchvision or transformers, or an object."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from ..errors import BadInput, UnknownName

__all__ = ["Job", "JobKind"]


class JobKind(str, Enum):
    FILE = "file"
    ZOO = "zoo"
    TIMM = "timm"
    TORCHVISION = "torchvision"
    HF = "hf"
    OBJECT = "object"


_PREFIXES = {kind.value: kind for kind in (JobKind.ZOO, JobKind.TIMM, JobKind.TORCHVISION, JobKind.HF)}


@dataclass(frozen=True)
class Job:
    """Where the model, its batch, its loss and its optimizer come from. Nothing is loaded or run here."""

    kind: JobKind
    name: str
    """Path of the file, name within its library, path of an HF `config.json`, or the object's type."""
    target: Any = None
    """The object itself, for `JobKind.OBJECT`: anything with the job file's functions."""

    @property
    def reference(self) -> str:
        """As it is written on the command line."""
        return self.name if self.kind is JobKind.FILE else f"{self.kind.value}:{self.name}"

    @classmethod
    def parse(cls, given: Any) -> Job:
        """Read a name, a path, or take an object that has `model` and `batch`."""
        if isinstance(given, Job):
            return given
        if isinstance(given, Path):
            return cls._from_path(given)
        if isinstance(given, str):
            prefix, colon, name = given.partition(":")
            if colon and prefix.lower() in _PREFIXES:
                if not name:
                    raise BadInput(f"{given!r} names no model; write it like {prefix}:resnet50.")
                return cls(_PREFIXES[prefix.lower()], name)
            if given.endswith(".py") or "/" in given or "\\" in given or Path(given).is_file():
                return cls._from_path(Path(given))
            if colon and len(prefix) > 1:
                raise UnknownName("kind of job", prefix, _PREFIXES, "Write zoo:, timm:, torchvision: or hf:.")
            raise BadInput(
                f"cannot read {given!r} as a job; give a file (job.py) or a name with its library, "
                f"like zoo:{given} or timm:{given}."
            )
        if callable(getattr(given, "model", None)) and callable(getattr(given, "batch", None)):
            return cls(JobKind.OBJECT, getattr(given, "__name__", type(given).__name__), given)
        raise BadInput(
            f"a job object needs the functions model() and batch(batch_size); {type(given).__name__} lacks them."
        )

    @classmethod
    def _from_path(cls, path: Path) -> Job:
        if not path.exists():
            raise BadInput(f"there is no job file {str(path)!r}.")
        if path.is_dir():
            raise BadInput(f"{str(path)!r} is a folder; give the Python file with model() and batch().")
        if path.suffix == ".json":
            return cls(JobKind.HF, str(path))
        if path.suffix not in (".py", ".onnx"):
            raise BadInput(f"{str(path)!r} is not a Python file or an ONNX model; a job file ends in .py or .onnx.")
        return cls(JobKind.FILE, str(path))
