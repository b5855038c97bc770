"""What a person names: a file with a model, a model of a library, a configuration file of a training framework, an
object, or a whole training script."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..errors import BadInput, UnknownName

__all__ = ["Job", "JobKind"]


class JobKind(str, Enum):
    FILE = "file"
    ZOO = "zoo"
    TIMM = "timm"
    TORCHVISION = "torchvision"
    HF = "hf"
    DIFFUSERS = "diffusers"
    """A diffusion model, by the name it has on the hub or by the `config.json` of its denoiser."""
    CONFIG = "config"
    """A configuration file of a training framework: axolotl's, torchtune's, DeepSpeed's, …"""
    TEMPLATE = "template"
    OBJECT = "object"
    SCRIPT = "script"


_CONFIGURATIONS = (".yml", ".yaml", ".sh")
_PREFIXES = {
    kind.value: kind
    for kind in (JobKind.ZOO, JobKind.TIMM, JobKind.TORCHVISION, JobKind.HF, JobKind.DIFFUSERS, JobKind.TEMPLATE)
}


@dataclass(frozen=True)
class Job:
    """Where the model, its batch, its loss and its optimizer come from. Nothing is loaded or run here."""

    kind: JobKind
    name: str
    """Path of the file, name within its library, path of an HF `config.json`, a template with its parameters
    (`vgg,depth=16`), the object's type, or the command line of a script."""
    target: Any = None
    """The object itself, for `JobKind.OBJECT`: anything with the job file's functions."""

    @property
    def reference(self) -> str:
        """As it is written on the command line."""
        is_file = self.kind in (JobKind.FILE, JobKind.CONFIG, JobKind.SCRIPT)
        return self.name if is_file else f"{self.kind.value}:{self.name}"

    @classmethod
    def parse(cls, given: Any) -> Job:
        """Read a name, a path, or take an object that has `model` and `batch`."""
        if isinstance(given, Job):
            return given
        if isinstance(given, os.PathLike):
            return cls._from_path(os.fspath(given))
        if isinstance(given, str):
            prefix, colon, name = given.partition(":")
            if colon and prefix.lower() in _PREFIXES:
                if not name:
                    raise BadInput(f"{given!r} names no model; write it like {prefix}:resnet50.")
                return cls(_PREFIXES[prefix.lower()], name)
            is_file = given.endswith((".py", ".onnx", *_CONFIGURATIONS)) or os.path.isfile(given)
            if is_file or "/" in given or "\\" in given:
                return cls._from_path(given)
            if colon and len(prefix) > 1:
                raise UnknownName(
                    "kind of job", prefix, _PREFIXES, "Write zoo:, timm:, torchvision:, hf:, diffusers: or template:."
                )
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
    def _from_path(cls, given: str) -> Job:
        from pathlib import Path  # here, since a command's help needs none of it

        path = Path(given)
        if not os.path.exists(path):  # False for a name that no file can have, which Path raises for
            raise BadInput(f"there is no job file {str(path)!r}.")
        if os.path.isdir(path):
            raise BadInput(f"{str(path)!r} is a folder; give the Python file with model() and batch().")
        if path.suffix == ".json":
            from .configs import library_of_configuration  # here, since few jobs are configurations

            kinds = {"transformers": JobKind.HF, "diffusers": JobKind.DIFFUSERS, None: JobKind.CONFIG}
            return cls(kinds[library_of_configuration(str(path))], str(path))
        if path.suffix in _CONFIGURATIONS:
            return cls(JobKind.CONFIG, str(path))
        if path.suffix not in (".py", ".onnx"):
            raise BadInput(
                f"{str(path)!r} is not a Python file, an ONNX model or a configuration; a job file ends in .py or "
                ".onnx, a configuration in .yml, .yaml, .json or .sh."
            )
        return cls(JobKind.FILE, str(path))
