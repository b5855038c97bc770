"""`oomcast.estimate`, and the estimators behind it: one interface, found by name through entry points.

A package that brings an estimator writes in its own `pyproject.toml`:

    [project.entry-points."oomcast.estimators"]
    mine = "my_package.module:MyEstimator"
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar

from ..devices import find_gpu, other_variants
from ..errors import BadInput, OomcastError, UnknownName
from ..spec import DESCRIPTIONS, Spec, options_of, read_description, takes_options
from .answer import Estimate

if TYPE_CHECKING:
    from ..trace import Trace
    from .answer import Estimate
    from .target import Target

__all__ = [
    "DEFAULT_ESTIMATOR",
    "GROUP",
    "Estimator",
    "NoOptions",
    "estimate",
    "estimate_spec",
    "estimator_names",
    "find_estimator",
    "owner_of_option",
]

GROUP = "oomcast.estimators"


@dataclass(frozen=True)
class NoOptions:
    """For an estimator that has no options of its own."""


class Estimator(ABC):
    """One way from a Spec to an Estimate. A class is named by an entry point and made without arguments."""

    name: ClassVar[str]
    options: ClassVar[type] = NoOptions
    """A description (see `oomcast.spec.options`) of what only this estimator is told, such as a file of a fit."""
    takes: ClassVar[frozenset[str] | None] = None
    """The options of the Spec that it heeds beside batch size and device; None: all. Others are refused."""
    refusal: ClassVar[str] = ""
    """Why it takes no others, for that sentence."""

    @abstractmethod
    def estimate(self, spec: Spec, options: Any) -> Estimate:
        """`options` is an instance of the class `options`."""

    def estimate_trace(self, trace: Trace, target: Target, options: Any = None) -> Estimate:
        """The Estimate of a job that was captured before, for estimators that need nothing else."""
        raise BadInput(f"the estimator {self.name} needs more than a captured job.")

    def check(self, given: Iterable[str]) -> None:
        """Raises BadInput for an option of the Spec that would be ignored."""
        if self.takes is None:
            return
        always = {"batch_size", "device"}
        ignored = [name for name in given if name not in self.takes and name not in always]
        if ignored:
            raise BadInput(f"the estimator {self.name} takes no {ignored[0].replace('_', ' ')}; {self.refusal}")


def estimator_names() -> tuple[str, ...]:
    """Of all that are installed; nothing is loaded for it."""
    return tuple(_entry_points())


@functools.cache
def find_estimator(name: str) -> Estimator:
    """Raises UnknownName, or BadInput where the estimator's packages are not installed."""
    entry = _entry_points().get(name)
    if entry is None:
        raise UnknownName("estimator", name, _entry_points())
    try:
        estimator = entry.load()()
    except ModuleNotFoundError as error:
        raise BadInput(
            f"the estimator {name} needs the package {error.name}, which is not installed; install it with: "
            f"pip install {error.name}"
        ) from None
    if not isinstance(estimator, Estimator):
        raise OomcastError(f"the entry point {name} of {GROUP} is no oomcast.estimation.Estimator.")
    return estimator


def owner_of_option(option: str) -> str | None:
    """The estimator that has an option of this name of its own."""
    for name in estimator_names():
        try:
            own = options_of(find_estimator(name).options)
        except OomcastError:
            continue
        if option in {declared.name for declared in own}:
            return name
    return None


@functools.cache
def _entry_points() -> dict[str, metadata.EntryPoint]:
    entries = {entry.name: entry for entry in metadata.entry_points(group=GROUP)}
    # The core's own is there even where the package was not installed but put on the path.
    entries.setdefault("simulator", metadata.EntryPoint("simulator", "oomcast.estimation.simulator:Simulator", GROUP))
    return dict(sorted(entries.items(), key=lambda item: (item[0] != "simulator", item[0])))


DEFAULT_ESTIMATOR = "simulator"


@takes_options(*DESCRIPTIONS)
def estimate(
    job: Any, *, device: str, batch_size: int | None = None, estimator: str = DEFAULT_ESTIMATOR, **options: Any
) -> Estimate:
    """How much memory a training job will hold on a GPU, without the GPU.

    `job` is a path to a job file, a name (`zoo:resnet50`, `timm:…`, `torchvision:…`, `hf:…`) or an object with the job
    file's functions `model()` and `batch(batch_size)`, or a configuration file of a training framework (axolotl,
    torchtune, TRL, …), which may say the batch size itself. `alloc_conf` is what PYTORCH_CUDA_ALLOC_CONF will be.
    `checkpointing` recomputes each repeated block in backward, or the modules that it names: `["stem", "layers.*"]`.
    `framework` overrides what the job's `model()` says by what it returns. What `oomcast calibrate` has learnt of this
    GPU and environment is used, or the artifact in the file `calibration`, unless `use_calibration` is false.
    `coverage` is how sure the interval and `will_not_exceed` are. With `keep_history`, the Estimate carries what the
    simulated allocator did, for reports with a timeline.

    `estimator` names another way to the answer; each has options of its own: `campaign` is the file that `oomcast
    campaign fit` wrote, for `tbem`; `equation` that of `oomcast equation fit`, for `equation`.
    Raises `oomcast.errors.OomcastError`; its text says what to do.
    """
    chosen = find_estimator(estimator)
    own, others = _split(chosen, {name: value for name, value in options.items() if value is not None})
    spec = Spec.read_sized(job, batch_size, device=device, **others)
    chosen.check(name for name, value in others.items() if value != _defaults().get(name))
    return estimate_spec(spec, chosen, read_description(chosen.options, own))


def estimate_spec(spec: Spec, estimator: Estimator, options: Any = None) -> Estimate:
    """`estimate`, for what was read before; the answer says how long it took."""
    started = time.perf_counter()
    if estimator.name != DEFAULT_ESTIMATOR:
        _refuse_other_makers(spec.place.machines.gpu, estimator)
    answer = estimator.estimate(spec, estimator.options() if options is None else options)
    return dataclasses.replace(
        answer,
        assumptions=(*answer.assumptions, *_assumed_device(spec.place.device, answer.device)),
        seconds=round(time.perf_counter() - started, 3),
    )


def _refuse_other_makers(device: str, estimator: Estimator) -> None:
    with contextlib.suppress(UnknownName):  # some take `cpu`; of other names they say themselves that they are unknown
        gpu = find_gpu(device)
        if gpu.maker is not None:
            raise BadInput(
                f"the estimator {estimator.name} rests on runs on NVIDIA's cards and says nothing of the "
                f"{gpu.driver_name}; leave --estimator out."
            )


def _assumed_device(name: str, device: str) -> tuple[str, ...]:
    """Which card a name that several share was taken for."""
    others = ", ".join(gpu.name for gpu in other_variants(name) if gpu.name != device)
    return (f"{name.strip()} is the {device}; the same name is used for the {others}",) if others else ()


def _split(chosen: Estimator, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the estimator, and those of every job."""
    own = {declared.name for declared in options_of(chosen.options)}
    known = {declared.name for declared in options_of(*DESCRIPTIONS)}
    for name in given:
        if name not in own and name not in known:
            owner = owner_of_option(name)
            if owner is not None:
                raise BadInput(f"the estimator {chosen.name} takes no {name}; add --estimator {owner}.")
            raise UnknownName("option", name, (*known, *own))
    return (
        {name: value for name, value in given.items() if name in own},
        {name: value for name, value in given.items() if name not in own},
    )


def _defaults() -> dict[str, Any]:
    return {declared.name: declared.default for declared in options_of(*DESCRIPTIONS)}
