"""Settings of `torch.compile` and of Inductor that a job makes, on the virtual GPU: followed, or told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import oomcast
from oomcast.devices import find_gpu
from oomcast.trace import Category, EventKind, Phase, Trace, verify

pytestmark = pytest.mark.filterwarnings("ignore")
DEVICE = "a100-40gb"
ROWS, WIDTH = 64, 256
ONE = ROWS * WIDTH * 4


class _Net(nn.Module):
    def __init__(self, breaks: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.breaks = breaks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.sin(layer(x))
            if self.breaks:
                torch._dynamo.graph_break()
        return x


def _trained(run: Any, rows: tuple[int, ...] = (ROWS, ROWS), breaks: bool = False, step: Any = None) -> Trace:
    with oomcast.virtual_gpu(DEVICE) as gpu:
        net = _Net(breaks).cuda()
        optimizer = torch.optim.Adam(net.parameters())
        compiled, update = run(net), (step or (lambda call: call))(optimizer.step)
        for count in rows:
            compiled(torch.randn(count, WIDTH, device="cuda")).square().mean().backward()
            update()
            optimizer.zero_grad()
        trace = gpu.trace()
    verify(trace)
    return trace


def _whole(call: Any) -> Any:
    """The virtual GPU's, which is there when this is called."""
    return torch.compile(call)


def _told(trace: Trace, word: str) -> list[str]:
    return [sentence for sentence in trace.assumptions if sentence.startswith("torch.compile") and word in sentence]


def _kernels(trace: Trace) -> list[Any]:
    return [made for made in trace.allocations if made.operator.startswith("triton_")]


def test_a_function_that_cannot_be_cut_at_a_break_is_told() -> None:
    """Dynamo cuts no loop: the function runs eagerly as a whole, and without a word it would look like compiled."""
    trace = _trained(_whole, breaks=True)
    assert any(Path(__file__).name in sentence and "forward" in sentence for sentence in _told(trace, "breaks at"))


def test_sizes_that_change_are_compiled_once_for_all() -> None:
    """Dynamo traces once more when it meets a size that it took for a number, and says so by an exception."""
    trace = _trained(lambda net: torch.compile(net, dynamic=True), rows=(ROWS, 2 * ROWS, ROWS))
    assert not _told(trace, "eager")
    assert {ONE, 2 * ONE} <= {made.nbytes for made in _kernels(trace)}


@pytest.mark.parametrize("way", ["mode", "options", "process"])
def test_cuda_graphs_take_their_blocks_from_a_pool_of_their_own(way: str) -> None:
    given: dict[str, Any] = {
        "mode": {"mode": "reduce-overhead"},
        "options": {"options": {"triton.cudagraphs": True}},
        "process": {},
    }[way]
    with torch._inductor.config.patch({"triton.cudagraphs": way == "process"}):
        trace = _trained(lambda net: torch.compile(net, **given))
    pools = {made.stream for made in _kernels(trace)}
    others = {made.stream for made in trace.allocations if made.category is Category.OPTIMIZER_STATE}
    assert len(pools) == 1
    assert not pools & others
    copies = [made for made in trace.allocations if made.stream in pools and "input" in made.operator]
    assert [made.nbytes for made in copies].count(ONE) >= 1  # of the batch, whose address changes
    assert _told(trace, "pool of its own")
    assert not _told(trace, "eager")


@pytest.mark.parametrize("for_all", [True, False])
def test_operands_that_matmuls_are_timed_with_are_there_while_it_compiles(for_all: bool) -> None:
    with torch._inductor.config.patch({"max_autotune": for_all}):
        options = {} if for_all else {"options": {"max_autotune_gemm": True}}
        trace = _trained(lambda net: torch.compile(net, **options))
    timed = [number for number, made in enumerate(trace.allocations) if "timing of matmuls" in made.operator]
    assert {trace.allocations[number].phase for number in timed} == {Phase.COMPILING}
    sizes = {trace.allocations[number].nbytes for number in timed}
    assert {ONE, WIDTH * WIDTH * 4, find_gpu(DEVICE).l2_cache} <= sizes
    assert set(timed) <= {index for kind, index in trace.events if kind is EventKind.FREE}
    assert _told(trace, "timed on the GPU")
    assert not _told(trace, "eager")


def _timing(trace: Trace) -> list[Any]:
    return [made for made in trace.allocations if made.phase is Phase.COMPILING]


def test_a_kernel_is_timed_when_it_is_first_launched() -> None:
    """torch has two ways to launch a pointwise kernel, and tries both with a buffer of the size of the L2 cache."""
    trace = _trained(_whole)
    first, *later = _timing(trace)
    assert first.nbytes == find_gpu(DEVICE).l2_cache
    assert {made.step for made in later} <= {first.step}  # never again: kernels are compiled once
    assert any(mark.phase is Phase.COMPILING for mark in trace.marks)
    launches = [index for index, made in enumerate(trace.allocations) if made in (first, *later)]
    assert set(launches) <= {index for kind, index in trace.events if kind is EventKind.FREE}


def test_kernels_with_one_way_to_launch_them_are_not_timed() -> None:
    """Reductions, unless the job asks for more; a kernel of three dimensions; what is no Triton kernel."""
    from oomcast.capture.torch.compiled.plan import kernel_of
    from oomcast.capture.torch.compiled.timing import Timing

    def is_timed(launch: str, thoroughly: bool = False) -> bool:
        timing = Timing(find_gpu(DEVICE), None)  # type: ignore[arg-type]
        kernel = kernel_of(f"import triton\n\n@triton_heuristics.{launch})")
        return timing.launch(*kernel, thoroughly=thoroughly) is not None

    assert is_timed("pointwise(\n    size_hints={'x': 65536}, \n    filename=__file__")
    assert is_timed("pointwise(\n    size_hints={'y': 16, 'x': 64}, tile_hint=TileHint.DEFAULT,\n")
    assert not is_timed("pointwise(\n    size_hints={'y': 64, 'x': 64}, tile_hint=TileHint.SQUARE,\n")
    assert not is_timed("pointwise(\n    size_hints={'z': 8, 'y': 64, 'x': 64},\n")
    assert not is_timed("persistent_reduction(\n    size_hints={'x': 64, 'r0_': 64},\n")
    assert is_timed("persistent_reduction(\n    size_hints={'x': 64, 'r0_': 64},\n", thoroughly=True)
    assert not is_timed("foreach(\n    num_warps=8,\n", thoroughly=True)


def test_a_compiled_optimizer_holds_no_temporaries_and_breaks_nothing() -> None:
    """Its hooks are the virtual GPU's: that Dynamo stops at them is not the job's concern."""
    plain, compiled = _trained(_whole), _trained(_whole, step=_whole)
    states = [
        sum(made.nbytes for made in trace.allocations if made.category is Category.OPTIMIZER_STATE)
        for trace in (plain, compiled)
    ]
    assert states[0] >= states[1] >= 4 * WIDTH * WIDTH * 4
    assert not _told(compiled, "breaks")
    assert not _told(compiled, "eager")

    def most(trace: Trace) -> int:
        """Of the job itself: what compiling takes meanwhile is another phase."""
        held = highest = 0
        for kind, index in trace.events:
            made = trace.allocations[index] if kind in (EventKind.ALLOCATE, EventKind.FREE) else None
            if made is not None and made.phase is not Phase.COMPILING:
                held += made.nbytes if kind is EventKind.ALLOCATE else -made.nbytes
                highest = max(highest, held)
        return highest

    assert most(plain) - most(compiled) >= WIDTH * WIDTH * 4  # foreach kernels hold copies of all parameters


def test_compiled_autograd_is_told() -> None:
    """It ends the process in C++ code if it is let."""
    with torch._dynamo.config.patch(compiled_autograd=True):
        trace = _trained(_whole)
    assert _told(trace, "compiled autograd is not followed")
    assert _kernels(trace)


def test_attention_in_a_checkpointed_block_is_compiled() -> None:
    """It may draw random numbers, so that it must repeat them in backward, with the states of CUDA's generators."""

    def block(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1, is_causal=True).sin()

    with oomcast.virtual_gpu(DEVICE) as gpu:
        x = torch.randn(2, 4, 64, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        torch.compile(lambda x: checkpoint(block, x, use_reentrant=False).cos())(x).sum().backward()
        trace = gpu.trace()
    verify(trace)
    assert not _told(trace, "eager")
    assert _kernels(trace)
