"""Makes CPU-keyed fake tensors of the virtual GPU take the paths that CUDA tensors would take on a given platform.

`Personality(Platform.of(gpu, stack))` is a context manager: while entered, operators that choose by device are
overridden at the dispatcher (`AutogradCPU`, `AutocastCPU`), as the stack's versions of torch, CUDA and cuDNN choose on
that GPU. What the overrides cannot give is in tables that the recorder applies:

- `FAKE_KERNELS`: operator → callable(func, args, kwargs) → out, to be asked before FakeTensorMode;
- `PLAIN_KERNELS`: the same, for operators that torch's fake kernels decompose at length: asked once for each form;
- `OUTPUT_CORRECTIONS`: operator → callable(func, args, kwargs, out) → out, to be applied after the fake kernel ran;
- `COMPOSITES`: operator → kernel, for composites that the recorder meets whole (under `torch.inference_mode`);
- `assumptions(func, args)`: sentences for the user, where an operator is modelled without a source;
- `internal_scratch(func, args, kwargs, out)`: bytes of the buffers a kernel takes for itself (`INTERNAL_SCRATCH`).

One file a subject: attention (`attention_choice`, `attention`), `autocast`, `dropout`, `normalization`, recurrent
layers (`recurrent`, `recurrent_native`), `ctc`, other `composites`, torch's own device questions (`hints`), kernels'
own buffers (`scratch`, `reductions`). `platforms` says what is followed, `entering` puts all in place.

Known limitations. Where no version is named, a rule is that of torch 2.13. Python code (modules, losses, optimizers) is
the installed torch's, whatever version is followed; `Personality.differences` says where that version mattered. Not
followed: FlashAttention 1 of torch 2.0 and 2.1 (smaller heads, no padding), how autocast saw attention before 2.1, the
second set of temporaries of foreach Adam before 2.1, softmax's input that torch kept before 1.11. The size of cuBLAS's
workspace is the simulation's (`simulate/workspace.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import attention as _attention
from . import ctc as _ctc
from . import hints as _hints
from . import normalization as _normalization
from . import recurrent as _recurrent
from . import recurrent_native as _recurrent_native
from .attention_choice import AttentionCall, Backend, Mask, Switches, choose_backend, current_switches
from .entering import Personality
from .normalization import PLAIN_KERNELS
from .overrides import COMPOSITES
from .platforms import INSTALLED, Platform, before, on_virtual_gpu
from .recurrent import assumptions
from .scratch import INTERNAL_SCRATCH, internal_scratch

__all__ = [
    "COMPOSITES",
    "FAKE_KERNELS",
    "INSTALLED",
    "INTERNAL_SCRATCH",
    "OUTPUT_CORRECTIONS",
    "PLAIN_KERNELS",
    "AttentionCall",
    "Backend",
    "Mask",
    "Personality",
    "Platform",
    "Switches",
    "assumptions",
    "before",
    "choose_backend",
    "current_switches",
    "internal_scratch",
    "on_virtual_gpu",
]

FAKE_KERNELS: dict[Any, Callable[..., Any]] = {
    **_ctc.FAKE_KERNELS,
    **_recurrent.FAKE_KERNELS,
    **_recurrent_native.FAKE_KERNELS,
}
"""Operators for which torch has no fake kernel, or none of use."""

OUTPUT_CORRECTIONS: dict[Any, Callable[..., Any]] = {
    **_attention.OUTPUT_CORRECTIONS,
    **_hints.OUTPUT_CORRECTIONS,
    **_normalization.OUTPUT_CORRECTIONS,
}
"""What CUDA's kernels return where the fake ones say otherwise."""
