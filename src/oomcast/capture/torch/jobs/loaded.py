"""The functions of a job, whatever library it came from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oomcast.errors import BadInput

__all__ = ["LoadedJob", "call_batch", "learns_from", "loss_of", "run_model"]


def _nothing(model: nn.Module) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class LoadedJob:
    """`batch` has its sizes bound already; what the job leaves open is None.

    Without a `loss`, the training loop is the plain one: it runs the model, keeps the output until the next one takes
    its place, and computes the loss from it.
    """

    model: Callable[[], nn.Module]
    batch: Callable[[], Any]
    loss: Callable[[nn.Module, Any], torch.Tensor] | None = None
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None
    loader: Callable[[], Iterable[Any]] | None = None
    """What the batches come from, where it matters how many of them it keeps on the GPU."""
    prompts: Callable[[], Any] | None = None
    """What the model answers before each step, where it learns from its own answers."""
    score: Callable[[nn.Module], None] | None = None
    """Runs, on the GPU, what tells how good the model's answers are, before they are learnt from."""
    frozen: Callable[[], Iterable[nn.Module]] | None = None
    """Puts the models on the GPU that stand beside the trained one and are not trained."""
    load: Callable[[nn.Module], nn.Module] | None = None
    """Puts the weights of the model that was built on the GPU, where that is more than moving it there."""
    tune: Callable[[nn.Module], nn.Module] | None = None
    """What is done to the model before it is trained, once its weights are there: adapters, what is frozen."""
    tensor_parallel_plan: Callable[[nn.Module], Any] | None = None
    """Names of layers → how they are cut over several GPUs."""
    assumptions: tuple[str, ...] = ()
    """What was chosen for the user and changes the answer."""
    about_model: Callable[[nn.Module], Iterable[str]] = _nothing
    """The same, where only the model that was built tells it."""

    def batches(self) -> Iterator[Any]:
        """Without end: a loader that has no more begins again."""
        while self.loader is None:
            yield self.batch()
        while True:
            is_empty = True
            for batch in self.loader():
                is_empty = False
                yield batch
            if is_empty:
                raise BadInput("batches(batch_size) gives no batch; it must give one at least.")


def call_batch(
    batch: Callable[..., Any], batch_size: int, input_shape: tuple[int, ...] | None, seq_len: int | None
) -> Any:
    """Call a job's `batch`, with the sizes that were asked for, if it takes them."""
    sizes = {"input_shape": input_shape, "seq_len": seq_len}
    wanted = {name: size for name, size in sizes.items() if size is not None}
    if wanted:
        parameters = inspect.signature(batch).parameters
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        for name in wanted:
            if name not in parameters and not takes_any:
                option = "--" + name.replace("_", "-")
                raise BadInput(f"{option} was given, but the job's batch() takes no {name}; add it as a parameter.")
    return batch(batch_size, **wanted)


def run_model(model: nn.Module, batch: Any) -> Any:
    """The model's output for a batch: keyword arguments, `(x, y)` of which it gets x, or positional ones."""
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, (tuple, list)):
        return model(batch[0]) if len(batch) == 2 else model(*batch)
    return model(batch)


def loss_of(output: Any, batch: Any) -> torch.Tensor:
    """The output's own `.loss`; else cross entropy on `(x, y)`; else, where there are no classes, the mean."""
    loss = _own_loss(output)
    if loss is not None:
        return loss
    first = _first_tensor(output)
    return F.cross_entropy(first, batch[1]) if _has_classes(first, batch) else first.float().mean()


def learns_from(output: Any, batch: Any) -> bool:
    """Whether there is a loss, or a batch with something to compute one from; else the mean is all there is."""
    return (
        _own_loss(output) is not None or isinstance(batch, (tuple, list)) or _has_classes(_first_tensor(output), batch)
    )


def _own_loss(output: Any) -> torch.Tensor | None:
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    return loss if isinstance(loss, torch.Tensor) else None


def _has_classes(output: torch.Tensor, batch: Any) -> bool:
    target = batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None
    return isinstance(target, torch.Tensor) and not target.dtype.is_floating_point and _are_classes(output, target)


def _are_classes(output: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether the target numbers the classes that stand in the output's second dimension."""
    return output.dim() >= 2 and target.shape == (output.shape[0], *output.shape[2:])


def _first_tensor(output: Any) -> torch.Tensor:
    for leaf in torch.utils._pytree.tree_leaves(output):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            return leaf
    if hasattr(output, "values"):
        for value in output.values():
            if isinstance(value, torch.Tensor) and value.requires_grad:
                return value
    raise BadInput("the model's output holds no tensor to compute a loss from; write loss(model, batch) in the job.")
