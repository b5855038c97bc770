"""Layouts over several GPUs that fit, in the order of their cost; the first of them was captured whole."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import oomcast
from oomcast.advise import Plan
from oomcast.advise.layouts import Candidate, Layouts, ModelFacts
from oomcast.capture import capture
from oomcast.cli.console import PlainConsole
from oomcast.devices import find_gpu
from oomcast.errors import BadInput
from oomcast.report.plans import plan_as_json, render_plan
from oomcast.spec import DataParallel, Parallel, Spec
from oomcast.trace import Category, TraceBuilder
from oomcast.units import MiB

WIDTH = 1024


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.fc2 = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc2(torch.relu(self.fc1(x)))


JOB = SimpleNamespace(
    model=lambda: nn.Sequential(*(Block() for _ in range(8))),
    batch=lambda batch_size: torch.randn(batch_size, WIDTH),
    loss=lambda model, batch: model(batch).square().mean(),
)
PARAMETERS = 4 * 8 * (2 * 4 * WIDTH * WIDTH + 5 * WIDTH)


def test_only_layouts_that_divide_the_states_are_tried_where_one_gpu_cannot_hold_them() -> None:
    found = oomcast.plan(JOB, batch_size=2, device="4x1500MiB", captures=3)
    assert 1500 * MiB < 6 * PARAMETERS  # which DDP holds
    assert found.best is not None
    assert found.best.fits
    assert str(found.best.candidate.parallel) != "ddp"
    assert found.best.device_total <= found.device_usable
    costs = [one.cost for one in found.layouts]
    assert costs == sorted(costs)
    held = [one.device_total for one in found.frontier]
    assert held == sorted(held, reverse=True)
    assert found.best.whole
    assert len(found.layouts) <= 3 <= found.captures
    plain = json.loads(json.dumps(plan_as_json(found)))
    assert plain["best"]["command"].startswith("oomcast estimate object:SimpleNamespace --device 4x1500MiB --parallel")

    long = dataclasses.replace(found.best, command="oomcast estimate " + "x" * 500)
    tight = dataclasses.replace(found.best, fits=False)
    shown = shown_in_a_terminal(dataclasses.replace(found, layouts=(long, tight)))
    assert long.command in shown  # whole, so that it can be copied
    assert "too tight" in shown
    assert "does not fit" not in shown


def shown_in_a_terminal(plan: Plan) -> str:
    console = PlainConsole(width=80, file=io.StringIO())
    console.print(render_plan(plan))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_nothing_fits_and_one_gpu_is_no_plan() -> None:
    assert oomcast.plan(JOB, batch_size=2, device="2x1GiB", captures=1).best is None
    with pytest.raises(BadInput, match="a plan is for several GPUs; name them like 8xh100-80gb"):
        oomcast.plan(JOB, batch_size=2, device="h100-80gb")
    with pytest.raises(BadInput, match="captures must be a whole number"):
        oomcast.plan(JOB, batch_size=2, device="2xh100-80gb", captures=0)


def test_layouts_that_the_model_cannot_be_divided_into_are_left_out() -> None:
    """Two layers are no pipeline of four stages; the batch size is asked for, as everywhere."""
    small = SimpleNamespace(
        model=lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)), batch=JOB.batch, loss=JOB.loss
    )
    found = oomcast.plan(small, batch_size=4, device="4x16GiB", captures=20)
    assert found.best is not None
    assert found.left_out > 0
    assert all(layout.candidate.parallel.pipeline <= 2 for layout in found.layouts)
    with pytest.raises(BadInput, match="the batch size is missing"):
        oomcast.plan(small, device="4x16GiB")


def test_a_long_model_is_tried_with_few_blocks_and_extended_to_all() -> None:
    """What is said of a layout comes near to what its own capture says; the best one is captured whole."""
    long = SimpleNamespace(model=lambda: nn.Sequential(*(Block() for _ in range(24))), batch=JOB.batch, loss=JOB.loss)
    found = oomcast.plan(long, batch_size=2, device="4x8GiB", captures=6)
    assert found.best is not None
    assert found.best.whole
    extended = [layout for layout in found.layouts if not layout.whole]
    assert extended
    for layout in extended:
        candidate = layout.candidate
        answer = oomcast.estimate(
            long,
            batch_size=candidate.batch_size,
            device="4x8GiB",
            parallel=str(candidate.parallel),
            accumulation=candidate.accumulation,
            checkpointing=candidate.checkpointing,
            steps=2,
        )
        assert layout.device_total == pytest.approx(answer.device_total, rel=0.06), " ".join(candidate.words())


class Reaching(nn.Module):
    """Its forward names a block, so that it does not run with fewer."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.blocks[15](x)


def test_a_model_that_needs_all_of_its_blocks_is_captured_whole() -> None:
    job = SimpleNamespace(model=Reaching, batch=JOB.batch, loss=JOB.loss)
    found = oomcast.plan(job, batch_size=2, device="2x16GiB", captures=1)
    assert [layout.whole for layout in found.layouts] == [True]
    assert found.best is not None


def test_the_command_of_a_layout_gives_its_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """To the byte, since it was captured whole; whatever the question said is in it."""
    from oomcast.cli import main

    found = oomcast.plan(
        "zoo:gpt2-medium",
        batch_size=1,
        seq_len=64,
        device="2x16GiB",
        captures=1,
        optimizer="sgd",
        precision="amp-bf16",
    )
    best = found.best
    assert best is not None
    assert best.whole
    words = shlex.split(best.command)
    assert words[:2] == ["oomcast", "estimate"]
    assert words[words.index("--optimizer") :][:2] == ["--optimizer", "sgd"]
    main([*words[1:], "--json"])
    assert json.loads(capsys.readouterr().out)["device_total"] == best.device_total


def test_gradients_that_come_as_activations_go_are_not_added_to_them() -> None:
    """What rules a layout out must be less than what it holds."""
    spec = Spec.read_sized("zoo:gpt2", 1, device="8x24GiB", precision="fp32")
    layouts = Layouts(spec, find_gpu("24GiB"), ModelFacts(100, 1, 100, 1, 1000))
    once, summed = (Candidate(Parallel(DataParallel.FSDP2), 1, count, False) for count in (1, 2))
    assert layouts.least(once) == 3 * 100 / 8 + 1000
    assert layouts.least(summed) == 4 * 100 / 8 + 1000
    layouts.learn(Candidate(Parallel(None, 2, 2), 1, 4, True), 700)
    shorter, longer = (Candidate(Parallel(DataParallel.FSDP2, 2, stages), 1, 4, True) for stages in (1, 4))
    assert layouts.least(longer) - layouts.least(shorter) > 600


LLAMA = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4,
         "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1000}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}


def written(folder: Path, configuration: dict[str, object]) -> str:
    (folder / "config.json").write_text(json.dumps(configuration))
    return f"hf:{folder / 'config.json'}"


@pytest.fixture(scope="module")
def sequences(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    pytest.importorskip("transformers")
    job = written(tmp_path_factory.mktemp("llama"), LLAMA)
    return Spec.read_sized(job, 1, device="4x24GiB", seq_len=4096, precision="amp-bf16", steps=2)


def facts(spec: Spec) -> ModelFacts:
    whole = dataclasses.replace(spec.workload, parallel=Parallel(DataParallel.FSDP2), steps=1, optimizer="sgd")
    return ModelFacts.of(capture(spec.with_workload(whole)), 4, spec.workload.seq_len)


@pytest.mark.parametrize("layout", ["fsdp2,cp=2", "fsdp2,cp=4", "ddp,cp=2", "fsdp2,tp=2,cp=2", "fsdp2,pp=2,cp=2"])
def test_no_layout_of_long_sequences_holds_less_than_arithmetic_says(sequences: Spec, layout: str) -> None:
    """What rules a layout out must be less than what it holds, and not be far from it either."""
    parallel, model = Parallel.parse(layout), facts(sequences)
    candidate = Candidate(parallel, 1, parallel.model_size, False)
    least = Layouts(sequences, find_gpu("24GiB"), model).least(candidate)
    held = oomcast.estimate(
        sequences.workload.job.reference, batch_size=1, device="4x24GiB", seq_len=4096, precision="amp-bf16", steps=2,
        parallel=layout, accumulation=parallel.model_size,
    )  # fmt: skip
    assert held.peak_allocated / 4 < least < held.peak_allocated


def test_sequences_and_experts_are_shared_where_there_are_some(sequences: Spec, tmp_path: Path) -> None:
    def tried(spec: Spec, model: ModelFacts) -> set[str]:
        return {str(one.parallel) for one in Layouts(spec, find_gpu("24GiB"), model).by_cost()}

    model = facts(sequences)
    assert {"fsdp2,cp=2", "ddp,cp=4", "fsdp2,tp=2,cp=2", "fsdp2,pp=2,cp=2"} <= tried(sequences, model)
    assert not any("ep=" in layout for layout in tried(sequences, model))
    without = dataclasses.replace(model, has_sequences=False)
    assert not any("cp=" in layout for layout in tried(sequences, without))
    job = written(tmp_path, MIXTRAL)
    experts = Spec.read_sized(job, 1, device="4x24GiB", seq_len=64, precision="amp-bf16", steps=2)
    mixture = facts(experts)
    assert mixture.experts == pytest.approx(4 * 4 * 8 * 3 * 256 * 1024, rel=0.01)
    assert {"fsdp2,ep=2", "fsdp2,ep=4"} <= tried(experts, mixture)
    assert not any("ep=" in layout and "," in layout.partition("fsdp2,")[2] for layout in tried(experts, mixture))


def test_what_only_shared_sequences_let_fit_is_found(sequences: Spec) -> None:
    """Two sequences of 32,768 tokens on two small GPUs: even with recomputation each sequence needs both."""
    found = oomcast.plan(
        sequences.workload.job.reference, batch_size=1, device="2x1250MiB", seq_len=32768, precision="amp-bf16",
        captures=10,
    )  # fmt: skip
    assert found.best is not None
    assert found.best.candidate.parallel.context == 2
    assert not any(layout.fits for layout in found.layouts if layout.candidate.parallel.context == 1)


@pytest.mark.parametrize(
    ("shape", "dtype", "tokens"),
    [
        ((2, 512, 1024), "float32", 512),
        ((2, 300), "int64", 300),
        ((2, 1024), "float32", 1),
        ((2, 3, 224, 224), "float32", 196),
        ((2, 1, 64, 64, 64), "float32", 64),
        ((2, 3, 8, 8), "float32", 1),
    ],
)
def test_how_many_tokens_a_sample_has(shape: tuple[int, ...], dtype: str, tokens: int) -> None:
    builder = TraceBuilder()
    builder.allocate(4 * math.prod(shape), operator="to_device", category=Category.INPUT, shape=shape, dtype=dtype)
    assert ModelFacts.of(builder.trace(), 4, None).tokens == tokens
    assert ModelFacts.of(builder.trace(), 4, 77).tokens == 77
