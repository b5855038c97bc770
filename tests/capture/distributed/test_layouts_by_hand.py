"""What each rank holds, against formulas over parameters, shards, buckets and activations, to 1 %.

The job is wide enough that its parameters are all that counts: blocks of two layers, a batch of four rows. P is the
bytes of the parameters, L the number of blocks, B = P / L one block's; Adam's two states are 2 P.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.estimation import Estimate

WIDTH, BLOCKS, RANKS = 1024, 8, 8
B = 4 * (2 * 4 * WIDTH * WIDTH + 5 * WIDTH)
P = BLOCKS * B


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.fc2 = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc2(torch.relu(self.fc1(x)))


def model() -> nn.Module:
    return nn.Sequential(*(Block() for _ in range(BLOCKS)))


def batch(batch_size: int) -> torch.Tensor:
    return torch.randn(batch_size, WIDTH)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).float().sum()


JOB = SimpleNamespace(model=model, batch=batch, loss=loss)


def ask(parallel: str, device: str = f"{RANKS}xh100-80gb", **options: Any) -> Estimate:
    return oomcast.estimate(JOB, batch_size=4, device=device, optimizer="adamw", parallel=parallel, **options)


def tensors(answer: Estimate) -> int:
    """The peak without cuBLAS's workspaces."""
    return answer.peak_allocated - answer.breakdown["workspace"]


def close(measured: float, by_hand: float) -> bool:
    return abs(measured - by_hand) <= 0.01 * by_hand


@pytest.fixture(scope="module")
def ddp() -> Estimate:
    return ask("ddp")


def test_ddp_holds_the_gradients_twice(ddp: Estimate) -> None:
    """Parameters, gradients, buckets, two states; in the step foreach's temporary."""
    assert close(tensors(ddp), 6 * P)
    assert close(ddp.breakdown["parameter"], P)
    assert close(ddp.breakdown["optimizer_state"], 2 * P)


def test_ddp_whose_gradients_are_views_of_its_buckets_holds_them_once() -> None:
    """Parameters, buckets, two states; in the step foreach's temporary."""
    answer = ask("ddp,bucket-view,static-graph")
    assert close(tensors(answer), 5 * P)
    assert any("gradients are views of them, a static graph" in sentence for sentence in answer.assumptions)


def test_an_answer_for_several_gpus_has_its_ranks(ddp: Estimate) -> None:
    assert [(kind.rank, kind.count, kind.role) for kind in ddp.ranks] == [(0, RANKS, "every rank")]
    assert ddp.ranks[0].device_total == ddp.device_total
    assert ddp.breakdown["communication"] > 0
    assert ddp.device_total == sum(ddp.breakdown.values())


def test_fsdp2_holds_shards_and_two_blocks() -> None:
    """In backward, when the last but one block is done: states 3 P / N, its gradients but for two blocks', and four
    times a block: gathered, the next one gathered ahead, its gradients, their buffer for the reduction."""
    answer = ask("fsdp2")
    assert close(tensors(answer), 3 * P / RANKS + (BLOCKS - 2) / BLOCKS * P / RANKS + 4 * B)
    assert close(answer.breakdown["parameter"], P / RANKS)


@pytest.mark.parametrize(("layout", "buffer"), [("fsdp2", B), ("fsdp2,reduce-half", B / 2)])
def test_fsdp2_reduces_in_fp32_or_in_16_bits(layout: str, buffer: float) -> None:
    """As above, with blocks gathered and their gradients in 16 bits; the buffer of the reduction is of its own type."""
    answer = ask(layout, precision="amp-bf16")
    assert close(tensors(answer), 3 * P / RANKS + (BLOCKS - 2) / BLOCKS * P / RANKS + 3 * B / 2 + buffer)


def test_fsdp_that_reduces_in_16_bits_says_so() -> None:
    answer = ask("fsdp,reduce-half", precision="amp-bf16")
    assert any("amp-bf16 by its mixed precision, reduced in 16 bits" in sentence for sentence in answer.assumptions)
    assert tensors(answer) < tensors(ask("fsdp", precision="amp-bf16"))


def test_nothing_is_reduced_in_16_bits_where_nothing_is_gathered_so() -> None:
    with pytest.raises(oomcast.errors.BadInput, match=r"reduce-half needs .* not fp32; write amp-bf16 or amp-fp16"):
        ask("fsdp2,reduce-half", precision="fp32")


def test_fsdp2_with_copies_holds_larger_shards() -> None:
    shards = RANKS // 2
    answer = ask("fsdp2,replicate=2")
    assert close(tensors(answer), 3 * P / shards + (BLOCKS - 2) / BLOCKS * P / shards + 4 * B)


def test_fsdp2_that_does_not_reshard_holds_all_blocks_at_once() -> None:
    """When backward begins: states 3 P / N, all blocks gathered, one block's gradients and their buffer."""
    assert close(tensors(ask("fsdp2,no-reshard")), 3 * P / RANKS + P + 2 * B)


@pytest.mark.parametrize(("layout", "strategy"), [("", "HYBRID_SHARD"), (",no-reshard", "HYBRID_SHARD_ZERO2")])
def test_fsdp_with_copies_holds_larger_shards(layout: str, strategy: str) -> None:
    answer = ask("fsdp,replicate=2" + layout)
    assert close(answer.breakdown["parameter"], P / (RANKS // 2))
    assert close(answer.breakdown["optimizer_state"], 2 * P / (RANKS // 2))
    assert any(f"fsdp: {strategy}," in sentence for sentence in answer.assumptions)


def test_fsdp_that_does_not_reshard_holds_more(fsdp: Estimate) -> None:
    answer = ask("fsdp,no-reshard")
    assert tensors(answer) - tensors(fsdp) > P / 2
    assert any("SHARD_GRAD_OP" in sentence for sentence in answer.assumptions)


def test_fsdp2_offloaded_holds_no_states() -> None:
    answer = ask("fsdp2,offload")
    assert answer.breakdown["optimizer_state"] == 0
    assert tensors(answer) < 5 * B


@pytest.mark.parametrize("layout", ["fsdp2,offload", "fsdp,offload"])
def test_what_is_offloaded_is_told_for_each_node(layout: str) -> None:
    """Two nodes of four GPUs: on each, half of the parameters, the gradients and two states."""
    answer = ask(layout, device="2x4xh100-80gb")
    assert answer.host_memory is not None
    assert close(answer.host_memory, 4 * P / 2)
    assert ask(layout.partition(",")[0], device="2x4xh100-80gb").host_memory is None


@pytest.fixture(scope="module")
def fsdp() -> Estimate:
    return ask("fsdp")


def test_fsdp_holds_shards(fsdp: Estimate) -> None:
    assert close(fsdp.breakdown["parameter"], P / RANKS)
    assert close(fsdp.breakdown["optimizer_state"], 2 * P / RANKS)
    assert any("record_stream" in sentence for sentence in fsdp.assumptions)


def test_tensor_parallelism_cuts_the_layers() -> None:
    """Weights and the first layer's bias are cut, the second's bias is whole; in the step foreach's temporary."""
    whole = BLOCKS * 4 * WIDTH
    assert close(tensors(ask("tp=8")), 5 * ((P - whole) / RANKS + whole))


def test_tensor_parallelism_beside_ddp_and_fsdp2() -> None:
    assert close(tensors(ask("ddp,tp=2")), 6 * P / 2)
    answer = ask("fsdp2,tp=2")
    assert close(answer.breakdown["parameter"], P / RANKS)
    assert close(tensors(answer), 3 * P / RANKS + (BLOCKS - 2) / BLOCKS * P / RANKS + 4 * B / 2)


deepspeed = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs deepspeed")
BUCKET = 4 * 500_000_000
"""DeepSpeed's default: so many elements."""


@deepspeed
@pytest.mark.parametrize("stage", ["zero1", "zero2"])
def test_zero_1_and_2_keep_parameters_whole(stage: str) -> None:
    """The parameters, their fp32 shard, its two states, gradients, and the bucket they are reduced in."""
    answer = ask(stage)
    assert close(tensors(answer), P + P / RANKS + 2 * P / RANKS + P + BUCKET)


@deepspeed
def test_zero_where_deepspeed_was_loaded_before_on_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has chosen the CPU then, for which it would compile code."""
    real_accelerator = importlib.import_module("deepspeed.accelerator.real_accelerator")
    cpu_accelerator = importlib.import_module("deepspeed.accelerator.cpu_accelerator")
    monkeypatch.setattr(real_accelerator, "ds_accelerator", cpu_accelerator.CPU_Accelerator())
    assert close(tensors(ask("zero1")), P + P / RANKS + 2 * P / RANKS + P + BUCKET)


@deepspeed
def test_zero_3_shards_the_parameters() -> None:
    """Shards of parameters, masters, gradients and two states, the bucket; all parameters gathered (up to a billion
    stay so), six blocks of them twice: 50 million elements are gathered ahead into one buffer, and taken out of it.
    Gradients that were lent to the stream that copies them into the bucket are not counted once they are let go."""
    answer = ask("zero3")
    assert close(tensors(answer), 5 * P / RANKS + BUCKET + P + 6 * B)
    assert close(answer.breakdown["optimizer_state"], 2 * P / RANKS)


@deepspeed
def test_zero_tells_what_its_host_holds() -> None:
    """Each rank puts off its part of the parameters, the masters, the gradients and two states, all in fp32;
    ZeRO-Infinity has the same on the GPU."""
    offloaded, on_disks = ask("zero3,offload"), ask("zero3,nvme")
    assert offloaded.host_memory is not None
    assert close(offloaded.host_memory, 5 * P)
    assert on_disks.peak_allocated == offloaded.peak_allocated
    assert on_disks.host_memory == RANKS * (5 * 100_000_000 * 4 + 4 * P // RANKS)


@pytest.mark.parametrize(
    ("job", "layout", "words"),
    [
        (JOB, "tp=3", "tp=3 does not divide"),
        (SimpleNamespace(model=lambda: nn.Linear(8, 8), batch=lambda n: torch.randn(n, 8)), "tp=3",
         "do not tell which are cut by columns"),
    ],
)  # fmt: skip
def test_what_cannot_be_cut_is_told(job: Any, layout: str, words: str) -> None:
    with pytest.raises(oomcast.errors.BadInput) as refused:
        oomcast.estimate(job, batch_size=4, device="3xh100-80gb", parallel=layout)
    assert words in str(refused.value)


def test_heads_that_cannot_be_shared_are_told() -> None:
    """The layers' features can be divided by four, the six heads cannot."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.num_heads = 6
            self.query, self.out = nn.Linear(96, 96), nn.Linear(96, 96)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.query(x))

    job = SimpleNamespace(
        model=lambda: nn.Sequential(Attention(), Attention()),
        batch=lambda size: torch.randn(size, 96),
        loss=lambda model, batch: model(batch).sum(),
    )
    with pytest.raises(oomcast.errors.BadInput, match="tp=4 does not divide the 6 heads of 0; choose a divisor"):
        oomcast.estimate(job, batch_size=4, device="4xh100-80gb", parallel="tp=4")


def test_heads_of_a_model_of_transformers_are_told_before_its_attention_fails() -> None:
    with pytest.raises(oomcast.errors.BadInput, match="tp=4 does not divide the 2 heads of keys and values"):
        oomcast.estimate(
            "hf:Qwen/Qwen2.5-1.5B", batch_size=1, seq_len=64, device="4xh100-80gb", parallel="tp=4", blocks=2
        )


class Tied(nn.Module):
    """The head is the embedding's weight, used outside of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(self.blocks(self.tokens(x)), self.tokens.weight)


def test_a_weight_that_is_used_outside_of_its_layer() -> None:
    """It stays whole; where a plan or a pipeline takes it away, that is told."""
    job = SimpleNamespace(model=Tied, batch=lambda size: torch.zeros(size, 4, dtype=torch.long), loss=loss)
    answer = oomcast.estimate(job, batch_size=4, device="2xh100-80gb", parallel="tp=2")
    table = 4 * 256 * WIDTH
    assert close(answer.breakdown["parameter"], 2 * B / 2 + table)
    with pytest.raises(oomcast.errors.BadInput, match="a stage reads the weight of a layer that another stage has"):
        oomcast.estimate(job, batch_size=4, device="2xh100-80gb", parallel="pp=2", rank=1)
    job.tensor_parallel_plan = lambda model: {"tokens": "embedding_rowwise"}
    with pytest.raises(oomcast.errors.BadInput, match=r"a weight that is cut .* is used outside of its layer"):
        oomcast.estimate(job, batch_size=4, device="2xh100-80gb", parallel="tp=2")


def test_searches_ask_for_one_rank() -> None:
    with pytest.raises(oomcast.errors.BadInput, match="add --parallel ddp, fsdp2"):
        oomcast.fit(JOB, device="8xh100-80gb")
    with pytest.raises(oomcast.errors.BadInput, match="the stages of pp=2 differ; name one with --rank"):
        oomcast.fit(JOB, device="2xh100-80gb", parallel="pp=2")
    with pytest.raises(oomcast.errors.BadInput, match="--parallel is for PyTorch; a JAX job says itself"):
        oomcast.estimate(JOB, batch_size=1, device="2xh100-80gb", parallel="ddp", framework="jax")
    with pytest.raises(oomcast.errors.BadInput, match="offered for PyTorch, TensorFlow and JAX jobs, not for mxnet"):
        oomcast.estimate(JOB, batch_size=1, device="2xh100-80gb", parallel="ddp", framework="mxnet")


def test_a_job_that_does_not_say_how_it_uses_several_gpus() -> None:
    with pytest.raises(oomcast.errors.BadInput, match="add --parallel ddp, fsdp2"):
        oomcast.estimate(JOB, batch_size=4, device="8xh100-80gb")


def test_the_stages_of_a_pipeline_are_told_each() -> None:
    """Two blocks a stage: parameters, gradients, two states and foreach's temporary; buffers of a few rows."""
    answer = ask("pp=4", "4xh100-80gb")
    assert [kind.role for kind in answer.ranks] == [f"stage {number} of 4" for number in (1, 2, 3, 4)]
    for kind in answer.ranks:
        assert close(kind.peak_allocated - answer.breakdown["workspace"], 5 * P / 4)
    assert answer.device_total == max(kind.device_total for kind in answer.ranks)


def test_stages_that_have_the_embedding_or_the_head_have_a_block_less() -> None:
    """Eight blocks, with what stands before and after them ten, are two for each of five stages; one for the first and
    the last."""
    answer = ask("pp=5", "5xh100-80gb")
    for kind, blocks in zip(answer.ranks, (1, 2, 2, 2, 1), strict=True):
        assert close(kind.peak_allocated - answer.breakdown["workspace"], 5 * blocks * B)
    assert any("have a block less than the others" in sentence for sentence in answer.assumptions)


def test_a_stage_of_fsdp2_is_cast_by_fsdp2_alone() -> None:
    """Shards in fp32 with two states, all blocks of the stage gathered, its gradients summed whole in fp32 until the
    last micro-batch, and one block's in 16 bits; what is received, 4 rows of 1,024 numbers for each micro-batch, comes
    in 16 bits. There is no autocast beside it."""

    def loss_in_16_bits(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        assert not torch.is_autocast_enabled("cuda")
        return loss(model, batch)

    job = SimpleNamespace(model=model, batch=batch, loss=loss_in_16_bits)
    few, many = (
        oomcast.estimate(
            job,
            batch_size=4,
            device="16xh100-80gb",
            rank=8,
            optimizer="adamw",
            parallel="fsdp2,pp=2",
            precision="amp-bf16",
            accumulation=count,
        )
        for count in (2, 22)
    )
    shard = P / 2 / RANKS
    assert close(tensors(few), 3 * shard + P / 2 / 2 + P / 2 + B / 2)
    # One micro-batch more is run, with a loss of its own.
    assert abs(many.peak_allocated - few.peak_allocated - 20 * 4 * WIDTH * 2) <= 512


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"parallel": "pp=3", "device": "3xh100-80gb"}, "a pipeline of 3 stages does not divide the 8 blocks"),
        ({"parallel": "pp=4", "device": "4xh100-80gb", "accumulation": 2}, "give --accumulation 4 or more"),
        ({"parallel": "ddp,cp=3", "device": "3xh100-80gb"}, "cp=3 does not divide the sequence of 1024 into 6 pieces"),
        (
            {"parallel": "ddp,cp=3,pp=2", "device": "6xh100-80gb"},
            "cp=3 does not divide the sequence of 1024 into 6 pieces",
        ),
        ({"parallel": "cp=2,pp=2", "device": "4xh100-80gb"}, "like ddp,pp=2,cp=2 or fsdp2,pp=2,cp=2"),
        ({"parallel": "ddp,ep=2", "device": "2xh100-80gb"}, "ep=N is offered for job files beside fsdp2 alone"),
    ],
)
def test_what_cannot_be_a_pipeline_is_told(options: dict[str, Any], words: str) -> None:
    with pytest.raises(oomcast.errors.BadInput) as refused:
        ask(**options)
    assert words in str(refused.value)


def test_what_has_no_sequences_cannot_be_cut_along_them() -> None:
    with pytest.raises(oomcast.errors.JobFailed, match="cp=2 cuts dimension 1 of the batch's tensors, which must be"):
        ask("ddp,cp=2", "2xh100-80gb")


def decoder(length: int, layers: int) -> SimpleNamespace:
    """Wide enough for its activations to be nearly all that is held."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = self.qkv(x).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            return x + self.out(mixed.transpose(1, 2).reshape(x.shape))

    return SimpleNamespace(
        model=lambda: nn.Sequential(*(Attention() for _ in range(layers))),
        batch=lambda size: torch.randn(size, length, 64),
        loss=lambda model, batch: model(batch).float().sum(),
    )


def test_context_parallelism_cuts_the_sequences() -> None:
    """A layer more keeps as much of half of a sequence as of a whole one that is half as long; beside it are the
    input of the ring's merge in fp32 and a sum for each row."""

    def for_a_layer(length: int, **options: Any) -> float:
        def ask_for(layers: int) -> int:
            return tensors(
                oomcast.estimate(decoder(length, layers), batch_size=8, precision="bf16", steps=2, **options)
            )

        return (ask_for(8) - ask_for(4)) / 4

    short = for_a_layer(4096, device="h100-80gb")
    half = for_a_layer(8192, device="2xh100-80gb", parallel="ddp,cp=2")
    assert short <= half < 1.25 * short


def test_attention_that_is_no_ring_is_told() -> None:
    """Written out by hand, it would see a part of the sequence alone."""
    by_hand = decoder(1024, 2)
    fused = nn.functional.scaled_dot_product_attention

    def written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-1, -2), -1) @ v

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        nn.functional.scaled_dot_product_attention = written_out
        try:
            return model(batch).float().sum()
        finally:
            nn.functional.scaled_dot_product_attention = fused

    options = {"batch_size": 2, "precision": "bf16", "steps": 1, "device": "2xh100-80gb", "parallel": "ddp,cp=2"}
    ring = oomcast.estimate(decoder(1024, 2), **options)
    alone = oomcast.estimate(SimpleNamespace(model=by_hand.model, batch=by_hand.batch, loss=loss), **options)
    assert not any("no attention ran as a ring" in told for told in ring.assumptions)
    assert any("no attention ran as a ring" in told for told in alone.assumptions)


@pytest.mark.parametrize("stage", [0, 1])
def test_context_parallelism_within_a_pipeline(stage: int) -> None:
    """A layer more of a stage keeps as much as in the test above."""

    def for_a_layer(length: int, gpus: int, parallel: str) -> float:
        def ask_for(layers: int) -> int:
            job = decoder(length, 2 * layers)
            options = {"batch_size": 8, "precision": "bf16", "steps": 2, "accumulation": 2}
            place = {"device": f"{gpus}xh100-80gb", "rank": stage * gpus // 2}
            return tensors(oomcast.estimate(job, parallel=parallel, **options, **place))

        return (ask_for(8) - ask_for(4)) / 4

    short, half = for_a_layer(4096, 4, "ddp,pp=2"), for_a_layer(8192, 4, "ddp,cp=2,pp=2")
    assert short <= half < 1.25 * short


def test_micro_batches_of_a_pipeline_that_repeat_others_add_their_buffers_alone() -> None:
    """Each stage of two receives into a buffer for each micro-batch; 4 rows of 1,024 numbers take 16 KiB. The first one
    has its input of all, too."""
    few, many = (ask("pp=2", device="2xh100-80gb", accumulation=count) for count in (3, 23))
    for short, long, kinds in zip(few.ranks, many.ranks, (2, 1), strict=True):
        assert long.peak_allocated - short.peak_allocated == kinds * 20 * 4 * WIDTH * 4
    assert any("3 of the 23 micro-batches are followed" in sentence for sentence in many.assumptions)


def test_the_search_for_shardings_asks_once_for_all_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch itself looks at all tensors of a foreach operator once for each of them."""
    from torch.distributed.tensor._op_schema import OpSchema

    from oomcast.capture.torch.run import capture_here
    from oomcast.spec import Spec

    looks = 0
    original = OpSchema.args_spec

    def counted(schema: OpSchema) -> Any:
        nonlocal looks
        looks += 1
        return original.fget(schema)  # type: ignore[attr-defined]

    monkeypatch.setattr(OpSchema, "args_spec", property(counted))
    spec = Spec.read_sized(
        JOB, 4, device="8xh100-80gb", parallel="fsdp2,tp=2", steps=1, optimizer="adamw", precision="fp32"
    )
    capture_here(spec)
    assert 0 < looks < 5 * BLOCKS * 4  # some looks for each parameter; its own code takes one more in each operator
