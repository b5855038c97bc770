"""The calls and spellings by which scripts address a GPU: each does on the virtual one what it does on a real one."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.trace import Category, EventKind
from oomcast.units import MiB


@pytest.fixture
def gpu() -> Iterator[Any]:
    with oomcast.virtual_gpu("a100-40gb") as virtual:
        yield virtual


def test_a_gpu_that_is_not_there_is_refused_as_by_cuda(gpu: Any) -> None:
    for ask in (
        lambda: torch.zeros(3).to("cuda:1"),
        lambda: torch.zeros(3, device="cuda:1"),
        lambda: nn.Linear(2, 2).to("cuda:1"),
        lambda: nn.Linear(2, 2).to(1),
        lambda: torch.cuda.set_device(1),
        lambda: torch.cuda.get_device_properties(1),
    ):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            ask()


def test_ways_to_say_where_a_model_goes(gpu: Any) -> None:
    for move in (
        lambda m: m.to(0),
        lambda m: m.to(device=0),
        lambda m: m.to("cuda"),
        lambda m: m.cuda(0),
        lambda m: m.to(torch.device("cuda", 0), torch.float16),
    ):
        model = move(nn.Linear(4, 4))
        assert model.weight.is_cuda
        assert model.weight.device == torch.device("cuda:0")


def test_default_devices(gpu: Any) -> None:
    torch.set_default_device("cuda")
    assert torch.ones(3).is_cuda
    assert torch.tensor([1.0, 2.0]).is_cuda
    assert torch.tensor([3, 5]).tolist() == [3, 5]
    assert nn.Linear(3, 3).weight.is_cuda
    assert torch.get_default_device().type == "cuda"
    torch.set_default_device("cpu")
    assert not torch.ones(3).is_cuda
    torch.set_default_tensor_type("torch.cuda.HalfTensor")
    assert torch.ones(3).is_cuda
    assert torch.ones(3).dtype == torch.float16


def test_a_default_device_does_not_outlive_the_gpu() -> None:
    with oomcast.virtual_gpu("a100-40gb"):
        torch.set_default_tensor_type(torch.cuda.DoubleTensor)
    assert torch.ones(2).device == torch.device("cpu")
    assert torch.ones(2).dtype == torch.float32


def test_old_tensor_types(gpu: Any) -> None:
    x = torch.cuda.FloatTensor(2, 3)
    assert x.shape == (2, 3)
    assert isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(x, torch.cuda.LongTensor)
    assert not isinstance(torch.zeros(2), torch.cuda.FloatTensor)
    assert torch.cuda.LongTensor([1, 2]).tolist() == [1, 2]


def test_parameters_are_of_the_class_that_code_expects(gpu: Any) -> None:
    weight = nn.Linear(3, 3).cuda().weight
    assert isinstance(weight, nn.Parameter)
    assert type(weight).__name__ == "Parameter"
    again = type(weight)(weight.data, requires_grad=False)
    assert isinstance(again, nn.Parameter)
    assert not again.requires_grad
    twin = copy.deepcopy(weight)
    assert isinstance(twin, nn.Parameter)
    assert twin.is_cuda
    assert twin.untyped_storage()._cdata != weight.untyped_storage()._cdata


class _OwnParameter(nn.Parameter):
    """As libraries write them: a class of its own with an attribute."""

    def __new__(cls, data: torch.Tensor, note: str = "", requires_grad: bool = False) -> Any:
        self = torch.Tensor._make_subclass(cls, data, requires_grad)
        self.note = note  # type: ignore[attr-defined]
        return self


def test_parameters_of_a_librarys_own_class_move_and_count(gpu: Any) -> None:
    module = nn.Module()
    module.weight = _OwnParameter(torch.zeros(MiB // 4), "mine")
    module.cuda()
    weight: Any = module.weight
    assert isinstance(weight, _OwnParameter)
    assert weight.note == "mine"
    assert weight.is_cuda
    assert torch.cuda.memory_allocated() == MiB


def test_loading_to_the_gpu(gpu: Any) -> None:
    stream = io.BytesIO()
    torch.save({"w": torch.ones(5).cuda(), "n": torch.ones(2)}, stream)
    stream.seek(0)
    assert torch.load(stream, map_location="cuda")["n"].is_cuda
    stream.seek(0)
    assert not torch.load(stream, map_location="cpu")["w"].is_cuda


def test_graphs_have_a_pool_of_their_own(gpu: Any) -> None:
    model = nn.Linear(64, 64).cuda()
    static = torch.zeros(8, 64, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
        out = model(static)
    held = torch.cuda.memory_allocated()
    for _ in range(3):
        static.copy_(torch.zeros(8, 64))
        graph.replay()
    assert torch.cuda.memory_allocated() == held
    assert out.shape == (8, 64)
    assert len({allocation.stream for allocation in gpu.trace().allocations}) == 3  # default, side, the graph's pool


def test_graphed_callables(gpu: Any) -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU()).cuda()
    graphed = torch.cuda.make_graphed_callables(model, (torch.zeros(4, 16, device="cuda"),))
    graphed(torch.zeros(4, 16, device="cuda")).sum().backward()


def test_a_share_of_the_allocator_taken_by_hand(gpu: Any) -> None:
    address = torch.cuda.caching_allocator_alloc(3 * MiB)
    assert torch.cuda.memory_allocated() == 3 * MiB
    torch.cuda.caching_allocator_delete(address)
    assert torch.cuda.memory_allocated() == 0


def test_calls_that_only_look_or_note(gpu: Any) -> None:
    with torch.cuda.nvtx.range("step"):
        torch.cuda.nvtx.mark("here")
    torch.cuda.memory._record_memory_history(max_entries=10)
    torch.cuda.memory._record_memory_history(enabled=None)
    assert isinstance(torch.cuda.memory_snapshot(), list)
    assert torch.cuda.memory.get_allocator_backend() == "native"
    torch.cuda.set_per_process_memory_fraction(0.5)
    torch.cuda.set_sync_debug_mode("warn")
    torch.cuda.current_blas_handle()
    torch.cuda._sleep(100)
    assert torch.cuda.get_stream_from_external(7, "cuda").cuda_stream == 7
    assert torch.cuda.utilization() == 0
    assert torch.cuda.temperature() > 0
    torch.accelerator.set_device_index(0)
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    torch.cuda.cudart().cudaProfilerStart()
    with torch.cuda.device(0):
        torch.cuda.synchronize()


def test_a_storage_that_is_resized_keeps_its_place_and_changes_its_block(gpu: Any) -> None:
    x = torch.zeros(MiB, device="cuda")  # 4 MiB
    gpu.label(x, Category.PARAMETER, "weight")
    storage = x.untyped_storage()
    storage.resize_(0)
    assert torch.cuda.memory_allocated() == 0
    storage.resize_(4 * MiB)
    assert torch.cuda.memory_allocated() == 4 * MiB
    assert [a.category for a in gpu.trace().allocations] == [Category.PARAMETER] * 2
    del x, storage
    assert torch.cuda.memory_allocated() == 0


def test_a_block_lent_to_another_stream_is_reused_later(gpu: Any) -> None:
    side = torch.cuda.Stream()
    x = torch.zeros(5 * MiB, device="cuda")
    x.record_stream(side)
    del x
    assert torch.cuda.memory_allocated() == 0  # torch counts a block as free as soon as it is given back
    y = torch.zeros(5 * MiB, device="cuda")  # the host has not waited for the other stream
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == (20 * MiB, 40 * MiB)
    side.synchronize()
    z = torch.zeros(5 * MiB, device="cuda")
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == (40 * MiB, 40 * MiB)
    assert any("record_stream" in sentence for sentence in gpu.trace().assumptions)
    del y, z


def test_waiting_carries_over_from_stream_to_stream(gpu: Any) -> None:
    side = torch.cuda.Stream()
    x = torch.zeros(MiB, device="cuda")
    x.record_stream(side)
    del x
    torch.cuda.current_stream().wait_stream(side)
    loss = torch.zeros(1, device="cuda")
    loss.item()  # waits for the default stream, which waited for the other
    torch.zeros(1, device="cuda")
    frees = [event.index for event in gpu.trace().events if event.kind is EventKind.FREE]
    assert 0 in frees


def test_a_block_lent_to_its_own_stream_is_not_delayed(gpu: Any) -> None:
    x = torch.zeros(MiB, device="cuda")
    x.record_stream(torch.cuda.current_stream())
    del x
    assert torch.cuda.memory_allocated() == 0


def test_without_any_wait_a_lent_block_comes_back_when_the_queue_is_full(gpu: Any) -> None:
    side = torch.cuda.Stream()
    x = torch.zeros(MiB, device="cuda")
    x.record_stream(side)
    del x
    small = torch.zeros(1, device="cuda")
    frees = [event.index for event in gpu.trace().events if event.kind is EventKind.FREE]
    assert 0 not in frees
    for _ in range(1100):
        small.add_(1)
    torch.zeros(1, device="cuda")
    frees = [event.index for event in gpu.trace().events if event.kind is EventKind.FREE]
    assert 0 in frees
