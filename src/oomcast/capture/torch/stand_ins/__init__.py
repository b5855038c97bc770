"""Packages of GPU kernels that a job imports and that are not installed, or have no path for a CPU.

A stand-in holds what the kernels hold: outputs, what is kept for backward, buffers of the backward pass, each written
down with its source. Values do not matter here. One serves an import that the job cannot do without: where code tries
the import and goes on without it, what is not installed stays absent, as it may be on the machine that the job is for.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import linecache
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ....syntax import syntax_tree

__all__ = ["STAND_INS", "StandIn", "stand_ins"]


class StandIn(NamedTuple):
    """One module of a package: who writes its names, and where the figures come from."""

    module: str
    """Of this folder."""
    names: tuple[str, ...]
    source: str


_FLASH = ("flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_kvpacked_func", "flash_attn_varlen_func",
          "flash_attn_varlen_qkvpacked_func", "flash_attn_varlen_kvpacked_func")  # fmt: skip
_FLASH_2 = "csrc/flash_attn/flash_api.cpp of Dao-AILab/flash-attention 2.7: mha_fwd, mha_bwd and their varlen forms"
_FLASH_3 = "hopper/flash_api.cpp of Dao-AILab/flash-attention: mha_fwd, mha_bwd"
_XFORMERS = (
    "xformers/ops/fmha of facebookresearch/xformers: inputs, output and sums of rows are kept; halves go to "
    "flash-attention 2, fp32 to cutlass"
)
_LIGER = "src/liger_kernel/ops of linkedin/Liger-Kernel: fused_linear_cross_entropy, cross_entropy, rms_norm, swiglu"
_APEX = (
    "NVIDIA/apex, optimizers/fused_adam.py, fused_sgd.py and normalization/fused_layer_norm.py: Adam's states in fp32, "
    "fused kernels, statistics in fp32; the 16 partial sums of a norm's backward are left out"
)
_CUT = "cut_cross_entropy 25.1: cce.py, cce_lse_forward.py, cce_backward.py; its locks are left out"
_ENGINE = (
    "NVIDIA/TransformerEngine, pytorch/module/layernorm_mlp.py, in bf16: gated activations keep their input alone; the "
    "other layers as torch's, which was not compared; no fp8"
)

STAND_INS: dict[str, StandIn] = {
    "flash_attn": StandIn("attention", _FLASH, _FLASH_2),
    "flash_attn.flash_attn_interface": StandIn("attention", (*_FLASH, "flash_attn_unpadded_func"), _FLASH_2),
    "flash_attn.bert_padding": StandIn("attention", ("index_first_axis", "pad_input", "unpad_input"), _FLASH_2),
    "flash_attn_interface": StandIn("attention", ("flash_attn_func", "flash_attn_varlen_func"), _FLASH_3),
    "xformers": StandIn("attention", (), _XFORMERS),
    "xformers.ops": StandIn("attention", ("LowerTriangularMask", "memory_efficient_attention"), _XFORMERS),
    "liger_kernel": StandIn("losses", (), _LIGER),
    "liger_kernel.transformers": StandIn(
        "losses",
        ("LigerCrossEntropyLoss", "LigerFusedLinearCrossEntropyLoss", "LigerRMSNorm", "LigerSwiGLUMLP",
         "apply_liger_kernel_to_llama", "apply_liger_kernel_to_mistral", "apply_liger_kernel_to_qwen2",
         "apply_liger_kernel_to_qwen3"),
        _LIGER,
    ),
    "cut_cross_entropy": StandIn("losses", ("LinearCrossEntropy", "linear_cross_entropy"), _CUT),
    "apex": StandIn("layers", (), _APEX),
    "apex.optimizers": StandIn("layers", ("FusedAdam", "FusedSGD"), _APEX),
    "apex.normalization": StandIn(
        "layers", ("FusedLayerNorm", "FusedRMSNorm", "MixedFusedLayerNorm", "MixedFusedRMSNorm"), _APEX
    ),
    "transformer_engine": StandIn("layers", (), _ENGINE),
    "transformer_engine.pytorch": StandIn(
        "layers", ("DotProductAttention", "LayerNorm", "LayerNormLinear", "LayerNormMLP", "Linear", "RMSNorm",
                   "fp8_autocast"), _ENGINE,
    ),
}  # fmt: skip
"""Module → what stands in for it."""


@contextlib.contextmanager
def stand_ins(tell: Callable[[str], None]) -> Iterator[None]:
    """Serve imports of these modules meanwhile, where nothing is installed under their names."""
    finder = _Finder(tell)
    sys.meta_path.append(finder)  # after all others: what is installed is taken
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in finder.served:
            sys.modules.pop(name, None)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self.served: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package = fullname.partition(".")[0]
        if fullname not in STAND_INS or (package not in self.served and not _is_needed(package)):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=package == fullname or "." not in fullname)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        stand_in = STAND_INS[module.__name__]
        self.served.append(module.__name__)
        written = importlib.import_module(f"{__name__}.{stand_in.module}")
        for name in stand_in.names:
            setattr(module, name, getattr(written, name))
        module.__version__ = "0"  # type: ignore[attr-defined]
        package = module.__name__.partition(".")[0]
        if module.__name__ == package:
            self.tell(f"{package} is not installed: a stand-in holds what its kernels hold ({stand_in.source})")


def _is_needed(package: str) -> bool:
    """Whether the code that imports it just now would fail without it."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name == "importlib.util":
            return False  # only asked whether it is there
        if not name.startswith("importlib") and not frame.f_code.co_filename.startswith("<frozen importlib"):
            return not _is_tried(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return True


def _is_tried(file: str, line: int) -> bool:
    return any(first <= line <= last for first, last in _tried_lines(file))


@functools.lru_cache(maxsize=256)
def _tried_lines(file: str) -> tuple[tuple[int, int], ...]:
    """The lines of a file within a `try` that catches a failed import."""
    try:
        tree = syntax_tree("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(
        (node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and any(_catches_imports(handler) for handler in node.handlers)
    )


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    kinds = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")
    return any(isinstance(kind, ast.Name) and kind.id in kinds for kind in caught)
