"""What the capture process must know of MXNet. It is loaded when a hook is called, not before."""

from __future__ import annotations

import os
import sys
import warnings

from ...errors import BadInput, OomcastError
from ...spec import Spec
from ...trace import Trace
from ..explain import users_lines
from ..frameworks import load_packages
from ..hooks import Hooks
from ..stderr import silenced

__all__ = ["HOOKS"]


def _set_up() -> None:
    # No threads of MXNet's, so that a fork has all that it needs.
    os.environ["MXNET_ENGINE_TYPE"] = "NaiveEngine"
    with silenced(), warnings.catch_warnings():  # MXNet tells which engine it starts
        warnings.simplefilter("ignore")
        load_packages(["mxnet"])
        if "mxnet" in sys.modules:
            sys.modules["mxnet"].nd.waitall()  # the engine starts here, and not in every fork


def _capture(spec: Spec) -> Trace:
    from .run import capture_here

    return capture_here(spec.workload)


def _explain(error: BaseException, spec: Spec) -> OomcastError | None:
    """What only MXNet raises."""
    import mxnet as mx

    from .read import reason

    if isinstance(error, mx.base.MXNetError) and not users_lines(error.__traceback__):
        return BadInput(f"MXNet rejects {spec.workload.job.reference}: {reason(error)}")
    return None


HOOKS = Hooks(framework="mxnet", packages=("mxnet",), least={}, capture=_capture, set_up=_set_up, explain=_explain)
