"""What one rank sees of a collective: its own tensors, at once, as if all ranks held the same.

torch's fake process group copies its input into each part of its output; with thousands of ranks those copies would be
most of the capture's time, and on fakes they carry nothing. So tensors on the virtual GPU are left as they are, small
known values excepted: what a rank tells of itself (a size, a flag) is what all others are taken to tell, so that a sum
over the ranks is as many times as large.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (  # type: ignore[attr-defined]
    _create_work_from_future,
    _resolve_process_group,
)
from torch._subclasses.fake_tensor import FakeTensor

from ....devices import Exchange

if TYPE_CHECKING:
    from ..recorder import Recorder

__all__ = ["COLLECTIVES", "finished_work", "telling_sums"]

_RECEIVES = ("recv_", "recv_any_source_")
_GATHERS = ("allgather_", "_allgather_base_", "allgather_coalesced_", "allgather_into_tensor_coalesced_", "alltoall_",
            "alltoall_base_", "gather_", "reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_",
            "scatter_")  # fmt: skip
"""Output first, input second."""
_IN_PLACE = ("allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_", "send", *_RECEIVES)
_WITH_OUTPUT = ("allgather_", "_allgather_base_", "reduce_scatter_", "_reduce_scatter_base_", "scatter_", "alltoall_",
                "allreduce_", "broadcast_")  # fmt: skip
"""Those that return their tensors beside the work."""
_EXCHANGES = {
    **dict.fromkeys((*_GATHERS, "broadcast_", "reduce_"), Exchange.SHARDS),
    **dict.fromkeys(("allreduce_", "allreduce_coalesced_"), Exchange.SUMS),
    **dict.fromkeys(("alltoall_", "alltoall_base_", "gather_", "scatter_"), Exchange.PAIRS),
    **dict.fromkeys(("send", *_RECEIVES), Exchange.NEIGHBOURS),
}
"""For NCCL, gather and scatter are messages between one rank and all others."""
_FUNCTIONAL = {
    **dict.fromkeys(("all_gather_into_tensor", "all_gather_into_tensor_out", "all_gather_into_tensor_coalesced",
                     "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "broadcast", "broadcast_"),
                    Exchange.SHARDS),
    **dict.fromkeys(("all_reduce", "all_reduce_", "all_reduce_coalesced", "all_reduce_coalesced_"), Exchange.SUMS),
    "all_to_all_single": Exchange.PAIRS,
}  # fmt: skip
"""Those that DTensor and compiled code call: on fakes, torch answers them without a process group."""
_NAMES = (str, dist.ProcessGroup)
"""How these are told their group."""
_ADDS: ContextVar[bool] = ContextVar("adds", default=False)


def telling_sums(all_reduce: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.distributed.all_reduce`, whose rule learns whether it adds: from Python, the operator that torch hands to
    the rule cannot be read."""

    @functools.wraps(all_reduce)
    def telling(tensor: Any, op: Any = dist.ReduceOp.SUM, *args: Any, **options: Any) -> Any:
        before = _ADDS.set(op == dist.ReduceOp.SUM)
        try:
            return all_reduce(tensor, op, *args, **options)
        finally:
            _ADDS.reset(before)

    return telling


def finished_work(tensors: Any) -> Any:
    """A Work that is done, and whose future holds these tensors, as NCCL's does."""
    future: Any = torch.futures.Future()
    future.set_result(list(_flat(tensors)))
    return _create_work_from_future(future)


def _rule(name: str) -> Any:
    def rule(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        tensors = args[0]
        if not any(isinstance(tensor, FakeTensor) for tensor in _flat(args[:2])) and name != "allreduce_":
            # The host's own small tensors have values: the fake group copies them. What is reduced it leaves as it is,
            # but the future of its work is empty, which DistributedDataParallel on the host does not take.
            return NotImplemented
        if any(isinstance(tensor, FakeTensor) and tensor.fake_device.index is not None for tensor in _flat(args[:2])):
            _note(recorder, name, args)
        if name in _GATHERS:
            _hand_on(recorder, args[0], args[1])
        elif name in _RECEIVES:
            for tensor in _flat(tensors):
                recorder.values.forget_storage(tensor.untyped_storage()._cdata)
        elif name == "allreduce_" and _ADDS.get():
            _add_up(recorder, tensors, dist.ProcessGroup.unbox(args[1]).size())
        work = finished_work(tensors).boxed()
        return (tensors, work) if name in _WITH_OUTPUT else work

    return rule


def _note(recorder: Recorder, name: str, args: Any) -> None:
    """Its group exchanges something on the GPUs."""
    if recorder.groups.gpus_per_node:
        place = next(number for number, argument in enumerate(args) if isinstance(argument, torch.ScriptObject))
        what, group = _EXCHANGES[name], dist.ProcessGroup.unbox(args[place])
        peers: tuple[int, ...] = ()
        if what is Exchange.NEIGHBOURS and name != "recv_any_source_":
            peers = (args[place + 1],)
        if name == "alltoall_base_":
            what, peers = _partners(group, args[place + 1], args[place + 2])
        recorder.groups.exchange(group, what, _bytes(args[0]), peers)


def _partners(group: Any, received: Any, sent: Any) -> tuple[Exchange, tuple[int, ...]]:
    """Of an all-to-all: torch sends nothing to those whose share is empty, as when a ring is made of it."""
    shares = (*received, *sent)
    if not shares or not all(isinstance(share, int) for share in shares) or all(shares):
        return Exchange.PAIRS, ()
    some = {rank for listed in (received, sent) for rank, share in enumerate(listed) if share}
    return Exchange.NEIGHBOURS, tuple(some - {dist.get_rank(group)})


def _noting(what: Exchange) -> Any:
    """A rule that leaves the answer to torch."""

    def rule(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        named: Any = kwargs.get("group_name", next((one for one in reversed(args) if isinstance(one, _NAMES)), None))
        if named is not None and recorder.groups.gpus_per_node:
            group = named if isinstance(named, dist.ProcessGroup) else _resolve_process_group(named)
            pairs = what is Exchange.PAIRS
            done, peers = _partners(group, args[1], args[2]) if pairs else (what, ())
            recorder.groups.exchange(group, done, _bytes(args[0]), peers)
        return NotImplemented

    return rule


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _flat(tensors))


def _hand_on(recorder: Recorder, outputs: Any, inputs: Any) -> None:
    """Each output of the shape of the input has the input's value; one with a place for every rank has it repeated."""
    given = [recorder.values.of(tensor) for tensor in _flat(inputs)]
    for output in _flat(outputs):
        if not isinstance(output, FakeTensor):
            continue
        value = next((v for v in given if v is not None), None) if len({*map(id, given)}) == 1 else None
        if value is not None and value.numel() and output.numel() % value.numel() == 0:
            flat = value.reshape(-1).repeat(output.numel() // value.numel()).to(output.dtype)
            recorder.values.know(output, flat.reshape(output.shape))
        else:
            recorder.values.forget_storage(output.untyped_storage()._cdata)


def _add_up(recorder: Recorder, tensors: Any, ranks: int) -> None:
    """The sum over ranks that all have this value."""
    for tensor in _flat(tensors):
        value = recorder.values.of(tensor)
        if isinstance(tensor, FakeTensor) and value is not None:
            recorder.values.know(tensor, value * ranks)
        elif value is not None:
            tensor.data.mul_(ranks)


def _flat(tree: Any) -> Iterable[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from _flat(item)


def _same(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A wrapper around the tensor of a collective under way: it holds nothing of its own."""
    return args[0].view_as(args[0]) if isinstance(args[0], FakeTensor) else NotImplemented


def _rules() -> dict[Any, Any]:
    if not dist.is_available():
        return {}
    operators, wrap = torch.ops.c10d, getattr(torch.ops._c10d_functional, "_wrap_tensor_autograd", None)
    wrapping = {} if wrap is None else {wrap.default: _same}
    functional = torch.ops._c10d_functional
    noted = {getattr(functional, name).default: _noting(what) for name, what in _FUNCTIONAL.items()
             if hasattr(functional, name)}  # fmt: skip
    return wrapping | noted | {getattr(operators, name).default: _rule(name) for name in (*_GATHERS, *_IN_PLACE)}


COLLECTIVES: dict[Any, Any] = _rules()
