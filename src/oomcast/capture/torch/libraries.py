"""Libraries on torch that reach beneath it: what their kernels take, and what they do that no mode sees.

A custom operator is counted by its outputs. Where its source tells what else it takes, or that it takes nothing, it is
in the table here; of any other the Trace says that only its outputs are counted.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .patches import Patches
from .vision_operators import cast_as_on_cuda

if TYPE_CHECKING:
    from .recorder import Recorder

__all__ = ["as_compiled", "custom_scratch", "forget_tensors", "install_libraries", "load_in_turn"]

_LOAD_IN_TURN = "HF_DEACTIVATE_ASYNC_LOAD"
"""transformers moves the weights that it loads from threads, which have no virtual GPU, unless it is told not to."""
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
"""Functions that their library compiles, and of which Inductor makes few kernels: where compiled code is not followed,
one stands for them all. What it leaves out are the new codes of the states, which are copied to their place at the
end."""


def as_compiled(function: Any, recorder: Recorder) -> Any:
    """A function that its library compiles, run by eager operators that hand on what a kernel keeps to itself."""
    if (getattr(function, "__module__", ""), getattr(function, "__name__", "")) not in _FUSED:
        return function

    @functools.wraps(function)
    def fused(*args: Any, **kwargs: Any) -> Any:
        with recorder.fused():
            return function(*args, **kwargs)

    return fused


def load_in_turn(patches: Patches) -> None:
    """Before any library is loaded."""
    if _LOAD_IN_TURN not in os.environ:
        os.environ[_LOAD_IN_TURN] = "1"
        patches.at_the_end(lambda: os.environ.pop(_LOAD_IN_TURN, None))


def install_libraries(patches: Patches, recorder: Recorder) -> None:
    """For the libraries that the job has loaded so far; may be called again."""
    bitsandbytes = sys.modules.get("bitsandbytes.functional")
    if bitsandbytes is not None and getattr(bitsandbytes.get_paged, "__module__", "") == "bitsandbytes.functional":
        _install_paging(patches, recorder, bitsandbytes)
    cast_as_on_cuda()
    detection = sys.modules.get("torchvision.models.detection._utils")
    sampler = getattr(detection, "BalancedPositiveNegativeSampler", None)
    if sampler is not None and sampler.__call__.__module__ == sampler.__module__:
        _install_sampling(patches, recorder, sampler)


def forget_tensors() -> None:
    """Tensors that libraries keep for the whole process: the next virtual GPU would find those of this one."""
    bitsandbytes = sys.modules.get("bitsandbytes.functional")
    if bitsandbytes is not None:
        bitsandbytes.name2qmap.clear()  # the map of 8-bit codes, made when first needed


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


def _install_sampling(patches: Patches, recorder: Recorder, sampler: Any) -> None:
    """torchvision's detection models train on a few of the boxes: how many of which kind is a limit of the sampler's.

    It tells its choice by masks over all boxes; without values, nobody would see how few they choose.
    """
    call = sampler.__call__

    def sample(self: Any, labels: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        positive, negative = call(self, labels)
        most = int(self.batch_size_per_image * self.positive_fraction)
        for kind, chosen, others in zip(labels, positive, negative, strict=True):
            if not isinstance(kind, FakeTensor) or recorder.values.of(kind) is not None:
                continue
            boxes = kind.shape[0]
            objects = min(most, boxes)
            background = min(self.batch_size_per_image - objects, boxes - objects)
            place = torch.arange(boxes)
            recorder.values.know(kind, (place < objects).to(kind.dtype))
            recorder.values.know(chosen, (place < objects).to(chosen.dtype))
            recorder.values.know(others, ((place >= objects) & (place < objects + background)).to(others.dtype))
            recorder.ledger.assume(
                f"which boxes lie on objects depends on data: of a picture's, {objects} on objects and {background} "
                "beside them are trained on, as many as torchvision's sampler takes",
                about_data=True,
            )
        return positive, negative

    sample.__module__ = __name__
    patches.set(sampler, "__call__", sample)
