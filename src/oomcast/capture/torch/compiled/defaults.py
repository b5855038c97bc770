"""What earlier versions of torch did without being asked: AOTAutograd's and Inductor's settings as those shipped them.

The compiler is the installed torch's, whatever version is followed. Much of what it has learnt since can be switched
off again, and the switch is what the older version did. What changed without a switch stays the installed torch's, but
for which dead buffers are kept for new ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch._functorch import config as _functorch_config
from torch._inductor import config as _inductor_config
from torch._inductor.codegen.wrapper import AllocateLine

from ..patches import Patches
from ..personality import before

__all__ = ["CHANGES", "as_followed", "plan_as_followed", "reuse_rule"]


class _Change(NamedTuple):
    """What a version of torch began to do by itself, and how the installed one is told not to."""

    config: Any
    name: str
    since: tuple[int, int]
    until_then: Any
    subject: str


CHANGES = (
    _Change(_functorch_config, "donated_buffer", (2, 6), False, "buffers that a compiled backward may write into"),
    _Change(_functorch_config, "treat_parameters_as_free_to_save", (2, 8), False, "what compiled code saves"),
    _Change(_functorch_config, "guess_tangent_strides_as_outputs", (2, 12), False, "the layout of compiled gradients"),
    _Change(_inductor_config, "reorder_for_peak_memory", (2, 6), False, "the order of compiled kernels"),
    _Change(_inductor_config, "online_softmax", (2, 7), False, "which kernels are fused"),
    _Change(_inductor_config, "triton.coalesce_tiling_analysis", (2, 8), False, "which kernels are fused"),
    _Change(_inductor_config, "loop_ordering_after_fusion", (2, 10), False, "which kernels are fused"),
    _Change(_inductor_config, "triton.mix_order_reduction", (2, 10), False, "which kernels are fused"),
    _Change(_inductor_config, "loop_index_inversion_in_fusion", (2, 10), False, "which kernels are fused"),
    _Change(_inductor_config, "delay_realize_cheap_outputs", (2, 12), False, "which kernels are fused"),
    _Change(_inductor_config, "keep_addmm_fused_for_half_dtypes", (2, 11), False, "which kernels are fused"),
    _Change(_inductor_config, "loop_reindexing_after_fusion", (2, 13), False, "which kernels are fused"),
)
"""torch/_functorch/config.py and torch/_inductor/config.py of the releases 2.4.1 to 2.13.0, one beside the other. A
setting may be younger than what it switches: 2.11 keeps biases of half precision in their matmuls
(torch/_inductor/fx_passes/post_grad.py, `unfuse_bias_add_to_pointwise`), and 2.12 has the switch."""


@contextlib.contextmanager
def as_followed() -> Iterator[None]:
    """The defaults of the torch that is followed, where the job has left a setting as the installed torch has it."""
    with contextlib.ExitStack() as settings:
        for config in (_functorch_config, _inductor_config):
            changed = {
                change.name: change.until_then
                for change in CHANGES
                if change.config is config
                and change.name in config._config  # else the installed torch is older than the setting
                and config._is_default(change.name)
                and before(change.since, change.subject)
            }
            # Not `patch`: it writes the default back as if somebody had chosen it, and the next graph would find that.
            settings.callback(config._make_closure_patcher(**changed)())
        yield


def _whatever_lies_between(allocation: Any, free: Any, size: int) -> bool:
    return True


def plan_as_followed(patches: Patches) -> None:
    """Until 2.9 a new buffer took the place of the dead one of its size that died last, which was held until then.

    Since then it does not where that would raise the peak (pytorch/pytorch#159530, for #145883). There is no switch.
    """
    if hasattr(AllocateLine, _RULE) and before((2, 9), "which dead buffers compiled code keeps for new ones"):
        patches.set(AllocateLine, _RULE, _whatever_lies_between)


def reuse_rule() -> str:
    """The name of the rule that is in force, for who must tell plans made by one from those made by another."""
    rule = getattr(AllocateLine, _RULE, None)
    return "" if rule is None else str(rule.__name__)


_RULE = "should_reuse_buffer"
