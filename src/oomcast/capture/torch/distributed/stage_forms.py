"""What the stages of a script's pipeline tell each other before the first step, where the script names no forms.

torch's stages vote whether all know the forms of their inputs, and else run once to find out and hand them on
(`PipelineStage`, torch 2.13). The vote of the others is this rank's. The gradients that the next stage will send have
the form of what this one sends it. What a stage before sends is known where an earlier stage of this rank sent
something: it is taken to have that form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ....errors import BadInput
from ..patches import Patches

__all__ = ["install_stage_forms"]


def install_stage_forms(patches: Patches, rank: int, assume: Callable[[str], None]) -> None:
    """Where torch is new enough to do so."""
    from torch.distributed.pipelining import _utils, stage

    stage_class, names = stage.PipelineStage, vars(stage)
    if not hasattr(stage_class, "_recv_meta") or not hasattr(_utils, "InferenceMode"):
        return
    sent: list[Any] = []

    def vote(self: Any, has_backward: bool, received_acc: Any = None) -> torch.Tensor:
        self._voted = torch.tensor([0 if _utils.InferenceMode.needs_dynamic(self._user_meta, has_backward) else 1])
        return self._voted

    def result(self: Any, received_result: Any = None) -> torch.Tensor:
        return self._voted

    def send(self: Any, forms: Any, stage_to: int) -> None:
        if stage_to > self.stage_index:
            sent.append(forms)

    def receive(self: Any, source: int) -> Any:
        if source > self.stage_index:
            gradients: Any = names["_derive_grad_metas"](self._stage_meta.outputs)
            return names["_StageBackwardMeta"](backward_metas=gradients)
        if not sent:
            raise BadInput(
                f"rank {rank} waits in PipelineStage for the form of what stage {source} sends, which does not run "
                "here; name it in the script, PipelineStage(…, input_args=…, output_args=…), or look at --rank 0."
            )
        assume("what a stage receives is taken to have the form of what an earlier stage of the same rank sends")
        return sent[0]

    patches.set(stage_class, "_warmup_forward_vote", vote)
    patches.set(stage_class, "_warmup_backward_result", result)
    patches.set(stage_class, "_recv_meta", receive)
    patches.set(stage_class, "_send_meta", send)
