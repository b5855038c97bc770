"""A job with everything that decides its memory: sizes, optimizer, precision, the shape of its training loop."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, TypeVar

from ..errors import BadInput, UnknownName
from ._job import Job

__all__ = ["FRAMEWORKS", "OPTIMIZERS", "Precision", "Workload", "ZeroGrad", "parse_input_shape"]


class Precision(str, Enum):
    """`fp32` means torch's defaults on the target: TF32 convolutions and fp32 matmuls on Ampere and later."""

    FP32 = "fp32"
    TF32 = "tf32"
    AMP_FP16 = "amp-fp16"
    AMP_BF16 = "amp-bf16"
    BF16 = "bf16"


class ZeroGrad(str, Enum):
    """Where `optimizer.zero_grad()` stands in the step."""

    BEFORE_FORWARD = "before-forward"
    BEFORE_BACKWARD = "before-backward"
    AFTER_STEP = "after-step"


_BASES = ("sgd", "sgd-momentum", "adam", "adamw", "rmsprop", "adagrad", "adafactor")
_WITHOUT_FUSED = ("rmsprop", "adafactor")
OPTIMIZERS: tuple[str, ...] = (
    *_BASES,
    *(f"{base}-foreach" for base in _BASES),
    *(f"{base}-forloop" for base in _BASES),
    *(f"{base}-fused" for base in _BASES if base not in _WITHOUT_FUSED),
)
"""A plain name lets torch choose, as it does on CUDA (foreach); a suffix fixes the implementation."""

FRAMEWORKS: tuple[str, ...] = ("torch", "tensorflow", "jax", "mxnet", "onnx")
"""The frameworks a job can be written in; Keras jobs are TensorFlow's."""
_SPELLINGS = {"keras": "tensorflow", "tf": "tensorflow", "pytorch": "torch"}

_E = TypeVar("_E", bound=Enum)


@dataclass(frozen=True)
class Workload:
    """One training job as it will run. `None` leaves a choice to the job."""

    job: Job
    batch_size: int = 1
    input_shape: tuple[int, ...] | None = None
    seq_len: int | None = None
    optimizer: str | None = None
    precision: Precision = Precision.FP32
    channels_last: bool = False
    accumulation: int = 1
    """Micro-batches whose gradients are summed before the optimizer steps; each has `batch_size` samples."""
    checkpointing: bool | tuple[str, ...] = False
    """Recompute in backward instead of keeping activations: each repeated block, or the modules of these names
    (`layers.0`, or `layers.*` for each of a list)."""
    zero_grad: ZeroGrad = ZeroGrad.BEFORE_FORWARD
    set_to_none: bool = True
    steps: int = 3
    """Optimizer state appears in the first step, so the peak is often in the second or third."""
    framework: str | None = None
    """What the job is written in; None: what its `model()` returns says it."""

    def __post_init__(self) -> None:
        _at_least_one("batch size", self.batch_size)
        _at_least_one("gradient accumulation", self.accumulation)
        _at_least_one("number of steps", self.steps)
        if self.seq_len is not None:
            _at_least_one("sequence length", self.seq_len)
        if self.input_shape is not None:
            for extent in self.input_shape:
                _at_least_one("every extent of the input shape", extent)
        if self.optimizer is not None and self.optimizer not in OPTIMIZERS:
            raise UnknownName("optimizer", self.optimizer, OPTIMIZERS)
        if self.framework is not None and self.framework not in FRAMEWORKS:
            raise UnknownName("framework", self.framework, FRAMEWORKS)

    @classmethod
    def create(cls, job: Any, **options: Any) -> Workload:
        """From what a user writes: strings are read, unknown names are told with near matches."""
        options = {key: value for key, value in options.items() if value is not None}
        if "precision" in options:
            options["precision"] = _choice(Precision, "precision", options["precision"])
        if "zero_grad" in options:
            options["zero_grad"] = _choice(ZeroGrad, "place for zero_grad", options["zero_grad"])
        if "optimizer" in options:
            options["optimizer"] = str(options["optimizer"]).lower().replace("_", "-")
        if "framework" in options:
            named = str(options["framework"]).lower()
            options["framework"] = _SPELLINGS.get(named, named)
        if isinstance(options.get("input_shape"), str):
            options["input_shape"] = parse_input_shape(options["input_shape"])
        elif "input_shape" in options:
            options["input_shape"] = tuple(options["input_shape"])
        if "checkpointing" in options:
            options["checkpointing"] = _on_or_names(options["checkpointing"])
        return cls(job=Job.parse(job), **options)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON data, for traces and reports."""
        plain = {key: value for key, value in asdict(self).items() if key != "job"}
        if self.framework is None:
            del plain["framework"]  # as it was before there were others: calibrations and traces are compared by it
        plain = {key: value.value if isinstance(value, Enum) else value for key, value in plain.items()}
        return {"job": self.job.reference, **plain}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Workload:
        options = dict(plain)
        return cls.create(options.pop("job"), **options)


def parse_input_shape(text: str) -> tuple[int, ...]:
    """`3x224x224` or `3,224,224`: the shape of one sample, without the batch."""
    parts = re.split(r"[x×,]", text.strip().lower())
    if not all(re.fullmatch(r"[0-9]+", part.strip()) for part in parts):
        raise BadInput(f"cannot read {text!r} as an input shape; write it like 3x224x224, without the batch.")
    return tuple(int(part) for part in parts)


def _at_least_one(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(f"the {what} must be a whole number of at least 1, not {value!r}.")


def _on_or_names(given: Any) -> bool | tuple[str, ...]:
    if isinstance(given, bool):
        return given
    listed = tuple(given.split(",") if isinstance(given, str) else given if isinstance(given, Iterable) else (given,))
    if not all(isinstance(name, str) for name in listed):
        raise BadInput(f"checkpointing must be true, false, or names of modules like 'layers.0', not {given!r}.")
    names = tuple(name.strip() for name in listed)
    if "" in names:
        raise BadInput(f"checkpointing was given an empty name of a module in {given!r}; write them like layers.0.")
    return names or False


def _choice(kind: type[_E], what: str, value: Any) -> _E:
    if isinstance(value, kind):
        return value
    try:
        return kind(str(value).lower().replace("_", "-"))
    except ValueError:
        raise UnknownName(what, str(value), [member.value for member in kind]) from None
