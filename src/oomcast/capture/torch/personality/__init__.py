"""Makes CPU-keyed fake tensors of the virtual GPU take the paths that CUDA tensors would take on the target GPU.

`Personality(Target(...))` is a context manager: while entered, operators that choose by device are overridden at the
dispatcher (`AutogradCPU`, `AutocastCPU`). What the overrides cannot give is in tables that the recorder applies:

- `FAKE_KERNELS`: operator → callable(func, args, kwargs) → out, to be asked before FakeTensorMode;
- `OUTPUT_CORRECTIONS`: operator → callable(func, args, kwargs, out) → out, to be applied after the fake kernel ran;
- `COMPOSITES`: operator → kernel, for composites that the recorder meets whole (under `torch.inference_mode`);
- `assumptions(func, args)`: sentences for the user, where an operator is modelled without a source;
- `internal_scratch(func, args, kwargs, out)`: bytes of the buffers a kernel takes for itself (`INTERNAL_SCRATCH`).

One file a subject: attention (`_attention_choice`, `_attention`), autocast (`_autocast`, `_autocast_lists`), dropout,
normalisation, recurrent layers (`_recurrent`, `_recurrent_native`), `ctc_loss`, other composites (`_composites`),
torch's own device questions (`_hints`), kernels' own buffers (`_scratch`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _attention, _ctc, _hints, _normalization, _recurrent, _recurrent_native
from ._attention_choice import AttentionCall, Backend, Mask, Switches, choose_backend, current_switches
from ._overrides import COMPOSITES
from ._personality import Personality
from ._recurrent import assumptions
from ._scratch import INTERNAL_SCRATCH, internal_scratch
from ._target import Target, on_virtual_gpu

__all__ = [
    "COMPOSITES",
    "FAKE_KERNELS",
    "INTERNAL_SCRATCH",
    "OUTPUT_CORRECTIONS",
    "AttentionCall",
    "Backend",
    "Mask",
    "Personality",
    "Switches",
    "Target",
    "assumptions",
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
