"""Context parallelism as torch does it: each rank has a part of every sequence, attention passes keys and values on.

`torch.distributed.tensor.experimental.context_parallel` cuts the batch's tensors in place for as long as a forward and
its backward last, and replaces scaled_dot_product_attention by a ring. Positions that a model counts by itself begin at
zero on each rank: that changes values, not memory.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental import context_parallel
from torch.utils._pytree import tree_leaves, tree_map

from ....errors import BadInput

__all__ = ["parts_of_sequences", "shapes_of_parts"]


@contextlib.contextmanager
def parts_of_sequences(mesh: DeviceMesh, batch: Any, tell: Callable[[str], None]) -> Iterator[None]:
    """Within it, the batch has this rank's part of the sequences; its dimension 1 is taken for them.

    torch replaces scaled_dot_product_attention alone, and not where it takes its mathematical kernel: any other
    attention would see this rank's part only. Where no ring ran, that is told.
    """
    cut = _sequences(mesh.size(), batch)
    with (
        _rings() as rings,
        context_parallel(mesh, buffers=cut, buffer_seq_dims=[1] * len(cut), no_restore_buffers=set(cut)),
    ):
        yield
    if not rings:
        tell(
            f"cp={mesh.size()}: no attention ran as a ring, since none of the model's is a fused "
            "scaled_dot_product_attention: what attends sees this rank's part of a sequence alone, and holds less than "
            "it would with the whole"
        )


@contextlib.contextmanager
def _rings() -> Iterator[list[None]]:
    """An item for each time that keys and values begin to be passed on within. What passes them on holds them, so it
    must not be kept."""
    theirs, name = inspect.unwrap(context_parallel).__globals__, "_create_rotater"
    create: Callable[..., Any] = theirs[name]
    rings: list[None] = []

    def noted(*args: Any, **options: Any) -> Any:
        rings.append(None)
        return create(*args, **options)

    theirs[name] = noted
    try:
        yield rings
    finally:
        theirs[name] = create


def shapes_of_parts(size: int, batch: Any) -> Any:
    """The batch with tensors as large as one rank's part of the sequences."""
    cut = {id(tensor) for tensor in _sequences(size, batch)}
    return tree_map(lambda item: item[:, : item.shape[1] // size] if id(item) in cut else item, batch)


def _sequences(size: int, batch: Any) -> list[torch.Tensor]:
    """The tensors whose dimension 1 is cut."""
    tensors = [item for item in tree_leaves(batch) if isinstance(item, torch.Tensor) and item.dim() >= 2]
    if not tensors:
        raise BadInput(f"cp={size} cuts sequences, but no tensor of the batch has more than one dimension.")
    length = tensors[0].shape[1]
    if length % (2 * size):
        raise BadInput(
            f"cp={size} does not divide the sequence of {length} into {2 * size} pieces (each rank has one from the "
            "front and one from the back); choose a multiple."
        )
    return [tensor for tensor in tensors if tensor.shape[1] == length]
