"""One stage of a pipeline: its own blocks of the model, and torch's 1F1B order of micro-batches.

The blocks are divided evenly, or, where that cannot be, so that what stands before them and what follows each count as
a block, as torchtitan does it (`own_blocks`). What stands before them (embeddings) is the first stage's, what follows
(norm, head) the last one's; the others get hollow modules in their place. The model's own forward runs: on a later
stage, the first own block takes a received buffer instead of its input; on an earlier one, the forward ends after the
last own block. As in
`torch.distributed.pipelining`, a stage has a buffer to receive into for each micro-batch, for activations and for
gradients, and keeps up to (stages - its number) micro-batches in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_map

from ....errors import BadInput
from ..blocks import repeated_blocks

__all__ = ["Stage", "cut_stages", "own_blocks"]


class _StageDone(Exception):
    """The forward came to the end of the stage's own blocks."""

    def __init__(self, output: torch.Tensor) -> None:
        super().__init__("the stage is done")
        self.output = output


@dataclass(frozen=True)
class _Seen:
    """What a forward of the whole model on the host showed: shapes and types, no memory of the GPU."""

    before: frozenset[int]
    """Modules, by id, that were called before the first block; `after` those called after the last one."""
    after: frozenset[int]
    hidden: tuple[tuple[int, ...], torch.dtype]
    results: dict[int, Any]
    """What each of the modules before returned, as shapes and types."""
    in_tuple: bool
    """Whether a block returns its output in a tuple."""

    def in_type(self, dtype: torch.dtype) -> _Seen:
        """What the same forward shows where the modules' wrapper casts them."""

        def cast(item: Any) -> Any:
            return replace(item, dtype=dtype) if isinstance(item, _Form) and item.dtype.is_floating_point else item

        results = tree_map(cast, self.results, is_leaf=lambda item: isinstance(item, _Form))
        return replace(self, hidden=(self.hidden[0], dtype), results=results)


class _Hollow(nn.Module):
    """In the place of a module of another stage: its result's shape, without memory."""

    def __init__(self, result: Any = None, held: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.result = result
        self.held = held
        """Names of the parameters and buffers that the module itself had."""

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("held", ()):
            raise BadInput(
                f"pp was asked for, but a stage reads the {name} of a layer that another stage has, outside of that "
                "layer; give each its own, like a head with a weight that is tied to the embedding's."
            )
        return super().__getattr__(name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return tree_map(_without_memory, self.result, is_leaf=lambda item: isinstance(item, _Form))


@dataclass(frozen=True)
class _Form:
    shape: tuple[int, ...]
    dtype: torch.dtype


def _without_memory(item: Any) -> Any:
    if not isinstance(item, _Form):
        return item
    return torch.empty((), dtype=item.dtype, device="cuda").expand(item.shape)


class _PassedBlock(nn.Module):
    """In the place of a block of another stage."""

    def __init__(self, in_tuple: bool, ends: bool) -> None:
        super().__init__()
        self.in_tuple, self.ends = in_tuple, ends

    def forward(self, hidden: Any = None, *args: Any, **kwargs: Any) -> Any:
        hidden = kwargs.get("hidden_states", hidden)
        if self.ends:
            raise _StageDone(hidden)
        return (hidden,) if self.in_tuple else hidden


class Stage:
    """The model of one stage, and how a step goes through it."""

    def __init__(
        self, model: nn.Module, number: int, count: int, seen: _Seen, first_block: nn.Module, blocks: int
    ) -> None:
        self.model = model
        self.number, self.count = number, count
        self.divided = "the blocks are divided evenly"
        """How, in words."""
        if blocks % count:
            self.divided = "the first and the last stage have a block less than the others"
        self._form = _Form(*seen.hidden)
        self._received: torch.Tensor | None = None
        self._buffers: list[torch.Tensor] = []
        self._gradients: list[torch.Tensor] = []
        if number > 0:
            first_block.register_forward_pre_hook(self._take_received, with_kwargs=True)

    def _take_received(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if args:
            return (self._received, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": self._received}

    def micro_batches_to_run(self, micro_batches: int) -> int:
        """How many of them tell what all hold: those in flight at once, and one that takes the place of another."""
        return min(micro_batches, self.count - self.number + 1)

    def step(self, micro_batches: int, forward: Callable[[], torch.Tensor], group: Any) -> None:
        """The micro-batches of a step in 1F1B order; `forward` runs the next one and returns its loss.

        There are buffers for all of them; those that only repeat what others did before are not run.
        """
        if not self._buffers:
            self._make_buffers(micro_batches)
        waiting: list[tuple[int, torch.Tensor]] = []
        started = 0

        def start() -> None:
            nonlocal started
            waiting.append((started, self._forward(started, forward, group)))
            started += 1

        micro_batches = self.micro_batches_to_run(micro_batches)
        for _ in range(min(micro_batches, self.count - self.number)):
            start()
        while waiting:
            self._backward(*waiting.pop(0), group)
            if started < micro_batches:
                start()

    def _make_buffers(self, micro_batches: int) -> None:
        def buffers() -> list[torch.Tensor]:
            return [torch.empty(self._form.shape, dtype=self._form.dtype, device="cuda") for _ in range(micro_batches)]

        if self.number > 0:
            self._buffers = buffers()
        if self.number < self.count - 1:
            self._gradients = buffers()

    def _forward(self, place: int, forward: Callable[[], torch.Tensor], group: Any) -> torch.Tensor:
        if self.number > 0:
            self._received = self._buffers[place].detach().requires_grad_()
            dist.recv(self._received, group=group, group_src=self.number - 1)
        try:
            output = forward()
        except _StageDone as done:
            output = done.output
            done.__traceback__ = None  # its frames would keep the activations
            dist.send(output.detach(), group=group, group_dst=self.number + 1)
        return output

    def _backward(self, place: int, output: torch.Tensor, group: Any) -> None:
        if self.number == self.count - 1:
            output.backward()
        else:
            dist.recv(self._gradients[place], group=group, group_src=self.number + 1)
            torch.autograd.backward([output], [self._gradients[place]])


def own_blocks(blocks: int, number: int, count: int) -> range:
    """The blocks of a stage. 126 of them are 8 for each of 16 stages, 7 for the first and the last, which have the
    embedding and the head beside them: Llama 3 405B was trained so (arXiv:2407.21783, 3.3.2), and torchtitan divides so
    (distributed/pipeline_parallel.py at bcc0929, generate_llm_fqn_per_model_part)."""
    if blocks % count == 0:
        return range(number * blocks // count, (number + 1) * blocks // count)
    to_a_stage, rest = divmod(blocks + 2, count)
    if rest or to_a_stage < 2:
        raise BadInput(f"pp={count} does not divide the {blocks} blocks of the model; choose a divisor.")
    return range(max(number * to_a_stage - 1, 0), min((number + 1) * to_a_stage - 1, blocks))


def cut_stages(
    model: nn.Module, number: int, count: int, run: Callable[[nn.Module], Any], cast: torch.dtype | None = None
) -> Stage:
    """Keep what belongs to a stage. `run` calls the whole model, still on the host, on a batch; `cast` is the type in
    which the blocks will work, where their wrapper casts them."""
    blocks = repeated_blocks(model)
    if not blocks:
        raise BadInput(f"pp={count} was asked for, but the model has no repeated blocks to divide among the stages.")
    own = own_blocks(len(blocks), number, count)
    seen = _look(model, blocks, run)
    hollow: dict[int, nn.Module] = {}
    for place, block in enumerate(blocks):
        if place not in own:
            hollow[id(block)] = _PassedBlock(seen.in_tuple, ends=place == own.stop)
    for module in model.modules():
        if number > 0 and id(module) in seen.before:
            hollow[id(module)] = _Hollow(seen.results.get(id(module)), _held(module))
        if number < count - 1 and id(module) in seen.after:
            hollow[id(module)] = _Hollow(held=_held(module))
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if id(child) in hollow:
                setattr(parent, name, hollow[id(child)])
    if cast is not None:
        seen = seen.in_type(cast)
    return Stage(model, number, count, seen, blocks[own.start], len(blocks))


def _held(module: nn.Module) -> frozenset[str]:
    return frozenset((*module._parameters, *module._buffers))


def _look(model: nn.Module, blocks: list[nn.Module], run: Callable[[nn.Module], Any]) -> _Seen:
    inside = {id(part) for block in blocks for part in block.modules()}
    holders = {id(parent) for parent in model.modules() if any(id(part) in inside for part in parent.modules())}
    beside = [module for module in model.modules() if id(module) not in inside | holders]
    order: list[int] = []
    results: dict[int, Any] = {}
    hidden: list[Any] = []

    def note(module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        order.append(id(module))
        results[id(module)] = tree_map(
            lambda item: _Form(tuple(item.shape), item.dtype) if isinstance(item, torch.Tensor) else item, result
        )
        if module is blocks[0]:
            hidden.append(args[0] if args else kwargs.get("hidden_states"))

    handles = [module.register_forward_hook(note, with_kwargs=True) for module in (*beside, *blocks)]
    try:
        with torch.no_grad():
            run(model)
    finally:
        for handle in handles:
            handle.remove()
    if not hidden or not isinstance(hidden[0], torch.Tensor) or id(blocks[-1]) not in order:
        raise BadInput("pp was asked for, but the model's blocks are not called one after another with a tensor.")
    first, last = order.index(id(blocks[0])), len(order) - 1 - order[::-1].index(id(blocks[-1]))
    kept = {id(module) for module in beside}
    return _Seen(
        before=frozenset(one for one in order[:first] if one in kept),
        after=frozenset(one for one in order[last:] if one in kept),
        hidden=(tuple(hidden[0].shape), hidden[0].dtype),
        results={one: results[one] for one in order[:first]},
        in_tuple=isinstance(results[id(blocks[0])], tuple),
    )
