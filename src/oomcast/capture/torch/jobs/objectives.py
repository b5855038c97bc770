"""What is learnt beside the next token: preferences, rewards, and a policy from the answers it has generated.

Log-likelihoods are computed as TRL did before 1.16: row by row, the log of the sum of float32 logits without a copy of
them all, half-precision ones by a softmax of each row (trl/trainer/utils.py, selective_log_softmax); or, with
--fused-loss, as it has done since: by a head that never holds all logits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oomcast.errors import BadInput
from oomcast.spec import Objective, Workload

from .head_losses import fused_log_likelihoods
from .ppo import Ppo

__all__ = ["about_objective", "objective_of"]

_FUSED = (Objective.DPO, Objective.KTO, Objective.GRPO, Objective.RLOO)
"""What TRL 1.16 has a fused head for; ORPO's experimental trainer has none, and a reward needs none."""

_ENTROPY_ROWS = 128
"""Tokens whose entropy TRL computes at once, for its logs."""


def about_objective(workload: Workload) -> Iterator[str]:
    """What an answer must say of it."""
    kind = workload.objective
    if kind is Objective.PPO:
        yield "ppo is TRL's up to 1.12: a model of values as large as the policy is trained beside it"
        if workload.reward_model is None:
            yield "the reward model is taken to be as large as the policy; --reward-model names another"
    if kind in _FUSED and workload.loss_chunks == 1:
        yield (
            "likelihoods are computed by TRL's fused head (1.16), in tiles of 4,096 tokens and 32,768 words"
            if workload.fused_loss
            else "likelihoods are computed from all logits, as TRL did before 1.16; --fused-loss is what it does since"
        )
    elif kind is not Objective.SFT and (workload.fused_loss or workload.loss_chunks > 1):
        yield f"the loss of {kind.value} is computed from all logits: no chunks, no fused kernel"


def objective_of(workload: Workload, reference: Callable[[], nn.Module]) -> Callable[[nn.Module, Any], torch.Tensor]:
    """The loss function of an objective other than the next token."""
    kind = workload.objective
    if kind is Objective.REWARD:
        return _reward
    has_one = kind.has_reference if workload.reference_model is None else workload.reference_model
    frozen = _Reference(reference if workload.adapter is None else None) if has_one else None
    if kind is Objective.PPO:
        return Ppo(workload.new_tokens, frozen, _selected)
    is_fused = workload.fused_loss and kind in _FUSED and workload.loss_chunks == 1
    if kind.generates:
        return _Policy(kind, workload.new_tokens, frozen, is_fused)
    return _Preference(kind, frozen, is_fused)


class _Reference:
    """The model as it was: a copy that is held beside it, or the model itself without its adapter."""

    def __init__(self, make: Callable[[], nn.Module] | None) -> None:
        self.make = make
        self.model: nn.Module | None = None

    def run(self, policy: Any, compute: Callable[[Any], torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            if self.make is None:
                with policy.disable_adapter():
                    return compute(policy)
            if self.model is None:
                self.model = self.make().to("cuda").eval().requires_grad_(False)
            return compute(self.model)


class _Preference:
    """Of two answers, the chosen one is to be likelier (dpo: than under the reference; orpo: by its odds, beside the
    likelihood itself); of single ones, the good to be likelier than under the reference (kto)."""

    def __init__(self, kind: Objective, reference: _Reference | None, is_fused: bool) -> None:
        self.kind, self.reference = kind, reference
        self.likelihoods = _fused_likelihoods if is_fused else _log_likelihoods

    def __call__(self, model: Any, batch: Any) -> torch.Tensor:
        policy = self.likelihoods(model, batch)
        if self.reference is not None:
            policy = policy - self.reference.run(model, lambda frozen: self.likelihoods(frozen, batch))
        if self.kind is Objective.KTO:
            return (1 - torch.sigmoid(0.1 * policy)).mean()
        better, worse = policy.chunk(2)
        if self.kind is Objective.ORPO:
            odds = (better - worse) - (torch.log1p(-torch.exp(better)) - torch.log1p(-torch.exp(worse)))
            return -better.mean() - 0.1 * F.logsigmoid(odds).mean()
        return -F.logsigmoid(0.1 * (better - worse)).mean()


def _reward(model: Any, batch: Any) -> torch.Tensor:
    """A number for each answer: that of the better one is to be higher."""
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    better, worse = model(**inputs).logits.chunk(2)
    return -F.logsigmoid(better - worse).mean()


class _Policy:
    """Learning from answers that were generated before, weighted by how good each was among the others to its prompt:
    token by token (grpo), or as a whole (rloo), whose distance from the reference is a part of the reward."""

    def __init__(self, kind: Objective, new_tokens: int, reference: _Reference | None, is_fused: bool) -> None:
        self.kind, self.new_tokens, self.reference = kind, new_tokens, reference
        self.is_fused = is_fused

    def __call__(self, model: Any, batch: Any) -> torch.Tensor:
        frozen = None
        if self.kind is Objective.RLOO:
            with torch.no_grad():
                self._of_tokens(model, batch)  # what the answers were generated with
        if self.reference is not None:
            frozen = self.reference.run(model, lambda one: self._of_tokens(one, batch)[0])
        policy, logits = self._of_tokens(model, batch)
        if logits is not None:
            with torch.no_grad():
                parts = logits.flatten(0, 1).split(_ENTROPY_ROWS)
                torch.cat([_entropy(part) for part in parts])
        if self.kind is Objective.RLOO:
            policy, frozen = policy.sum(1, keepdim=True), None
        advantages = torch.zeros(policy.shape[0], 1, device=policy.device)
        ratio = torch.exp(policy - policy.detach())
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        if frozen is not None:
            loss = loss + 0.04 * (torch.exp(frozen - policy) - (frozen - policy) - 1)
        return loss.mean()

    def _of_tokens(self, model: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Of every token of the answers how likely it is; and the logits, which the models compute of these alone: none
        where the head is fused."""
        if self.is_fused:
            return fused_log_likelihoods(model, batch, self.new_tokens), None
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        core = model.get_base_model() if hasattr(model, "get_base_model") else model
        if "logits_to_keep" in inspect.signature(type(core).forward).parameters:
            inputs["logits_to_keep"] = self.new_tokens + 1
        logits = model(**inputs, use_cache=False).logits[:, :-1][:, -self.new_tokens :]
        logits.div_(1.0)  # by the temperature
        return _selected(logits, batch["input_ids"][:, -self.new_tokens :]), logits


def _entropy(logits: torch.Tensor) -> torch.Tensor:
    likely = F.log_softmax(logits, dim=-1)
    return -(torch.exp(likely) * likely).sum(-1)


def _fused_likelihoods(model: Any, batch: Any) -> torch.Tensor:
    return fused_log_likelihoods(model, batch).sum(-1)


def _log_likelihoods(model: Any, batch: Any) -> torch.Tensor:
    """Of each row as a whole."""
    if "labels" not in batch:
        raise BadInput("this objective is for language models with a head over the vocabulary.")
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    return _selected(model(**inputs).logits[:, :-1], batch["labels"][:, 1:]).sum(-1)


def _selected(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The log-likelihood of each label."""
    if logits.dtype is torch.float32:
        chosen = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        return chosen - torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
    rows = [
        F.log_softmax(row, dim=-1).gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
        for row, wanted in zip(logits, labels, strict=True)
    ]
    return torch.stack(rows)
