"""The stages of a pipeline that one GPU has: their own blocks of the model, run by torch's own pipelining.

The blocks are divided evenly, or, where that cannot be, so that what stands before them and what follows each count as
a block, as torchtitan does it (`own_blocks`). What stands before them (embeddings) is the first stage's, what follows
(norm, head) the last one's; the others get hollow modules in their place. The model's own forward runs: on a later
stage, the first own block takes a received buffer instead of its input; on an earlier one, the forward ends after the
last own block. All else is torch's: its stages have the buffers and talk to their neighbours, its schedules run them
(`torch.distributed.pipelining`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map

from ....errors import BadInput
from ....spec import Parallel
from ..blocks import repeated_blocks
from .schedules import enough_micro_batches, keeps_what_it_sends, torch_schedule

__all__ = ["Part", "Pipeline", "cut_stages", "own_blocks"]

Run = Callable[[nn.Module], torch.Tensor]


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


class Part:
    """The model of one stage, and how it runs a micro-batch."""

    def __init__(
        self, model: nn.Module, number: int, count: int, seen: _Seen, first_block: nn.Module, blocks: int
    ) -> None:
        self.model = model
        self.number, self.count = number, count
        self.divided = "the blocks are divided evenly"
        """How, in words."""
        if blocks % count:
            self.divided = "the first and the last stage have a block less than the others"
        self.form = _Form(*seen.hidden)
        """Of what is received and sent."""
        self._received: torch.Tensor | None = None
        self._output: Any = None
        if number > 0:
            first_block.register_forward_pre_hook(self._take_received, with_kwargs=True)
        if number == count - 1:
            model.register_forward_hook(self._note_output)

    def _take_received(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if args:
            return (self._received, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": self._received}

    def _note_output(self, module: nn.Module, args: Any, output: Any) -> None:
        self._output = output

    @property
    def neighbours(self) -> int:
        return (self.number > 0) + (self.number < self.count - 1)

    def forward(self, run: Run, received: torch.Tensor | None) -> torch.Tensor:
        """What the stage sends, or the loss."""
        # It stays until the next: a block that is recomputed in backward takes it again.
        self._received = received
        try:
            loss = run(self.model)
            # torch's stage keeps what its module returns, which is not the loss, as long as a micro-batch is under way.
            loss.output_of_stage = self._output  # type: ignore[attr-defined]
            return loss
        except _StageDone as done:
            done.__traceback__ = None  # its frames would keep the activations
            return done.output
        finally:
            self._output = None


class _Stage(PipelineStage):
    """torch's stage, whose forward is the job's: it calls the model itself, with a batch that it has."""

    def __init__(self, part: Part, run: Run, group: Any) -> None:
        sent = torch.empty(part.form.shape, dtype=part.form.dtype, device="meta", requires_grad=True)
        super().__init__(
            part.model,
            part.number,
            part.count,
            torch.device("cuda", torch.cuda.current_device()),
            input_args=(sent,) if part.number > 0 else (),
            output_args=(sent,),
            group=group,
        )
        self._part, self._run = part, run

    def forward_maybe_with_nosync(self, *received: Any, **_: Any) -> Any:
        model = self._part.model
        with model.no_sync() if isinstance(model, DistributedDataParallel) else contextlib.nullcontext():
            return self._part.forward(self._run, *received or (None,))


def _loss_of_stage(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A tensor of its own: a schedule keeps the losses of a step."""
    return output * 1


class Pipeline:
    """The stages that this rank has, and how a step goes through them."""

    def __init__(self, parallel: Parallel, place: int, parts: list[Part]) -> None:
        self.parallel, self.place = parallel, place
        self._parts = parts
        self._schedule: Any = None
        self._run_of_job: Run | None = None
        self._further: list[torch.Tensor] = []

    @property
    def divided(self) -> str:
        return self._parts[0].divided

    def put(self, place: Callable[[nn.Module], nn.Module]) -> nn.Module:
        """Each stage's model is replaced by what `place` makes of it; what is returned has the parameters of all."""
        for part in self._parts:
            part.model = place(part.model)
        models = [part.model for part in self._parts]
        return models[0] if len(models) == 1 else nn.ModuleList(models)

    @property
    def takes_batches(self) -> bool:
        """Whether torch is handed a whole batch at once, as input of the first stage."""
        return any(part.number == 0 for part in self._parts)

    def micro_batches_to_run(self, micro_batches: int) -> int:
        return enough_micro_batches(self.parallel, self.place, micro_batches)

    def step(self, micro_batches: int, run: Run, group: Any) -> None:
        """The micro-batches of a step; `run` takes the next batch through a stage's model and returns its loss.

        Those that only repeat what others did before are not run, but what is held for them is there.
        """
        run_here = self.micro_batches_to_run(micro_batches)
        if self._schedule is None:
            self._hold_for(micro_batches - run_here)
            stages = [_Stage(part, lambda model: self._call(model), group) for part in self._parts]
            self._schedule = torch_schedule(self.parallel, stages, run_here, loss_fn=_loss_of_stage)
        self._run_of_job = run
        try:
            self._schedule.step(target=torch.empty(run_here), return_outputs=False)
        except RuntimeError as error:
            # torch says which stage failed; why is what it was raised from.
            raise error.__cause__ or error from None
        finally:
            self._run_of_job = None

    def _call(self, model: nn.Module) -> torch.Tensor:
        assert self._run_of_job is not None
        return self._run_of_job(model)

    def _hold_for(self, further: int) -> None:
        """For each of the micro-batches that are not run: its buffers, and what was sent of it, if that is kept."""
        times = 2 if keeps_what_it_sends(self.parallel) else 1
        for part in self._parts:
            for _ in range(further * part.neighbours * times):
                self._further.append(torch.empty(part.form.shape, dtype=part.form.dtype, device="cuda"))


def own_blocks(blocks: int, number: int, count: int) -> range:
    """The blocks of a stage. 126 of them are 8 for each of 16 stages, 7 for the first and the last, which have the
    embedding and the head beside them: Llama 3 405B was trained so (arXiv:2407.21783, 3.3.2), and torchtitan divides so
    (distributed/pipeline_parallel.py at bcc0929, generate_llm_fqn_per_model_part)."""
    if blocks % count == 0:
        return range(number * blocks // count, (number + 1) * blocks // count)
    to_a_stage, rest = divmod(blocks + 2, count)
    if rest or to_a_stage < 2:
        raise BadInput(
            f"a pipeline of {count} stages does not divide the {blocks} blocks of the model; choose a divisor."
        )
    return range(max(number * to_a_stage - 1, 0), min((number + 1) * to_a_stage - 1, blocks))


def cut_stages(
    model: nn.Module, number: int, count: int, run: Callable[[nn.Module], Any], cast: torch.dtype | None = None
) -> Part:
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
    return Part(model, number, count, seen, blocks[own.start], len(blocks))


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
