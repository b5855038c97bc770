"""A job's own model that is a plain `nn.Sequential` of modules of torch which repeat: how they look, so that a
shallower model of the same kind can be built without the job's code.

Of a model with a `forward` of its own it is not known that it treats equal layers alike. `nn.Sequential` calls one
after the other, and torch's modules know nothing of each other. What else the job does with its model (its loss, its
optimizer) is not known either: three depths are captured, and the deepest must be what the other two foretell.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from oomcast.spec import Workload

from .equal_layers import attributes_of, treats_layers_alike

__all__ = ["EqualChildren", "RepeatsChildren", "equal_children", "stopping_at_equal_children"]

_ROUNDS = 6
"""Of the children that repeat, in the shallowest model: what differs at the ends of loops, and rounds that agree."""
_LONGEST_ROUND = 8
_WORTH_IT = 48
"""Rounds: the three shallow models together have half as many."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_TENSORS = ("_parameters", "_buffers", "_modules")


class EqualChildren(NamedTuple):
    blueprints: tuple[Callable[[], nn.Module], ...]
    """Builds each child anew, on the host."""
    first: int
    """From which child on they repeat."""
    period: int
    rounds: int
    """How often they do."""

    @property
    def shallow(self) -> int:
        """Rounds of the shallowest model."""
        return _ROUNDS

    def model(self, rounds: int) -> nn.Module:
        """The same with so many rounds."""
        end = self.first + self.period * self.rounds
        kept = (*self.blueprints[: self.first + self.period * rounds], *self.blueprints[end:])
        return nn.Sequential(*(build() for build in kept))


class RepeatsChildren(Exception):
    """The job's model was built, and need not be run at its whole depth."""

    def __init__(self, children: EqualChildren) -> None:
        super().__init__("the model repeats its children")
        self.children = children


def stopping_at_equal_children(build: Callable[[], Any], workload: Workload) -> Callable[[], Any]:
    """A job's `model()` that raises `RepeatsChildren` where that is so."""

    def model() -> Any:
        built = build()
        children = equal_children(built, workload)
        if children is not None:
            raise RepeatsChildren(children)
        return built

    return model


def equal_children(model: Any, workload: Workload) -> EqualChildren | None:
    """None where it is another model, or the workload treats its layers differently."""
    if type(model) is not nn.Sequential or len(model) < _WORTH_IT or workload.parallel is not None:
        return None
    if workload.adapter is not None or workload.weights is not None or not treats_layers_alike(workload):
        return None
    if not _is_plain(model):
        return None
    kinds = [(*attributes_of(child), *(one.requires_grad for one in child.parameters())) for child in model]
    found = _run(kinds)
    if found is None:
        return None
    first, period, rounds = found
    return EqualChildren(tuple(map(_blueprint, model)), first, period, rounds)


def _is_plain(module: nn.Module) -> bool:
    """All of it is torch's own code, on the host, with no hooks, and shares no tensor."""
    seen: set[int] = set()
    for _, part in module.named_modules(remove_duplicate=False):
        if id(part) in seen:
            return False
        seen.add(id(part))
        if not type(part).__module__.startswith("torch.nn.modules.") or any(getattr(part, hook) for hook in _HOOKS):
            return False
        for tensor in (*part._parameters.values(), *part._buffers.values()):
            if tensor is None:
                continue
            # Those on the GPU have an index: see `devices.py`.
            is_on_host = tensor.device.type == "cpu" and tensor.device.index is None
            if id(tensor) in seen or not is_on_host or not tensor.is_contiguous():
                return False
            seen.add(id(tensor))
    return True


def _run(kinds: list[Any]) -> tuple[int, int, int] | None:
    """Where a run of rounds begins, how long a round is, and how many there are."""
    best: tuple[int, int, int] | None = None
    for period in range(1, _LONGEST_ROUND + 1):
        start = 0
        while start + period < len(kinds):
            end = start
            while end + period < len(kinds) and kinds[end] == kinds[end + period]:
                end += 1
            rounds = (end - start) // period + 1
            if rounds >= _WORTH_IT and rounds * period > (best[1] * best[2] if best else 0):
                best = (start, period, rounds)
            start = end + 1
    return best


def _blueprint(module: nn.Module) -> Callable[[], nn.Module]:
    state = {name: value for name, value in vars(module).items() if name not in _TENSORS}
    parameters = {name: _form(tensor) for name, tensor in module._parameters.items()}
    buffers = {name: _form(tensor) for name, tensor in module._buffers.items()}
    parts = {name: None if part is None else _blueprint(part) for name, part in module._modules.items()}

    def build() -> nn.Module:
        built = module.__class__.__new__(module.__class__)
        nn.Module.__init__(built)
        vars(built).update(copy.deepcopy(state))
        for name, form in parameters.items():
            built.register_parameter(name, None if form is None else nn.Parameter(_empty(form), form.is_trained))
        for name, form in buffers.items():
            built.register_buffer(name, None if form is None else _empty(form), name not in _unsaved(state))
        for name, part in parts.items():
            built.add_module(name, None if part is None else part())
        return built

    return build


class _Form(NamedTuple):
    shape: tuple[int, ...]
    dtype: torch.dtype
    is_trained: bool


def _form(tensor: torch.Tensor | None) -> _Form | None:
    return None if tensor is None else _Form(tuple(tensor.shape), tensor.dtype, tensor.requires_grad)


def _empty(form: _Form) -> torch.Tensor:
    return torch.zeros(form.shape, dtype=form.dtype)


def _unsaved(state: dict[str, Any]) -> set[str]:
    unsaved: set[str] = state["_non_persistent_buffers_set"]
    return unsaved
