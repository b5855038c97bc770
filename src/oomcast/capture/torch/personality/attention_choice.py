"""Which attention kernel CUDA takes: the rules of `sdp_utils.cpp`, as a pure function of the call and the platform.

The rules are those of torch 2.13: `can_use_flash_attention`, `can_use_mem_efficient_attention`,
`can_use_cudnn_attention` and `select_sdp_backend` (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp) with the
checks of `sdp_utils_cpp.h` (which comes with the wheel). What older versions do otherwise:

- before 2.0 there is no `scaled_dot_product_attention` (public since pytorch#92189): code writes its operators out;
- 2.0: the efficient kernel takes neither a mask (pytorch#104310) nor dropout (pytorch#102038);
- before 2.5 cuDNN's kernel is off unless an environment variable asks for it (pytorch#128539);
- before 2.7 no fused kernel knows Blackwell (pytorch#145602);
- cuDNN's kernel comes first on Hopper and data-center Blackwell in 2.9 from cuDNN 9.9 on (pytorch#162073), and since
  2.10 from 9.15.1 on (pytorch#171895). In 2.6 to 2.8 only an environment variable brings it first; 2.5.0 had it first
  as well, and 2.5.1 took that back (pytorch#138522): 2.5 is taken as 2.5.1.

Known limitation: torch 2.0 and 2.1 had FlashAttention 1, whose limits on heads are not followed; 2.10 to 2.12 are taken
as 2.13.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import torch

from ....devices import AttentionTraits, attention_traits
from .platforms import Platform

__all__ = ["AttentionCall", "Backend", "Mask", "Switches", "choose_backend", "current_switches"]

_HALF = torch.float16
_BRAIN = torch.bfloat16
_SINGLE = torch.float32


class Backend(IntEnum):
    """The numbers are torch's own (`torch.nn.attention.SDPBackend`)."""

    MATH = 0
    FLASH = 1
    EFFICIENT = 2
    CUDNN = 3


@dataclass(frozen=True, slots=True)
class Mask:
    """What the choice asks of an attention mask."""

    shape: tuple[int, ...]
    unit_stride: bool = True
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """What the choice asks of a call of `scaled_dot_product_attention`."""

    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    dtype: torch.dtype
    mask: Mask | None = None
    dropout: float = 0.0
    is_causal: bool = False
    enable_gqa: bool = False
    needs_grad: bool = True
    unit_strides: bool = True
    """Whether the last dimension of query, key and value is contiguous."""


@dataclass(frozen=True, slots=True)
class Switches:
    """What the user has allowed, and in which order, by `torch.backends.cuda` or `sdpa_kernel`."""

    flash: bool = True
    efficient: bool = True
    cudnn: bool = True
    math: bool = True
    order: tuple[int, ...] = ()
    """torch's priority order where the user has set one, else empty: then the platform decides."""
    deterministic: bool = False


_DEFAULT_ORDER = (Backend.FLASH, Backend.EFFICIENT, Backend.MATH, Backend.CUDNN)
_CUDNN_FIRST = (Backend.CUDNN, Backend.FLASH, Backend.EFFICIENT, Backend.MATH)
_KNOWN = frozenset(int(backend) for backend in Backend)


def current_switches() -> Switches:
    """torch's switches at this moment; they work on builds without CUDA too."""
    native = torch._C
    order = tuple(native._get_sdp_priority_order()) if hasattr(native, "_get_sdp_priority_order") else ()
    order = tuple(number for number in order if number in _KNOWN)
    return Switches(
        flash=native._get_flash_sdp_enabled(),
        efficient=native._get_mem_efficient_sdp_enabled(),
        cudnn=native._get_cudnn_sdp_enabled(),
        math=native._get_math_sdp_enabled(),
        order=() if order == _DEFAULT_ORDER else order,
        deterministic=torch.are_deterministic_algorithms_enabled()
        and not torch.is_deterministic_algorithms_warn_only_enabled(),
    )


@lru_cache(maxsize=4096)
def choose_backend(call: AttentionCall, platform: Platform, switches: Switches) -> Backend:
    """The kernel CUDA would run; raises RuntimeError as torch does where none is allowed."""
    if platform.torch < (2, 0):
        return Backend.MATH
    order = switches.order or (_CUDNN_FIRST if _prefers_cudnn(platform) else _DEFAULT_ORDER)
    for number in order:
        backend = Backend(number)
        if backend is Backend.FLASH and switches.flash and _flash_fits(call, platform):
            return backend
        if backend is Backend.EFFICIENT and switches.efficient and _efficient_fits(call, platform):
            return backend
        if backend is Backend.CUDNN and switches.cudnn and _cudnn_fits(call, platform, switches.deterministic):
            return backend
        if backend is Backend.MATH and switches.math:
            return backend
    major, minor = platform.compute_capability
    raise RuntimeError(f"no attention kernel that is switched on can run this call on sm_{major}{minor}")


def _traits(platform: Platform) -> AttentionTraits:
    return attention_traits(platform.compute_capability)


def _is_known(traits: AttentionTraits, platform: Platform) -> bool:
    """Whether torch's own fused kernels know the card's architecture."""
    return platform.torch >= (2, 7) or not traits.is_newer_than_hopper


def _prefers_cudnn(platform: Platform) -> bool:
    traits = _traits(platform)
    if platform.torch < (2, 9) or not traits.prefers_cudnn:
        return False
    if platform.torch < (2, 10):
        return platform.cudnn >= 90900 and traits.prefers_cudnn_in_torch_2_9
    if platform.cudnn <= 91500:
        return False
    return platform.cuda >= (13, 0) or traits.prefers_cudnn_before_cuda_13


def _four_dimensional(call: AttentionCall) -> bool:
    return len(call.query) == len(call.key) == len(call.value) == 4


def _heads_agree(call: AttentionCall, *, grouped: bool, same_key_value: bool = True) -> bool:
    """Same batch everywhere; same heads everywhere unless the kernel and the call allow grouped queries."""
    if not call.query[0] == call.key[0] == call.value[0]:
        return False
    query, key, value = call.query[1], call.key[1], call.value[1]
    if call.enable_gqa and grouped:
        if same_key_value and key != value:
            return False
        return query % key == 0 and (same_key_value or query % value == 0)
    return query == key == value


def _dense_enough(call: AttentionCall, *, ignore_singleton: bool) -> bool:
    strides = call.unit_strides or (ignore_singleton and call.query[-1] == 1)
    return strides and (call.mask is None or call.mask.unit_stride)


def _has_tokens(call: AttentionCall) -> bool:
    return call.query[-2] != 0 and call.key[-2] != 0


def _flash_fits(call: AttentionCall, platform: Platform) -> bool:
    traits = _traits(platform)
    if not _four_dimensional(call) or call.mask is not None:
        return False
    if not traits.has_flash or not _is_known(traits, platform):
        return False
    head = call.query[-1]
    if not (head == call.key[-1] == call.value[-1] and head <= 256):
        return False
    if call.needs_grad and traits.small_shared_memory and head > 192 and (head <= 224 or call.dropout > 0):
        return False
    if call.is_causal and call.query[-2] != call.key[-2]:
        return False
    if call.dtype not in (_HALF, _BRAIN):
        return False
    return _heads_agree(call, grouped=True) and _has_tokens(call) and _dense_enough(call, ignore_singleton=True)


def _efficient_fits(call: AttentionCall, platform: Platform) -> bool:
    traits = _traits(platform)
    if not _four_dimensional(call) or not traits.has_efficient or not _is_known(traits, platform):
        return False
    if platform.torch < (2, 1) and (call.mask is not None or call.dropout > 0):
        return False
    # What CUTLASS wants head sizes to divide by.
    alignment = traits.half_alignment if call.dtype in (_HALF, _BRAIN) else traits.single_alignment
    head, value_head = call.query[-1], call.value[-1]
    if head != call.key[-1] or head == 0 or head % alignment or value_head == 0 or value_head % alignment:
        return False
    dtypes = (_HALF, _SINGLE, _BRAIN) if traits.has_flash else (_HALF, _SINGLE)
    return (
        call.dtype in dtypes
        and _has_tokens(call)
        and _dense_enough(call, ignore_singleton=False)
        and _heads_agree(call, grouped=False)
    )


def _cudnn_fits(call: AttentionCall, platform: Platform, deterministic: bool) -> bool:
    version = platform.cudnn
    if platform.torch < (2, 5) or version < 90000 or not _traits(platform).has_flash:
        return False
    if deterministic or not _four_dimensional(call):
        return False
    if call.dropout > 0 and (91100 < version < 91400 or (call.dropout * 16) % 1 or call.query[2] == 1):
        return False
    if call.dtype not in (_HALF, _BRAIN) or not _mask_fits_cudnn(call):
        return False
    if not (_has_tokens(call) and _dense_enough(call, ignore_singleton=True)):
        return False
    if not _heads_agree(call, grouped=True, same_key_value=False):
        return False
    if call.query[0] > 65535 or call.query[1] > 65535 or call.key[2] == 1:
        return False
    return _heads_fit_cudnn(call, platform)


def _heads_fit_cudnn(call: AttentionCall, platform: Platform) -> bool:
    traits, version = _traits(platform), platform.cudnn
    head, value_head = call.query[3], call.value[3]
    if head % 8 or value_head % 8:
        return False
    if platform.torch < (2, 10):
        # 2.9 took wide heads on Hopper (pytorch#161210); the rules by cuDNN's version came after it.
        limit = 256 if platform.torch >= (2, 9) and traits.is_hopper and version >= 91000 else 128
        return head <= limit and value_head <= limit
    wide = traits.is_data_center and version > 92200 and not (traits.has_wide_heads_late and version <= 92500)
    if wide:
        limit = 256
    elif traits.is_data_center and version >= 91100 and (head, value_head) == (192, 128):
        limit = 192
    else:
        limit = 128
    if head > limit or value_head > limit:
        return False
    if call.needs_grad and wide:
        return (head <= 128 and value_head <= 128) or (head, value_head) in ((192, 128), (256, 256))
    return True


def _mask_fits_cudnn(call: AttentionCall) -> bool:
    mask = call.mask
    if mask is None:
        return True
    if mask.requires_grad or len(mask.shape) not in (2, 4):
        return False
    wanted = (call.query[0], call.query[1], call.query[2], call.key[2])[-len(mask.shape) :]
    return all(size in (1, want) for size, want in zip(mask.shape, wanted, strict=True))
