"""`torch.compile` on the virtual GPU: what Inductor would allocate, and what is told where it cannot be followed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.capture.torch.compiled.regions import other_torch
from oomcast.capture.torch.run import capture_here
from oomcast.errors import BadInput
from oomcast.estimation import Target, estimate_trace
from oomcast.report import estimate_html
from oomcast.spec import Place, Spec
from oomcast.trace import Category, EventKind, Phase, Trace, verify

pytestmark = pytest.mark.filterwarnings("ignore")
DEVICE = "a100-40gb"
ROWS, WIDTH = 64, 256
ONE = ROWS * WIDTH * 4
"""Bytes of a batch."""


def _live_when_backward_begins(trace: Trace) -> int:
    begins = next(mark.position for mark in trace.marks if mark.phase is Phase.BACKWARD)
    live: dict[int, int] = {}
    for kind, index in trace.events[:begins]:
        if kind is EventKind.ALLOCATE:
            live[index] = trace.allocations[index].nbytes
        elif kind is EventKind.FREE:
            live.pop(index, None)
    return sum(live.values())


def _most(trace: Trace) -> int:
    held = highest = 0
    for kind, index in trace.events:
        held += trace.allocations[index].nbytes * {EventKind.ALLOCATE: 1, EventKind.FREE: -1}.get(kind, 0)
        highest = max(highest, held)
    return highest


def _chain(x: torch.Tensor) -> torch.Tensor:
    return (torch.relu(x * 2 + 1).sin().cos() * x).exp()


def _traced(step: Any) -> Trace:
    with oomcast.virtual_gpu(DEVICE) as gpu:
        step()
        trace = gpu.trace()
    verify(trace)
    return trace


def test_a_chain_of_pointwise_operators_is_one_kernel() -> None:
    def step(compiled: bool) -> None:
        x = torch.randn(ROWS, WIDTH, device="cuda")
        with torch.no_grad():
            (torch.compile(_chain) if compiled else _chain)(x)

    eager, compiled = _traced(lambda: step(False)), _traced(lambda: step(True))
    new = [a for a in compiled.allocations if a.operator.startswith("triton_")]
    assert [a.nbytes for a in new] == [ONE]
    assert Path(new[0].source.rpartition(":")[0]).name == Path(__file__).name
    kept = [a for a in compiled.allocations if a.phase is not Phase.COMPILING]
    assert len(eager.allocations) > len(kept) == 2  # the batch and the result


def test_kernels_of_torchs_own_modules_are_of_the_line_that_calls_them() -> None:
    """No line of the job is in what was compiled."""

    def step() -> None:
        net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)).cuda()
        torch.compile(net)(torch.randn(ROWS, WIDTH, device="cuda")).sum().backward()

    trace = _traced(step)
    called_at = f"{__file__}:{step.__code__.co_firstlineno + 2}"
    made = [a for a in trace.allocations if a.operator.startswith("triton_")]
    assert {a.phase for a in made} == {Phase.FORWARD, Phase.BACKWARD}
    assert {a.source for a in made} == {called_at}


def test_what_is_cheap_is_computed_again_in_backward() -> None:
    """Eager code keeps a tensor for each of these operators; min-cut keeps the input alone, which the job holds."""

    def step(compiled: bool) -> None:
        x = torch.randn(ROWS, WIDTH, device="cuda", requires_grad=True)
        (torch.compile(_chain) if compiled else _chain)(x).sum().backward()

    eager, compiled = _traced(lambda: step(False)), _traced(lambda: step(True))
    assert _live_when_backward_begins(eager) >= 5 * ONE
    assert _live_when_backward_begins(compiled) <= 3 * ONE


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


def _train(model: nn.Module, steps: int = 2) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(ROWS, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()


def test_training_leaves_the_same_tensors_as_eager() -> None:
    """Parameters and gradients: whatever compiled code holds meanwhile, it gives back."""

    def remaining(compiled: bool) -> dict[Category, int]:
        with oomcast.virtual_gpu(DEVICE) as gpu:
            model = nn.Sequential(_Block(), _Block()).cuda()
            if compiled:
                model.compile()
            _train(model)
            trace = gpu.trace()
            live = {index for kind, index in trace.events if kind is EventKind.ALLOCATE}
            live -= {index for kind, index in trace.events if kind is EventKind.FREE}
        verify(trace)
        sums: dict[Category, int] = {}
        for index in live:
            allocation = trace.allocations[index]
            sums[allocation.category] = sums.get(allocation.category, 0) + allocation.nbytes
        return sums

    eager, compiled = remaining(False), remaining(True)
    assert eager == compiled
    assert compiled[Category.GRADIENT] == compiled[Category.PARAMETER]


def test_equal_blocks_are_compiled_once() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()

    def step() -> None:
        model = nn.Sequential(*(_Block() for _ in range(3))).cuda()
        for block in model:
            block.compile()
        _train(model, steps=1)

    trace = _traced(step)
    # The first block's input needs no gradient, that of the others does.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
    assert any(a.operator == "aten.addmm" and a.module == "wide" for a in trace.allocations)


def test_code_is_told_cuda_while_it_is_traced() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        if not x.is_cuda or x.device.type != "cuda":
            return x
        mask = torch.zeros(WIDTH, device="cuda") + torch.ones(WIDTH, device=x.device)
        return (x + mask).cuda().to("cuda")

    shown: list[Any] = []

    def step() -> None:
        x = torch.randn(ROWS, WIDTH, device="cuda")
        result = torch.compile(function, fullgraph=True)(x)
        shown.append((result is x, str(result.device)))

    trace = _traced(step)
    assert shown == [(False, "cuda:0")]
    assert [a.nbytes for a in trace.allocations if a.operator.startswith("triton_")] == [ONE]


def test_a_graph_break_is_told_with_its_place() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin().exp()
        torch._dynamo.graph_break()
        return y.cos().exp()

    def step() -> None:
        with torch.no_grad():
            torch.compile(function)(torch.randn(ROWS, WIDTH, device="cuda"))

    trace = _traced(step)
    assert len([a for a in trace.allocations if a.operator.startswith("triton_")]) == 2
    assert any("breaks at" in sentence and Path(__file__).name in sentence for sentence in trace.assumptions)


def test_another_backend_is_taken_as_eager_and_told() -> None:
    trace = _traced(lambda: torch.compile(_chain, backend="aot_eager")(torch.randn(ROWS, WIDTH, device="cuda")))
    assert any("aot_eager" in sentence and "eager" in sentence for sentence in trace.assumptions)
    assert not any(a.operator.startswith("triton_") for a in trace.allocations)


def test_what_cannot_be_lowered_is_taken_as_eager_with_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise NotImplementedError("no lowering without a GPU")

    monkeypatch.setattr("oomcast.capture.torch.compiled.backend.inductor_code", refuse)

    def step() -> None:
        x = torch.randn(ROWS, WIDTH, device="cuda", requires_grad=True)
        torch.compile(_chain)(x).sum().backward()

    trace = _traced(step)
    monkeypatch.undo()
    eager = _traced(lambda: _chain(torch.randn(ROWS, WIDTH, device="cuda", requires_grad=True)).sum().backward())
    assert _most(trace) == _most(eager)
    told = [sentence for sentence in trace.assumptions if "taken as eager" in sentence]
    assert told
    assert all("no lowering without a GPU" in sentence for sentence in told)
    assert any("0.0% of the peak" not in sentence and "% of the peak" in sentence for sentence in told)
    assert not any(a.operator.startswith("triton_") for a in trace.allocations)


@pytest.mark.parametrize(("mode", "word"), [("reduce-overhead", "CUDA graphs"), ("max-autotune", "timed")])
def test_modes_that_need_a_gpu_are_told(mode: str, word: str) -> None:
    def step() -> None:
        with torch.no_grad():
            torch.compile(_chain, mode=mode)(torch.randn(ROWS, WIDTH, device="cuda"))

    trace = _traced(step)
    assert any(word in sentence for sentence in trace.assumptions)
    assert [a.nbytes for a in trace.allocations if a.operator.startswith("triton_")] == [ONE]


JOB = """
import torch
from torch import nn

def model():
    return nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(3)])

def batch(batch_size):
    return torch.randn(batch_size, 256)

def loss(model, batch):
    return model(batch).square().mean()
"""


def test_job_files_compile_by_option_and_by_themselves(tmp_path: Path) -> None:
    plain, own = tmp_path / "plain.py", tmp_path / "own.py"
    plain.write_text(JOB)
    own.write_text(
        JOB.replace("def model():\n    return ", "def model():\n    return torch.compile(").replace(
            "range(3)])", "range(3)]))"
        )
    )

    def kernels(job: Path, **options: Any) -> set[str]:
        trace = capture_here(Spec.read(str(job), device=DEVICE, batch_size=ROWS, steps=1, **options))
        return {a.operator for a in trace.allocations if a.operator.startswith("triton_")}

    assert not kernels(plain)
    assert kernels(plain, compile="model") == kernels(own) != set()
    assert kernels(plain, compile="blocks")


def test_a_report_shows_the_fused_kernels_at_the_peak_and_what_compiling_takes(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    trace = capture_here(Spec.read(str(job), device=DEVICE, batch_size=16384, steps=2, compile="model"))
    answer = estimate_trace(trace, Target.of(Place(DEVICE)), keep_history=True)
    page = estimate_html(answer)
    at_peak = {tensor.operator for tensor in answer.top_tensors if tensor.operator.startswith("triton_")}
    assert at_peak
    assert all(f"<code>{kernel}</code>" in page for kernel in at_peak)
    assert "compiling" in answer.highest_by_phase
    assert "<td>compiling</td>" in page


def test_tensors_of_python_data_are_made_on_the_gpu() -> None:
    """transformers' KV caches begin as such: `torch.tensor([], device=key.device)`."""
    seen = []

    def region(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = torch.tensor([2.0] * WIDTH, dtype=x.dtype, device=x.device)
        cache = torch.tensor([], dtype=x.dtype, device=x.device)
        return scale, torch.cat([cache, (x * scale).flatten()])

    def step() -> None:
        scale, grown = torch.compile(region)(torch.randn(ROWS, WIDTH, device="cuda"))
        seen.extend((scale.device, grown.device, tuple(grown.shape)))

    trace = _traced(step)
    assert seen == [torch.device("cuda", 0), torch.device("cuda", 0), (ROWS * WIDTH,)]
    assert not any("eager" in sentence for sentence in trace.assumptions)
    assert {WIDTH * 4, ONE} <= {allocation.nbytes for allocation in trace.allocations}


def test_dropout_is_compiled() -> None:
    """AOTAutograd draws no random numbers again in backward: the mask is kept, a byte for each value, as by eager
    code."""

    def step(compiled: bool) -> None:
        region = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1), nn.GELU()).to("cuda")
        x = torch.randn(ROWS, WIDTH, device="cuda", requires_grad=True)
        (torch.compile(region) if compiled else region)(x).sum().backward()

    eager, compiled = _traced(lambda: step(False)), _traced(lambda: step(True))
    assert not any("eager" in sentence for sentence in compiled.assumptions)
    masks = [a for a in compiled.allocations if a.phase is Phase.FORWARD and a.nbytes == ROWS * WIDTH]
    assert [a.operator.startswith("triton_") for a in masks] == [True]
    assert _live_when_backward_begins(compiled) == _live_when_backward_begins(eager)


def test_libraries_may_load_dynamo_while_the_virtual_gpu_is_there() -> None:
    """Megatron's do. Dynamo's rules are by function: two that one stand-in served for would contradict each other."""
    from torch._dynamo import trace_rules

    with oomcast.virtual_gpu(DEVICE):
        rules = trace_rules.get_torch_obj_rule_map.__wrapped__()
    assert len(rules) > 1000


def test_a_job_whose_compiled_code_fails_is_run_as_eager_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The code that Inductor wrote fails when it runs, which is too late to take that region alone as eager."""

    def unrunnable(*args: Any) -> Any:
        def run(args: list[Any]) -> Any:
            raise RuntimeError("no such kernel")

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    monkeypatch.setattr("oomcast.capture.torch.compiled.backend.runnable", unrunnable)
    job = tmp_path / "job.py"
    job.write_text(JOB)
    asked = Spec.read(str(job), device=DEVICE, batch_size=ROWS, steps=1)
    eager = capture_here(asked)
    fallen_back = capture_here(Spec.read(str(job), device=DEVICE, batch_size=ROWS, steps=1, compile="model"))

    assert fallen_back.events == eager.events
    assert any("eager" in sentence and "no such kernel" in sentence for sentence in fallen_back.assumptions)


def test_a_job_that_is_itself_wrong_says_so_though_it_compiles(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB.replace("torch.randn(batch_size, 256)", "torch.randn(batch_size, 255)"))
    with pytest.raises(RuntimeError, match="255"):
        capture_here(Spec.read(str(job), device=DEVICE, batch_size=ROWS, steps=1, compile="model"))


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(BadInput):
        Spec.read("zoo:mlp", device=DEVICE, compile="everything")


def test_a_backward_is_compiled_for_the_layout_in_which_its_forward_saved(lowered: list[Any]) -> None:
    """Inductor turns convolutions to channels-last, here since it is told to; the backward's plan follows from that."""
    with oomcast.virtual_gpu(DEVICE), torch._inductor.config.patch(force_layout_optimization=True):
        net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.SiLU()).cuda()
        torch.compile(net)(torch.randn(2, 3, 8, 8, device="cuda")).sum().backward()
    channels_last = "(1024, 1, 128, 16)"
    forward, backward = (code.source for code in lowered)
    assert channels_last in forward
    checks = [line for line in backward.splitlines() if re.search(r"assert_\w+\(.*\bconvolution[,)]", line)]
    assert checks
    assert all(channels_last in line for line in checks)


def test_embeddings_by_position_are_compiled() -> None:
    """Their backward works with masks and indices, which ask C++ for the device."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(16, 32)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return (self.tokens(tokens) + self.places(torch.arange(16, device=tokens.device))).sin()

    def step() -> None:
        model = Net().cuda()
        torch.compile(model)(torch.randint(50, (4, 16), device="cuda")).sum().backward()

    trace = _traced(step)
    assert not [sentence for sentence in trace.assumptions if "eager" in sentence]
    assert any(allocation.operator.startswith("triton_") for allocation in trace.allocations)


def test_the_host_can_be_compiled_for_after_a_gpu() -> None:
    """Inductor's patterns are registered once a process, and serve both."""
    for gpu in (True, False, True):
        with oomcast.virtual_gpu(DEVICE) as virtual:
            machine: Any = virtual
            if not gpu:
                machine.compiled.gpu = None
            model = nn.Linear(WIDTH, WIDTH).cuda()
            torch.compile(lambda x, model=model: model(x).sin())(
                torch.randn(ROWS, WIDTH, device="cuda")
            ).sum().backward()
            told = virtual.trace().assumptions
        assert not [sentence for sentence in told if "eager" in sentence], gpu


def test_another_torch_is_taken_as_eager_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not other_torch("2.13.1+cpu")
    assert not other_torch("2.15.0+cu132")
    assert other_torch("2.9.0").endswith("with torch 2.12 to 2.15 only, and 2.9.0 is installed")
    monkeypatch.setattr(torch, "__version__", "2.99.0+cu130")
    trace = _traced(lambda: torch.compile(_chain)(torch.randn(ROWS, WIDTH, device="cuda")))
    assert any("2.99.0" in sentence and "eager" in sentence for sentence in trace.assumptions)


def test_what_libraries_ask_breaks_no_graph() -> None:
    """transformers asks whether a tensor is a tracer's; a job on a GPU has no break there."""
    transformers = pytest.importorskip("transformers")

    def step() -> None:
        config = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=64, use_cache=False)
        model = transformers.GPT2Model(config).cuda()
        torch.compile(model)(torch.randint(64, (2, 16), device="cuda"))[0].sum().backward()

    trace = _traced(step)
    assert not [sentence for sentence in trace.assumptions if "breaks" in sentence or "eager" in sentence]


class _FlexBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention.flex_attention import flex_attention

        query, key, value = self.project(x).view(1, ROWS * 2, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        return flex_attention(query, key, value, score_mod=lambda score, b, h, i, j: score + (i - j))


def test_flex_attention_is_a_kernel_of_its_compiled_region() -> None:
    """It holds its output and two numbers for each row, never the scores, and the graph does not break."""

    def step() -> None:
        block = _FlexBlock().cuda()
        block.compile()
        block(torch.randn(2 * ROWS, WIDTH, device="cuda")).sum().backward()

    trace = _traced(step)
    assert not any("torch.compile" in told or "flex" in told for told in trace.assumptions)
    flex = [a for a in trace.allocations if a.operator.startswith("triton_tem_fused")]
    rows, values = 4 * 2 * ROWS * 4, 2 * ONE
    assert [a.nbytes for a in flex if a.phase is Phase.FORWARD] == [rows, rows, values]
    assert sum(a.nbytes for a in flex if a.phase is Phase.BACKWARD) == 3 * values


def test_a_function_that_is_compiled_and_never_called_loads_no_compiler() -> None:
    with oomcast.virtual_gpu(DEVICE) as gpu:
        torch.compile(_chain, dynamic=False)  # as bitsandbytes does when it is loaded
        assert not gpu.compiled.is_used


def _told_of_breaks(step: Any) -> str:
    (told,) = [sentence for sentence in _traced(step).assumptions if "graph breaks" in sentence]
    return str(told)


def test_what_runs_eagerly_in_a_compiled_region_is_told_with_its_share_of_the_peak() -> None:
    """A loop that reads a value is not cut in two: each `exp` keeps its result, beside the batch and a gradient."""

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = x.exp()
            if x.sum().item() < 0:
                break
        return x

    def step() -> None:
        torch.compile(function)(torch.randn(ROWS, WIDTH, device="cuda", requires_grad=True)).sum().backward()

    told = _told_of_breaks(step)
    assert f"{Path(__file__).name}:{function.__code__.co_firstlineno + 3}" in told
    share = re.search(r"([\d.]+)% of the peak is of what runs eagerly", told)
    assert share is not None
    assert 60 < float(share[1]) < 90


def test_more_cases_than_torch_compiles_are_told_with_the_function() -> None:
    """transformers' layers that write to a cache differ by their number in it: the ninth is not compiled any more."""

    def function(x: torch.Tensor, case: str) -> torch.Tensor:
        return x.exp() if case else x

    def step() -> None:
        compiled = torch.compile(function, dynamic=False)
        x = torch.randn(4096, 4096, device="cuda", requires_grad=True)
        results = [compiled(x, str(case)) for case in range(torch._dynamo.config.recompile_limit + 8)]
        sum(result.sum() for result in results).backward()  # type: ignore[union-attr]

    told = _told_of_breaks(step)
    assert f"{Path(__file__).name}:{function.__code__.co_firstlineno}:" in told
    assert "recompile limit" in told
    assert "what it calls run eagerly" in told
    assert float(re.findall(r"([\d.]+)% of the peak", told)[0]) > 30
