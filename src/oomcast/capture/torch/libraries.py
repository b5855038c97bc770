"""Libraries on torch that reach beneath it: what their kernels take, and what they do that no mode sees.

A custom operator is counted by its outputs. Where its source tells what else it takes, or that it takes nothing, it is
in the table here; of any other the Trace says that only its outputs are counted.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .patches import Patches

if TYPE_CHECKING:
    from .recorder import Recorder

__all__ = ["as_compiled", "custom_scratch", "install_libraries"]

_Scratch = Callable[[Any, Any], Sequence[int]]


def _nothing(args: Any, out: Any) -> Sequence[int]:
    return ()


def _dequantised(args: Any, out: Any) -> Sequence[int]:
    """`gemm_4bit`: beyond a few rows the weight is turned into the input's type first, then multiplied.

    bitsandbytes 0.50, backends/cuda/ops.py: which of two kernels runs for up to 512 rows (1,536 with small weights)
    depends on the GPU; the one that takes memory is assumed. Statistics that are compressed are unpacked as well.
    """
    inputs, _, shape, _, blocksize = args[:5]
    rows = math.prod(inputs.shape[:-1])
    if rows <= _FEW_ROWS:
        return ()
    values = math.prod(shape)
    return (values * inputs.element_size(), -(-values // blocksize) * 4)


_FEW_ROWS = 4


def _as_int32(args: Any, out: Any) -> Sequence[int]:
    """`int8_scaled_mm`: the product in int32, which is then scaled (bitsandbytes 0.50, backends/default/ops.py)."""
    return (out.numel() * 4,)


_CUSTOM: dict[str, _Scratch] = {
    "bitsandbytes.gemm_4bit": _dequantised,
    "bitsandbytes.int8_scaled_mm": _as_int32,
    **dict.fromkeys(
        (
            "bitsandbytes.quantize_4bit",
            "bitsandbytes.dequantize_4bit",
            "bitsandbytes.quantize_blockwise",
            "bitsandbytes.dequantize_blockwise",
            "bitsandbytes.gemv_4bit",
            "bitsandbytes.int8_vectorwise_quant",
            "bitsandbytes.int8_vectorwise_dequant",
            "bitsandbytes.int8_double_quant",
            "bitsandbytes.int8_linear_matmul",
            "bitsandbytes.int8_mm_dequant",
            "bitsandbytes.optimizer_update_8bit_blockwise",
            "bitsandbytes.optimizer_update_32bit",
        ),
        _nothing,
    ),
}
"""One kernel each, which writes its outputs and nothing else, where `_nothing` stands."""


def custom_scratch(name: str, args: Any, out: Any) -> Sequence[int] | None:
    """Bytes that a custom operator takes beside its outputs; None where nobody here knows."""
    known = _CUSTOM.get(name)
    return None if known is None else known(args, out)


_FUSED = {("torchao.optim.adam", "single_param_adam")}
"""Functions that their library compiles, and of which Inductor makes kernels without anything between them: each
element's update, and the scale of its block of 128 or 256, which fits a kernel's registers."""


def as_compiled(function: Any, recorder: Recorder) -> Any:
    """A function that its library compiles, run by eager operators that hand on what a kernel keeps to itself."""
    if (getattr(function, "__module__", ""), getattr(function, "__name__", "")) not in _FUSED:
        return function

    @functools.wraps(function)
    def fused(*args: Any, **kwargs: Any) -> Any:
        with recorder.fused():
            return function(*args, **kwargs)

    return fused


def install_libraries(patches: Patches, recorder: Recorder) -> None:
    """For the libraries that the job has loaded so far; may be called again."""
    bitsandbytes = sys.modules.get("bitsandbytes.functional")
    if bitsandbytes is not None and getattr(bitsandbytes.get_paged, "__module__", "") == "bitsandbytes.functional":
        _install_paging(patches, recorder, bitsandbytes)
    if "torchvision.ops.boxes" in sys.modules and not sys.modules["torchvision.extension"]._has_ops():
        _install_vision(patches)


def _install_paging(patches: Patches, recorder: Recorder, bitsandbytes: Any) -> None:
    """Paged optimizers keep their state in memory that CUDA moves between host and GPU, not in torch's allocator."""

    def get_paged(*shape: int, dtype: torch.dtype = torch.float32, device: Any = None) -> torch.Tensor:
        recorder.ledger.assume(
            "paged optimizer state is in unified memory, which is not counted: the driver keeps it on the GPU where "
            "there is room, and on the host where there is none"
        )
        out = torch.empty(*shape, dtype=dtype)
        out.is_paged, out.page_deviceid = True, 0  # type: ignore[attr-defined]
        return out

    patches.set(bitsandbytes, "get_paged", get_paged)
    for name in ("prefetch_tensor", "elementwise_func"):  # by address, in compiled code; no memory hangs on them
        patches.set(bitsandbytes, name, lambda *args, **kwargs: None)


def _install_vision(patches: Patches) -> None:
    """torchvision without its compiled operators, as where it was built for another torch: `nms` needs its schema."""
    boxes = sys.modules["torchvision.ops.boxes"]
    if getattr(boxes._assert_has_ops, "__module__", "") == "torchvision.extension":
        patches.set(boxes, "_assert_has_ops", lambda: None)
