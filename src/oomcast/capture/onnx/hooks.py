"""What the capture process must know of ONNX."""

from __future__ import annotations

from ...spec import Spec
from ...trace import Trace
from ..hooks import Hooks

__all__ = ["HOOKS"]


def _capture(spec: Spec) -> Trace:
    from .run import capture_here

    return capture_here(spec.workload)


HOOKS = Hooks(framework="onnx", packages=("onnx",), least={"onnx": "1.16"}, capture=_capture)
