"""torchvision's operators where its compiled library does not load, as beside a torch that it was not built for.

torchvision says itself how its operators look to fake tensors, to autograd and to autocast, once it believes that it
has them. So they get the schemas that its library would have given them, before torchvision is imported, and it is
told that they are there. Nobody can compute with them; on the virtual GPU nobody does.

A torchvision that keeps its derivatives in the compiled library (before 0.28) gets `nms` alone: with a schema and no
derivative, an operator would pass no gradient on, and nobody would notice.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
from pathlib import Path
from typing import Any

import torch

__all__ = ["cast_as_on_cuda", "prepare_torchvision"]

_POOLED = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_IMAGES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_CONVOLUTION = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, "
    "SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, "
    "bool use_mask"
)
_QUANTISED = "float input_scale, int input_zero_point, float rois_scale, int rois_zero_point"

_ALWAYS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
"""torchvision cannot be imported without these."""

_WITH_DERIVATIVES = (
    f"roi_align(Tensor input, Tensor rois, {_POOLED}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, {_POOLED}, {_IMAGES}, int sampling_ratio, bool aligned) -> Tensor",
    f"qroi_align(Tensor input, Tensor rois, {_QUANTISED}, {_POOLED}, int sampling_ratio, bool aligned) -> Tensor",
    f"roi_pool(Tensor input, Tensor rois, {_POOLED}) -> (Tensor, Tensor)",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_POOLED}, {_IMAGES}) -> Tensor",
    f"ps_roi_align(Tensor input, Tensor rois, {_POOLED}, int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, "
    f"{_POOLED}, int sampling_ratio, {_IMAGES}) -> Tensor",
    f"ps_roi_pool(Tensor input, Tensor rois, {_POOLED}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_POOLED}, {_IMAGES}) -> Tensor",
    f"deform_conv2d({_CONVOLUTION}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_CONVOLUTION}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
"""As torchvision/csrc/ops/*.cpp define them."""

_REGISTRATIONS = "torchvision._autograd_registrations"
_libraries: list[torch.library.Library] = []
"""Held: what they define is gone with them."""


def prepare_torchvision() -> None:
    """Whoever imports torchvision in this process from now on gets it, though it was built for another torch."""
    if "torchvision" not in sys.modules and not any(isinstance(finder, _SchemasFirst) for finder in sys.meta_path):
        sys.meta_path.insert(0, _SchemasFirst())


class _SchemasFirst(importlib.abc.MetaPathFinder):
    """Sees imports of torchvision before they happen, and leaves them to the others."""

    def __init__(self) -> None:
        self._defined = False

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "torchvision" and not self._defined:
            found = importlib.machinery.PathFinder.find_spec(fullname)
            if found is None or found.origin is None:
                return
            folder = Path(found.origin).parent
            if _operators_load(folder):
                sys.meta_path.remove(self)
                return
            has_derivatives = (folder / f"{_REGISTRATIONS.partition('.')[2]}.py").exists()
            _define(_ALWAYS + _WITH_DERIVATIVES if has_derivatives else _ALWAYS)
            self._defined = True
        elif fullname == _REGISTRATIONS and self._defined:
            sys.meta_path.remove(self)
            setattr(importlib.import_module("torchvision.extension"), "_has_ops", _yes)  # noqa: B010


def _yes() -> bool:
    return True


def _operators_load(folder: Path) -> bool:
    for library in folder.glob("_C*.so"):
        with contextlib.suppress(OSError):
            torch.ops.load_library(str(library))
            return True
    return False


def _define(schemas: tuple[str, ...]) -> None:
    if not _libraries:
        library = torch.library.Library("torchvision", "DEF")
        for schema in schemas:
            library.define(schema)
        library.define("_cuda_version() -> int")
        library.impl("_cuda_version", lambda: -1, "CompositeExplicitAutograd")  # built without CUDA
        _libraries.append(library)


def cast_as_on_cuda() -> None:
    """Operators that autocast knows on CUDA alone: the virtual GPU keeps CUDA's autocast under the CPU's name."""
    registrations = sys.modules.get(_REGISTRATIONS)
    if registrations is None:
        return
    for name in ("roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"):
        cast = getattr(registrations, f"_autocast_{name}", None)
        if cast is None or torch._C._dispatch_has_kernel_for_dispatch_key(f"torchvision::{name}", "AutocastCPU"):
            continue
        library = torch.library.Library("torchvision", "IMPL")
        library.impl(name, cast, "AutocastCPU")
        _libraries.append(library)
