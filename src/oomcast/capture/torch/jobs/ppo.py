"""Proximal policy optimisation as TRL did it up to 1.12 (trl/experimental/ppo/ppo_trainer.py of 1.10): a policy and a
model of values are trained together; a reference and a reward model stand beside them.

What its trainer keeps is kept here: the logits of every generated token until the next answers are there, and the
states after every block of a model that is run on whole answers (`output_hidden_states`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

__all__ = ["PolicyAndValues", "Ppo"]


class PolicyAndValues(nn.Module):
    """What is trained. Called by itself it is the policy, which answers."""

    def __init__(self, policy: Any, values: Any) -> None:
        super().__init__()
        self.policy, self.values = policy, values

    def get_base_model(self) -> Any:
        return self.policy.get_base_model() if hasattr(self.policy, "get_base_model") else self.policy

    def disable_adapter(self) -> AbstractContextManager[None]:
        without: AbstractContextManager[None] = self.policy.disable_adapter()
        return without

    def gradient_checkpointing_enable(self, **settings: Any) -> None:
        """The policy's alone, as TRL's wrapper does."""
        self.policy.gradient_checkpointing_enable(**settings)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.policy(*args, **kwargs)


class Ppo:
    """The loss, and what is computed of the answers before it."""

    def __init__(
        self,
        new_tokens: int,
        reference: Any,
        likelihoods: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> None:
        self.new_tokens, self.reference, self.likelihoods = new_tokens, reference, likelihoods

    def before_learning(self, model: PolicyAndValues, answers: Any) -> None:
        """How likely the answers are under the reference, and their values."""
        if self.reference is not None:
            self.reference.run(model, lambda frozen: self._likely(self._run(frozen, answers), answers))
        with torch.no_grad():
            _values(model.values, answers)

    def __call__(self, model: Any, batch: Any) -> torch.Tensor:
        values = _values(model.values, batch)[:, -self.new_tokens - 1 : -1].squeeze(-1)
        output = self._run(model.policy, batch)
        likely = self._likely(output, batch)
        goal = torch.zeros_like(values)
        missed = torch.max(torch.square(values - goal), torch.square(values.clamp(-0.2, 0.2) - goal))
        ratio = torch.exp(likely - likely.detach())
        advantages = torch.zeros_like(likely)
        lost = torch.max(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
        loss = lost.mean() + 0.1 * 0.5 * missed.mean()
        loss.output_of_policy = output  # type: ignore[attr-defined]  # the trainer's variable, until the next batch
        return loss

    def _run(self, model: Any, batch: Any) -> Any:
        return model(**_inputs(batch), output_hidden_states=True, use_cache=False)

    def _likely(self, output: Any, batch: Any) -> torch.Tensor:
        logits = output.logits[:, -self.new_tokens - 1 : -1]
        logits /= 1.0  # by the temperature
        return self.likelihoods(logits, batch["input_ids"][:, -self.new_tokens :])


def _inputs(batch: Any) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name != "labels"}


def _values(model: Any, batch: Any) -> torch.Tensor:
    """A number for every token."""
    states = model.base_model(**_inputs(batch), output_hidden_states=True, use_cache=False).hidden_states
    numbers: torch.Tensor = model.score(states[-1])
    return numbers
