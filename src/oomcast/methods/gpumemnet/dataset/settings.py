"""What decides a data set: two builds with equal settings give equal files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from oomcast import __version__
from oomcast.devices import find_gpu
from oomcast.errors import BadInput, UnknownName
from oomcast.provenance import TRACE_ROOMS, source_digest
from oomcast.spec import OPTIMIZERS, Precision
from oomcast.units import GiB

from ....devices import stack_of
from .labelling import CPU, SIMULATOR
from .sampling import Stratum, strata

__all__ = ["LABELS", "RUNS", "Settings"]

RUNS = "runs"
LABELS = (SIMULATOR, RUNS)
_BEYOND = 1.25
"""Rows reach this much beyond the device's memory, so that some do not fit."""
_MOST_ON_CPU = 2 * GiB
_LABELLING = (*TRACE_ROOMS, "oomcast.estimation", "oomcast.methods.gpumemnet")
"""The packages that decide which networks are drawn and how they are labelled."""


@dataclass(frozen=True)
class Settings:
    rows: int
    device: str
    environment: str
    labels: str
    kinds: tuple[str, ...]
    architectures: tuple[str, ...]
    optimizer: str
    precision: str
    steps: int
    most_bytes: int
    """The most that a row is expected to hold."""
    even_peaks: bool
    """Whether the expected memory is spread evenly too, not only the features."""
    seed: int

    @classmethod
    def create(
        cls,
        rows: int,
        *,
        device: str = "a100-40gb",
        environment: str | None = None,
        labels: str = SIMULATOR,
        kinds: Iterable[str] = (),
        architectures: Iterable[str] = (),
        optimizer: str = "adam",
        precision: str = "fp32",
        steps: int = 2,
        most_bytes: int | None = None,
        even_peaks: bool = True,
        seed: int = 0,
    ) -> Settings:
        """From what a user writes; what was not said is filled in."""
        chosen = strata(kinds, architectures)
        for what, value in (("rows", rows), ("steps", steps), ("bytes", 1 if most_bytes is None else most_bytes)):
            if value < 1:
                raise BadInput(f"the number of {what} of a data set must be at least 1, not {value}.")
        if seed < 0:
            raise BadInput(f"the seed must be at least 0, not {seed}.")
        if labels not in LABELS:
            raise UnknownName("source of labels", labels, LABELS, "Labels come from the simulator or from runs.")
        if optimizer not in OPTIMIZERS:
            raise UnknownName("optimizer", optimizer, OPTIMIZERS)
        if precision not in {known.value for known in Precision}:
            raise UnknownName("precision", precision, [known.value for known in Precision])
        named, stack, limit = _place(device, environment, labels)
        return cls(
            rows=rows,
            device=named,
            environment=stack,
            labels=labels,
            kinds=tuple(dict.fromkeys(stratum.kind for stratum in chosen)),
            architectures=tuple(dict.fromkeys(stratum.architecture for stratum in chosen)),
            optimizer=optimizer,
            precision=precision,
            steps=steps,
            most_bytes=most_bytes or limit,
            even_peaks=even_peaks,
            seed=seed,
        )

    @property
    def strata(self) -> tuple[Stratum, ...]:
        return strata(self.kinds, self.architectures)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON data, with the versions that decide the labels too."""
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        return {**plain, "oomcast": __version__, "source_code": source_digest(*_LABELLING), "torch": _torch_version()}


def _place(device: str, environment: str | None, labels: str) -> tuple[str, str, int]:
    """The device's name, the stack's name, and the most that a row is expected to hold there."""
    if device.lower() == CPU:
        if labels == SIMULATOR:
            raise BadInput("the simulator labels runs on GPUs; for a CPU, add --labels runs.")
        if environment is not None:
            raise BadInput("a run on a CPU has no environment to choose.")
        return CPU, f"torch {_torch_version()}", _MOST_ON_CPU
    gpu = find_gpu(device)
    return gpu.name, stack_of(environment, "torch").name, int(gpu.usable_memory * _BEYOND)


def _torch_version() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise BadInput("networks are built with torch; install it with: pip install 'oomcast[torch]'") from None
