"""What the capture process must know of PyTorch. torch is loaded when a hook is called, not before."""

from __future__ import annotations

from ...errors import CaptureFailed, OomcastError
from ...spec import Spec
from ...trace import Trace
from ..explain import failed_job, first_sentence, users_lines
from ..hooks import Hooks

__all__ = ["HOOKS"]


def _capture(spec: Spec) -> Trace:
    import torch

    from .run import capture_here
    from .scripts import capture_script

    torch.set_num_threads(1)
    return capture_here(spec) if spec.script is None else capture_script(spec)


def _warm_up() -> None:
    from .interpreter import load_sympy
    from .later_dynamo import load_dynamo_later

    load_sympy()
    load_dynamo_later()  # before anything makes fake tensors
    from .warm_up import warm_up

    warm_up()


def _load_library(spec: Spec) -> None:
    from .warm_up import load_library

    load_library(spec)


def _explain(error: BaseException, spec: Spec) -> OomcastError | None:
    """What only torch raises, and what we raise in its stead."""
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        UnsupportedOperatorException,
    )

    from .errors import RaisedAsOnGpu

    reference, text = spec.workload.job.reference, first_sentence(error)
    if isinstance(error, (UnsupportedOperatorException, DataDependentOutputException, DynamicOutputShapeException)):
        operator = getattr(error, "func", None) or text
        return CaptureFailed(f"{reference} uses the operator {operator}, which torch cannot run on fake tensors.")
    if isinstance(error, NotImplementedError) and ("fake" in str(error) or "meta" in str(error).lower()):
        lines = users_lines(error.__traceback__)
        return CaptureFailed(f"{reference} uses an operator that torch cannot run on fake tensors: {text}", lines)
    if isinstance(error, RaisedAsOnGpu):
        return failed_job(error, spec, kind=type(error).__bases__[-1].__name__)
    return None


HOOKS = Hooks(
    framework="torch",
    packages=("torch",),
    least={"torch": "2.9"},
    capture=_capture,
    loads_early=("oomcast.capture.torch.run",),
    warm_up=_warm_up,
    load_library=_load_library,
    explain=_explain,
)
