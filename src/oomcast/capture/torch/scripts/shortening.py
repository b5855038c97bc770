"""Loops that only repeat themselves cost nothing more: outermost forwards whose memory is known, and long epochs.

A model that runs without gradients on inputs of the same form, three times with the same memory and nothing left
behind but its output, is not run again: it returns outputs of that form, unless the script holds more by now than when
it was run last, for then its peak is a higher one. So is a model that another one calls in a loop (the thousand steps
of a sampler that is a module itself). The same is done within gradient
accumulation, where the gradients of further micro-batches are added to those that are there, and for all training once
its peak has repeated: the script then comes soon to its evaluation and its checkpoint, which are run as they are. If
even so an epoch takes long, its data loader ends it early.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer as _optimizer
from torch.utils._pytree import tree_flatten
from torch.utils.data import dataloader as _dataloader

from ....trace import Category, Phase
from ..machine import VirtualGpu
from ..patches import Patches
from .batches import BatchChooser, batches_of_an_epoch, handed_out
from .made_up import PLAIN, KnownForward, describe, make_again, tensors_in, tensors_of
from .watching import Numbers, StepWatch, is_about

__all__ = ["ForwardMemory", "install_shortening"]

_ALIKE = 3
"""Forwards of one form that must have taken the same before the next is taken as known."""
_MORE_OF_PEAK = 0.01
"""By which share of a forward's peak what is held may have grown before it is run again."""
_BATCHES_OF_EVALUATION = 32
"""After which an evaluation is ended whose batches leave nothing behind."""
_FEW_BATCHES = 4
_NOT_TRAINING = (Phase.EVALUATION, Phase.GENERATION, Phase.SAVING, Phase.LOADING)
_LEFT_BY_A_BATCH = 4 << 10
"""Bytes: a loss or a count that a script keeps of each batch."""
_BATCHES_OF_FIRST_EPOCH = 500
_BATCHES_OF_EPOCH = 20
"""After which an epoch is ended whose steps have shown their peak: the first is long enough for scripts that evaluate
or save every so many batches, the others bring those on that do so every so many epochs."""


class ForwardMemory:
    """Around every outermost call of a module: runs it, or returns what it is known to return."""

    def __init__(self, virtual: VirtualGpu, watch: StepWatch) -> None:
        self._virtual = virtual
        self._watch = watch
        self._not_run: dict[int, nn.Module] = {}
        """Those whose forward was made up since the last backward."""
        self._gradients: dict[int, tuple[nn.Parameter, torch.Tensor]] = {}
        """By the parameter's id: gradients that were made up, so that the next such step makes none."""
        self._ran: dict[int, nn.Module] = {}
        """Those whose forward was run with gradients since the last update."""
        self._left_with_gradient: set[int] = set()
        """The ids of the parameters that a backward which was run has left with a gradient. Others are unused, or a
        hook takes what they get at once, as Megatron's buffers of gradients do."""
        virtual.ledger.before_phase.append(self._before)
        self._seen: dict[Any, list[KnownForward]] = {}
        self._modules = Numbers()
        self._pending: dict[Any, tuple[KnownForward, list[int], int]] = {}
        """By form: what its last run took, the blocks it left behind, and how many of these are its output."""
        self._inner_calls: dict[int, int] | None = None
        """By the id of a module that an outermost one without gradients calls: how often it did so."""
        self.skipped = 0
        self.asks_for_gradients = False
        """Whether the script takes the gradients of its parameters itself (`torch.autograd.grad`), as meta-learners do:
        what was not run has none to give."""
        self._in_window: list[Any] = []
        """Forms of the outermost forwards with gradients since the last backward."""
        self._rounds: list[tuple[tuple[Any, ...], int, int]] = []
        """Of the backwards since the last update: those forms, their highest (0 if none ran), what was held."""
        self._round_highest = 0

    # -- told by the script's run ----------------------------------------------------------------------------------

    def after_backward(self) -> None:
        builder = self._virtual.ledger
        self._note_gradients()
        self._give_gradients()
        self._rounds.append((tuple(self._in_window), self._round_highest, builder.held))
        self._in_window.clear()
        self._round_highest = 0

    def after_step(self) -> None:
        self._rounds.clear()
        self._in_window.clear()
        self._ran.clear()

    def _note_gradients(self) -> None:
        with torch._C.DisableTorchFunction():
            for module in self._ran.values():
                with_one = (id(parameter) for parameter in module.parameters() if parameter.grad is not None)
                self._left_with_gradient.update(with_one)

    def _give_gradients(self) -> None:
        """What was not run has no gradients, and the optimizer asks for them where a backward leaves them."""
        missing = []
        with torch._C.DisableTorchFunction():
            for module in self._not_run.values():
                for parameter in module.parameters():
                    left = parameter.requires_grad and id(parameter) in self._left_with_gradient
                    if left and parameter.grad is None:
                        _, kept = self._gradients.get(id(parameter), (None, None))
                        if kept is not None and kept.shape == parameter.shape and kept.dtype == parameter.dtype:
                            parameter.grad = kept
                        else:
                            missing.append(parameter)
        self._not_run.clear()
        with torch.no_grad():
            for parameter in missing:
                parameter.grad = torch.empty_like(parameter)
                self._virtual.recorder.label(parameter.grad, Category.GRADIENT)
                if self._watch.is_steady:
                    self._gradients[id(parameter)] = parameter, parameter.grad

    def _before(self, phase: Phase) -> None:
        if phase in _NOT_TRAINING:
            self._stop_making_up()

    def _stop_making_up(self) -> None:
        """What is run again finds those gradients that the script has kept, and may make new tensors."""
        self._gradients.clear()
        self._virtual.nothing_new = False

    # -- the call --------------------------------------------------------------------------------------------------

    def call(self, run: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        form = _form(self._modules.of(module), module, args, kwargs)
        self._virtual.label((args, kwargs), Category.INPUT)
        if torch.is_grad_enabled():
            return self._with_gradients(form, run, module, args, kwargs)
        self._inner_calls = {}
        try:
            return self._without_gradients(form, run, module, args, kwargs)
        finally:
            self._inner_calls = None

    def call_within(self, run: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        """A call inside of an outermost one."""
        calls = self._inner_calls
        if calls is None or torch.is_grad_enabled():
            return run(module, *args, **kwargs)
        calls[id(module)] = calls.get(id(module), 0) + 1
        if calls[id(module)] <= _ALIKE or not module._modules:
            return run(module, *args, **kwargs)
        form = _form(self._modules.of(module), module, args, kwargs)
        self._inner_calls = None  # what it calls itself is measured with it
        try:
            return self._without_gradients(form, run, module, args, kwargs)
        finally:
            self._inner_calls = calls

    def _without_gradients(self, form: Any, run: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        if form is None:
            return run(module, *args, **kwargs)
        self._learn(form)
        known = self._seen.get(form, [])
        if len(known) >= _ALIKE and not self._would_be_higher(known[-1]):
            self._virtual.saw_model(module)
            self.skipped += 1
            return make_again(known[-1])
        return self._measured(form, run, module, args, kwargs)

    def _would_be_higher(self, known: KnownForward) -> bool:
        """Whether so much was kept since it was run last, such as its outputs, that it has to be run on top of that."""
        more = self._virtual.ledger.held - known.before
        return more > _MORE_OF_PEAK * (known.before + known.extra)

    def _with_gradients(self, form: Any, run: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        known = self._seen.get(("training", form))
        repeats = not self.asks_for_gradients and (self._watch.is_steady or self._repeats(form))
        if form is not None and known and repeats:
            self._virtual.saw_model(module)
            self._in_window.append(form)
            self.skipped += 1
            self._not_run[id(module)] = module
            self._virtual.nothing_new = self._watch.is_steady
            return make_again(known[-1], [one for one in tensors_in((args, kwargs)) if one.requires_grad])
        self._stop_making_up()
        self._ran[id(module)] = module
        with self._virtual.ledger.highest_within() as highest:
            output = run(module, *args, **kwargs)
        self._round_highest = max(self._round_highest, highest[0])
        self._in_window.append(form)
        if form is not None and (described := describe(output, module, (args, kwargs))) is not None:
            self._seen[("training", form)] = [KnownForward(0, 0, *described)]
        return output

    def _repeats(self, form: Any) -> bool:
        """Whether the last micro-batches of this step were alike, and this one begins as they did."""
        if len(self._rounds) < _ALIKE:
            return False
        forms, highest, held = self._rounds[-1]
        place = len(self._in_window)
        return (
            tuple(forms[:place]) == tuple(self._in_window)
            and place < len(forms)
            and forms[place] == form
            and all(
                other[0] == forms
                and is_about(other[2], held)
                and (not other[1] or not highest or is_about(other[1], highest))
                for other in self._rounds[1 - _ALIKE :]
            )
        )

    def _measured(self, form: Any, run: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        builder = self._virtual.ledger
        before, held = builder.newest, builder.held
        with builder.highest_within() as highest:
            output = run(module, *args, **kwargs)
        described = describe(output, module, (args, kwargs))
        if described is not None:
            left, outputs = builder.live_after(before), len({one.storage for one in tensors_of(described[0])})
            self._pending[form] = KnownForward(highest[0] - held, held, *described), left, outputs
        return output

    def _learn(self, form: Any) -> None:
        """When a form comes again: whether the last time has left anything behind but, perhaps, its output."""
        if form not in self._pending:
            return
        taken, left, outputs = self._pending.pop(form)
        known = self._seen.setdefault(form, [])
        left_behind = sum(map(self._virtual.ledger.is_live, left)) > outputs
        differs = known and (not is_about(known[-1].extra, taken.extra) or known[-1].leaves != taken.leaves)
        if left_behind or differs:
            known.clear()
        if not left_behind:
            known.append(taken)


def _form(number: int, module: nn.Module, args: Any, kwargs: Any) -> Any:
    """What decides the memory of a forward; None where an argument is more than tensors and plain values."""
    leaves, spec = tree_flatten((args, kwargs))
    form: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            on_gpu = isinstance(leaf, FakeTensor) and leaf.fake_device.index is not None
            form.append((tuple(leaf.shape), tuple(leaf.stride()), leaf.dtype, on_gpu, leaf.requires_grad))
        elif isinstance(leaf, PLAIN):
            form.append((type(leaf), leaf))
        else:
            return None
    return number, module.training, torch.is_autocast_enabled("cuda"), tuple(form), str(spec)


def install_shortening(patches: Patches, virtual: VirtualGpu, watch: StepWatch, batches: BatchChooser) -> ForwardMemory:
    """Outermost calls go through the memory; loaders end their epochs when `watch` has seen enough of training."""
    memory = ForwardMemory(virtual, watch)
    own = os.getpid()  # the script's own processes, such as its loaders' workers, have no virtual GPU

    def remembering(call: Callable[..., Any]) -> Callable[..., Any]:
        def call_or_remember(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if os.getpid() != own or torch._C._current_autograd_node() is not None:
                return call(module, *args, **kwargs)
            if virtual.scope.inside_module:
                return memory.call_within(call, module, args, kwargs)
            return memory.call(call, module, args, kwargs)

        return call_or_remember

    patches.set(nn.Module, "__call__", remembering(nn.Module.__call__))
    virtual.compiled.around_modules = remembering
    gradients = torch.autograd.grad

    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = inputs if isinstance(inputs, torch.Tensor) else tuple(inputs)
        if any(isinstance(tensor, nn.Parameter) for tensor in tensors_in(inputs)):
            memory.asks_for_gradients = True
        return gradients(outputs, inputs, *args, **kwargs)

    patches.set(torch.autograd, "grad", grad)
    clip = nn.utils.clip_grad_norm_

    def clip_or_not(*args: Any, **kwargs: Any) -> torch.Tensor:
        """Gradients that were made up are not clipped again: the steps that were run have shown what it takes."""
        return torch.ones((), device="cuda") if virtual.nothing_new else clip(*args, **kwargs)

    for owner in (nn.utils, nn.utils.clip_grad):
        patches.set(owner, "clip_grad_norm_", clip_or_not)
    _install_loaders(patches, virtual, watch, batches)
    _install_optimizers(patches, virtual, watch)
    return memory


def _install_optimizers(patches: Patches, virtual: VirtualGpu, watch: StepWatch) -> None:
    """Steps after the peak has repeated are made up: torch's optimizers leave parameters without gradients alone."""
    hidden: list[tuple[nn.Parameter, torch.Tensor]] = []

    def hide(optimizer: Any, args: Any, kwargs: Any) -> None:
        kind = type(optimizer)
        is_made_up = watch.is_steady and watch.knows(optimizer) and kind.__module__.startswith("torch.optim.")
        if not is_made_up or kind is torch.optim.LBFGS or args[1:] or kwargs:  # a closure computes gradients meanwhile
            virtual.nothing_new = False
            return
        with torch._C.DisableTorchFunction():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        hidden.append((parameter, parameter.grad))
                        parameter.grad = None

    def show(optimizer: Any, args: Any, kwargs: Any) -> None:
        with torch._C.DisableTorchFunction():
            for parameter, gradient in hidden:
                parameter.grad = gradient
        hidden.clear()

    patches.at_the_end(_optimizer.register_optimizer_step_pre_hook(hide).remove)
    patches.at_the_end(_optimizer.register_optimizer_step_post_hook(show).remove)


class _Epoch:
    """One pass through a data loader."""

    def __init__(self, virtual: VirtualGpu) -> None:
        self._virtual = virtual
        self.batches = 0
        self._held: list[int] = []
        self._forms: list[Any] = []
        self._last: Any = None
        self._since_steady = 0
        self._steps = 0

    def may_end(self, watch: StepWatch) -> bool:
        """Whether the batches so far have shown what the next ones would."""
        ledger = self._virtual.ledger
        self.batches += 1
        trained, self._steps = watch.steps > self._steps, watch.steps
        if self.batches == 1:
            return False
        if watch.is_steady:
            self._since_steady += 1
            if trained:
                most = _BATCHES_OF_EPOCH if watch.epochs_since_steady else _BATCHES_OF_FIRST_EPOCH
                return self._since_steady > most
        if ledger.phase not in (Phase.EVALUATION, Phase.GENERATION):
            self._held.clear()
            return False
        self._held.append(ledger.held)
        if len(self._held) < _BATCHES_OF_EVALUATION:
            return False
        return self._held[-1] - self._held[-_FEW_BATCHES] <= _FEW_BATCHES * _LEFT_BY_A_BATCH

    def got(self, batch: Any) -> Any:
        """A batch of the script's own."""
        self._last, form = _copied(batch)
        self._forms = [*self._forms[1 - _ALIKE :], form]
        return batch

    def again(self, watch: StepWatch) -> Any:
        """The last batch once more, where the next would be like it and only its size matters; None where not."""
        forms = self._forms
        if len(forms) < _ALIKE or forms[-1] is None or any(form != forms[-1] for form in forms):
            return None
        if not watch.is_steady and self._virtual.ledger.phase is not Phase.EVALUATION:
            return None
        return _copied(self._last)[0]


def _copied(batch: Any) -> tuple[Any, Any]:
    """The same tensors in containers of their own, and the batch's form; None where it is more than those."""
    form = _form_of_batch(batch)
    return (None, None) if form is None else (handed_out(batch), form)


def _form_of_batch(batch: Any) -> Any:
    leaves, spec = tree_flatten(batch)
    form: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            form.append((tuple(leaf.shape), leaf.dtype))
        elif isinstance(leaf, (*PLAIN, bytes)):
            form.append(type(leaf))
        elif isinstance(leaf, Mapping) and (inner := _form_of_batch(dict(leaf))) is not None:  # of transformers
            form.append((type(leaf), inner))
        else:
            return None
    return tuple(form), str(spec)


def _install_loaders(patches: Patches, virtual: VirtualGpu, watch: StepWatch, batches: BatchChooser) -> None:
    base = _dataloader._BaseDataLoaderIter
    following = base.__next__
    own = os.getpid()

    def next_batch(iterator: Any) -> Any:
        if os.getpid() != own:
            return following(iterator)
        epoch = iterator.__dict__.get("_oomcast_epoch")
        if epoch is None:
            epoch = iterator._oomcast_epoch = _Epoch(virtual)
        try:
            if epoch.may_end(watch):
                raise StopIteration
            length = batches_of_an_epoch(iterator)
            if length is not None and (repeated := epoch.again(watch)) is not None:
                if epoch.batches > length:
                    raise StopIteration
                batches.repeated += 1
                return repeated
            return epoch.got(batches.next(iterator, epoch.batches - 1, following, steady=watch.is_steady))
        except StopIteration:
            iterator._oomcast_epoch = None  # a persistent iterator is used for the next epoch as well
            watch.epoch_ended()
            raise

    patches.set(base, "__next__", next_batch)
