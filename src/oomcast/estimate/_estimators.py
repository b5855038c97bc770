"""The estimators by name, and the one call that everything else uses."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from ..capture import guess_framework
from ..devices import Gpu, Stack, default_stack, find_gpu, find_stack
from ..errors import BadInput, UnknownName
from ..simulate import Settings, settings_for
from ..workload import Workload
from ._calibration import Calibration
from ._calibration_file import calibration_for
from ._estimate import Estimate
from ._interval import load_interval
from ._simulator import estimate_by_simulation

__all__ = ["ESTIMATORS", "ESTIMATOR_NAMES", "Estimator", "Target", "estimate"]

_COVERAGE = 0.95


@dataclass(frozen=True)
class Target:
    """Where the job will run."""

    gpu: Gpu
    stack: Stack
    settings: Settings
    cudnn_benchmark: bool
    """`torch.backends.cudnn.benchmark`: its timing runs take their own memory."""
    time_limit: float
    calibration: Calibration | None = None
    """What real runs told of this GPU and stack."""
    coverage: float = _COVERAGE
    keep_history: bool = False
    """Whether the Estimate carries what the simulated allocator did."""

    @classmethod
    def create(
        cls,
        device: str,
        environment: str | None = None,
        alloc_conf: str | None = None,
        cudnn_benchmark: bool = False,
        time_limit: float = 300.0,
        calibration: Calibration | None = None,
        coverage: float = _COVERAGE,
        framework: str = "torch",
    ) -> Target:
        """`framework` says which stack and which allocator, unless an environment is named, which belongs to one."""
        gpu = find_gpu(device)
        stack = find_stack(environment) if environment else stack_of_installed(framework)
        settings = settings_for(stack.framework, alloc_conf)
        if time_limit <= 0:
            raise BadInput(f"the time limit must be above 0 seconds, not {time_limit:g}.")
        for calibrated in (False, True):
            load_interval(calibrated).check(coverage)
        return cls(gpu, stack, settings, cudnn_benchmark, time_limit, calibration, coverage)

    def for_framework(self, framework: str) -> Target:
        """This target for a job that turned out to be of another framework."""
        if framework == self.stack.framework:
            return self
        other = Target.create(
            self.gpu.name, None, None, self.cudnn_benchmark, self.time_limit, None, self.coverage, framework
        )
        other = dataclasses.replace(other, keep_history=self.keep_history)
        return other if other.stack.framework != self.stack.framework else self


class Estimator(Protocol):
    def __call__(self, workload: Workload, target: Any, /) -> Estimate: ...


def _learned(name: str) -> Estimator:
    """They need numpy and what was learnt, which other estimates do without."""

    def run(workload: Workload, target: Target) -> Estimate:
        from . import learned

        chosen: Estimator = getattr(learned, name)
        return chosen(workload, target)

    return run


ESTIMATORS: Mapping[str, Estimator] = {
    "simulator": estimate_by_simulation,
    "gpumemnet-mlp": _learned("estimate_by_mlp_classes"),
    "gpumemnet-transformer": _learned("estimate_by_transformer_classes"),
    "learned": _learned("estimate_by_learned"),
}
_BY_CAMPAIGN, _BY_EQUATION = "tbem", "equation"
ESTIMATOR_NAMES = (*ESTIMATORS, _BY_CAMPAIGN, _BY_EQUATION)
"""Also those that real runs decide, whose target need not be a GPU."""


def estimate(
    job: Any,
    *,
    batch_size: int,
    device: str,
    optimizer: str | None = None,
    precision: str | None = None,
    environment: str | None = None,
    estimator: str = "simulator",
    input_shape: tuple[int, ...] | str | None = None,
    seq_len: int | None = None,
    channels_last: bool = False,
    accumulation: int = 1,
    checkpointing: bool | str | Sequence[str] = False,
    zero_grad: str | None = None,
    set_to_none: bool = True,
    steps: int = 3,
    alloc_conf: str | None = None,
    cudnn_benchmark: bool = False,
    time_limit: float = 300.0,
    coverage: float = _COVERAGE,
    calibration: str | os.PathLike[str] | None = None,
    use_calibration: bool = True,
    campaign: str | os.PathLike[str] | None = None,
    equation: str | os.PathLike[str] | None = None,
    framework: str | None = None,
    keep_history: bool = False,
) -> Estimate:
    """How much memory a training job will hold on a GPU, without the GPU.

    `job` is a path to a job file, a name (`zoo:resnet50`, `timm:…`, `torchvision:…`, `hf:…`) or an object with the job
    file's functions `model()` and `batch(batch_size)`. `alloc_conf` is what PYTORCH_CUDA_ALLOC_CONF will be.
    `checkpointing` recomputes each repeated block in backward, or the modules that it names: `["stem", "layers.*"]`.
    `framework` overrides what the job's `model()` says by what it returns.
    What `oomcast calibrate` has learnt of this GPU and environment is used, or the artifact in the file `calibration`,
    unless `use_calibration` is false. `coverage` is how sure the interval and `will_not_exceed` are.
    With the estimator `tbem`, `campaign` is the file that `oomcast campaign fit` wrote, the job is one of its template
    (`template:vgg,depth=16`, or a rendered file), and the device is the campaign's, which may be `cpu`. With the
    estimator `equation`, `equation` is the file that `oomcast equation fit` wrote, in the same way.
    With `keep_history`, the Estimate carries what the simulated allocator did, for reports with a timeline; of
    estimators that simulate no allocator it stays without.
    Raises `oomcast.errors.OomcastError`; its text says what to do.
    """
    for given, name in ((campaign, _BY_CAMPAIGN), (equation, _BY_EQUATION)):
        if given is not None and estimator != name:
            what = "campaign" if name == _BY_CAMPAIGN else "equation"
            raise BadInput(f"the estimator {estimator} takes no {what}; add --estimator {name}.")
    if estimator in (_BY_CAMPAIGN, _BY_EQUATION):
        others = (optimizer, precision, environment, input_shape, seq_len, zero_grad, alloc_conf, calibration)
        flags = (channels_last, checkpointing, cudnn_benchmark, not set_to_none, accumulation != 1)
        if any(flags) or any(other is not None for other in others):
            what = "campaign" if estimator == _BY_CAMPAIGN else "equation"
            raise BadInput(
                f"the estimator {estimator} takes the job, the batch size, the device and its {what}; what else "
                "decides memory is part of the real runs behind it."
            )
        if estimator == _BY_CAMPAIGN:
            return _by_campaign(job, campaign, batch_size, device, coverage)
        return _by_equation(job, equation, batch_size, device, coverage, time_limit)
    chosen = ESTIMATORS.get(estimator)
    if chosen is None:
        raise UnknownName("estimator", estimator, ESTIMATOR_NAMES)
    workload = Workload.create(
        job,
        batch_size=batch_size,
        optimizer=optimizer,
        precision=precision,
        input_shape=input_shape,
        seq_len=seq_len,
        channels_last=channels_last,
        accumulation=accumulation,
        checkpointing=checkpointing,
        zero_grad=zero_grad,
        set_to_none=set_to_none,
        steps=steps,
        framework=framework,
    )
    target = Target.create(
        device,
        environment,
        alloc_conf,
        cudnn_benchmark,
        time_limit,
        coverage=coverage,
        framework=guess_framework(workload),
    )
    target = dataclasses.replace(target, keep_history=keep_history)
    if use_calibration:
        file = None if calibration is None else Path(calibration)
        target = dataclasses.replace(target, calibration=calibration_for(target.gpu, target.stack, file))
    started = time.perf_counter()
    found = chosen(workload, target)
    return _with_seconds(found, time.perf_counter() - started)


def _by_campaign(
    job: Any, campaign: str | os.PathLike[str] | None, batch_size: int, device: str, coverage: float
) -> Estimate:
    # It needs numpy and the specification's grammar; other estimates do without them.
    try:
        from ._tbem import estimate_by_campaign
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    started = time.perf_counter()
    found = estimate_by_campaign(job, campaign=campaign, batch_size=batch_size, device=device, coverage=coverage)
    return _with_seconds(found, time.perf_counter() - started)


def _by_equation(
    job: Any,
    equation: str | os.PathLike[str] | None,
    batch_size: int,
    device: str,
    coverage: float,
    time_limit: float,
) -> Estimate:
    try:
        from ._by_equation import estimate_by_equation
    except ModuleNotFoundError as error:
        raise missing_extra(error, "equations") from None
    started = time.perf_counter()
    found = estimate_by_equation(
        job, equation=equation, batch_size=batch_size, device=device, coverage=coverage, time_limit=time_limit
    )
    return _with_seconds(found, time.perf_counter() - started)


def missing_extra(error: ModuleNotFoundError, what: str = "campaigns") -> BadInput:
    """Campaigns and equations need packages that the rest of oomcast does without."""
    extra = {"campaigns": "campaign"}.get(what, what)
    return BadInput(f"{what} need the package {error.name}; install it with: pip install 'oomcast[{extra}]'")


def _with_seconds(found: Estimate, seconds: float) -> Estimate:
    return dataclasses.replace(found, seconds=round(seconds, 3))


def stack_of_installed(framework: str) -> Stack:
    """The user's own framework tells which generation the job runs under; its version is read without loading it."""
    try:
        return default_stack(metadata.version(framework), framework)
    except metadata.PackageNotFoundError:
        return default_stack(None, framework)
