"""The rebuilt language models: as many trained parameters as published, and what older versions of torch kept."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from lab.accuracy.bert_model import BertClassifier
from lab.accuracy.decoder_jobs import SHAPES, DecoderJob, Lora, Shape
from lab.accuracy.mem_tracker import track
from lab.accuracy.old_torch import softmax_of_2022
from lab.accuracy.tune_jobs import TUNE_SHAPES, TuneJob
from oomcast.capture import capture
from oomcast.capture.torch.optimizers import make_optimizer
from oomcast.spec import Spec, Workload
from oomcast.trace import Category, Phase, Trace

SMALL = Shape(layers=2, heads=4, width=32, vocabulary=64, hidden=48, groups=2, norm="rms-float-out")


def trained(job: DecoderJob | TuneJob) -> int:
    with FakeTensorMode():
        return sum(p.numel() for p in job.model().parameters() if p.requires_grad)


@pytest.mark.parametrize(
    ("name", "adapter", "published"),
    [
        # Lightning-AI/litgpt, tutorials/resource-tables.md, column "Trainable parameters"
        ("stablelm-base-alpha-3b", False, 2_097_152),
        ("llama-2-7b", False, 4_194_304),
        ("llama-2-13b", False, 6_553_600),
        ("stablelm-base-alpha-3b", True, 2_125_248),
        ("llama-2-7b", True, 4_279_744),
    ],
)
def test_trained_parameters_are_as_published(name: str, adapter: bool, published: int) -> None:
    assert trained(DecoderJob(SHAPES[name], 8, None if adapter else Lora(8, 0.05), adapter)) == published


@pytest.mark.parametrize("lora", [None, Lora(2, 0.1), Lora(2, 0.1, keys=True, projection=True, mlp=True, head=True)])
@pytest.mark.parametrize("adapter", [False, True])
def test_a_small_decoder_trains_for_real(lora: Lora | None, adapter: bool) -> None:
    job = DecoderJob(SMALL, 8, None if adapter else lora, adapter, bf16=False)
    model = job.model()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    loss = job.loss(model, job.batch(3))
    loss.backward()
    assert torch.isfinite(loss)
    assert all((p.grad is not None) == p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("recipe", ["2024-04", "2024-12"])
@pytest.mark.parametrize("lora", [None, Lora(2, 0.1, projection=True, mlp=True)])
def test_a_small_decoder_of_torchtune_trains_for_real(recipe: Any, lora: Lora | None) -> None:
    job = TuneJob(SMALL, tied=lora is None, length=8, lora=lora, checkpointing=True, recipe=recipe)
    model = job.model()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    loss = job.loss(model, job.batch(3))
    loss.backward()
    assert torch.isfinite(loss)
    assert all((p.grad is not None) == p.requires_grad for p in model.parameters())


def test_llama_2_of_torchtune_has_as_many_parameters_as_published() -> None:
    shape, tied = TUNE_SHAPES["llama2-7b"]
    with FakeTensorMode():
        assert sum(p.numel() for p in TuneJob(shape, tied, 8).model().parameters()) == 6_738_415_616
    assert trained(TuneJob(shape, tied, 8, Lora(8, 0.05))) == 4_194_304


def captured(job: Any, **options: Any) -> Trace:
    return capture(Spec.read(job, device="a100-40gb", batch_size=2, **options))


class Plain:
    """A linear layer of 1 MiB with an optimizer of choice."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def model(self) -> Any:
        return torch.nn.Linear(512, 512, bias=False)

    def batch(self, batch_size: int) -> Any:
        return torch.randn(batch_size, 512), torch.randint(512, (batch_size,))

    def loss(self, model: Any, batch: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(batch[0].to(model.weight.dtype)), batch[1])


def most_temporaries(trace: Trace) -> int:
    live = most = 0
    for kind, index in trace.events:
        made = trace.allocations[index] if kind in (0, 1) else None
        if made is None or made.phase is not Phase.OPTIMIZER or made.category is Category.OPTIMIZER_STATE:
            continue
        live += made.nbytes if kind == 0 else -made.nbytes
        most = max(most, live)
    return most


def test_adam_of_2023_has_two_sets_of_temporaries_and_todays_one() -> None:
    megabyte = 512 * 512 * 4
    assert most_temporaries(captured(Plain(torch.optim.Adam))) // megabyte == 1
    of_2023 = partial(make_optimizer, "adam", version=(2, 0))
    assert most_temporaries(captured(Plain(of_2023))) // megabyte == 2


def test_softmax_of_2022_is_softmax() -> None:
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, 5, dtype=torch.float64)
    (mine,) = torch.autograd.grad((softmax_of_2022(scores) * weights).sum(), scores)
    (theirs,) = torch.autograd.grad((scores.softmax(-1) * weights).sum(), scores)
    torch.testing.assert_close(mine, theirs)


def test_bert_has_the_size_of_bert_large() -> None:
    with FakeTensorMode():
        model = BertClassifier(1024, 24, 16)
    # 335,141,888 of BERT large with its pooler, and a classifier for two classes.
    assert sum(p.numel() for p in model.parameters()) == 335_141_888 + 2 * 1024 + 2


def test_mem_tracker_runs_or_says_why_not() -> None:
    tracked = track(Workload.create(Plain(torch.optim.Adam), batch_size=2))
    # Weights, gradients, two states of Adam and its temporaries.
    assert tracked.peak is not None
    assert 4 * 2**20 <= tracked.peak < 7 * 2**20

    half = track(Workload.create(Plain(torch.optim.Adam), batch_size=2, precision="bf16"))
    assert half.peak is not None
    assert 0.45 < half.peak / tracked.peak < 0.55

    class Broken(Plain):
        def model(self) -> Any:
            raise RuntimeError("no such thing")

    # Over eight GPUs an eighth of them all; whole are the one layer, its gradient, and what is reduced.
    sharded = track(Workload.create(Plain(torch.optim.Adam), batch_size=2, parallel="fsdp2"), world_size=8)
    assert sharded.peak is not None, sharded.error
    assert 3.5 * 2**20 <= sharded.peak < 4 * 2**20
    copied = track(Workload.create(Plain(torch.optim.Adam), batch_size=2, parallel="ddp"), world_size=8)
    assert (copied.peak, copied.error) == (None, "ValueError: of several GPUs it knows FSDP2 alone, not ddp")

    failed = track(Workload.create(Broken(None), batch_size=2))
    assert (failed.peak, failed.error) == (None, "RuntimeError: no such thing")
