"""Layouts over several GPUs and devices with counts: how they are written, and which are refused in one sentence."""

from __future__ import annotations

import pytest

from oomcast.errors import BadInput, UnknownName
from oomcast.spec import DataParallel, Machines, Parallel, Place, Spec, read_machines


@pytest.mark.parametrize(
    ("text", "machines"),
    [
        ("h100-80gb", Machines(1, 1, "h100-80gb")),
        ("8xh100-80gb", Machines(1, 8, "h100-80gb")),
        ("2x8xa100-40gb", Machines(2, 8, "a100-40gb")),
        (" 2 x 8 X A100 40GB", Machines(2, 8, "A100 40GB")),
        ("16×24GiB", Machines(1, 16, "24GiB")),
        ("rtx-3090", Machines(1, 1, "rtx-3090")),
        ("4090", Machines(1, 1, "4090")),
    ],
)
def test_a_device_with_counts(text: str, machines: Machines) -> None:
    assert read_machines(text) == machines
    assert Place(text).machines.world_size == machines.nodes * machines.gpus_per_node


@pytest.mark.parametrize("text", ["0xh100-80gb", "8x0xh100-80gb", "999999999x8xh100-80gb"])
def test_a_count_that_cannot_be(text: str) -> None:
    with pytest.raises(BadInput, match="must have 1 to"):
        Place(text)


def test_a_layout_is_read_and_written() -> None:
    layout = Parallel.parse("FSDP2, tp=2,pp=4")
    assert layout == Parallel(DataParallel.FSDP2, tensor=2, pipeline=4)
    assert str(layout) == "fsdp2,tp=2,pp=4"
    assert Parallel.parse(str(layout)) == layout
    assert Parallel.parse("zero3,offload") == Parallel(DataParallel.ZERO3, offload=True)
    assert str(Parallel.parse("fsdp,no-reshard")) == "fsdp,no-reshard"
    assert str(Parallel.parse("reduce-half,fsdp2")) == "fsdp2,reduce-half"
    assert layout.data_size(64) == 8
    assert str(Parallel.parse("pp=4,schedule=interleaved")) == "pp=4,pieces=2,schedule=interleaved"
    assert Parallel.parse("pp=4,schedule=zbv").stages_of(1) == (1, 6)
    assert Parallel.parse("pp=4,schedule=interleaved,pieces=3").stages_of(1) == (1, 5, 9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fsdp3", "unknown way to be parallel 'fsdp3'; did you mean fsdp"),
        ("tp", "tp needs its number of GPUs; write it like tp=2"),
        ("tp=0", "tp must be a whole number of at least 1"),
        ("tp=two", "tp must be a whole number of at least 1"),
        ("ddp,fsdp2", "ddp and fsdp2 exclude each other"),
        ("tp=2,tp=4", "two times tp exclude each other"),
        ("zero3,tp=2", "zero3 is offered by itself"),
        ("ddp,offload", "offload needs"),
        ("ddp,replicate=2", "replicate=N is about copies of shards"),
        ("fsdp,tp=2,replicate=2", "fsdp is offered by itself"),
        ("fsdp2,bucket-view", "static-graph and bucket-view are settings of DDP"),
        ("zero2,nvme", "nvme is ZeRO-Infinity; write zero3,nvme"),
        ("fsdp2,schedule=zbv", "schedule and pieces are about a pipeline; write them together with pp=N"),
        ("pp=2,pieces=2", "1f1b has one stage for each GPU"),
        ("pp=2,schedule=interleaved,pieces=1", "needs at least two pieces"),
        ("pp=2,schedule=zbv,pieces=3", "zbv has two pieces of the model on each GPU"),
        ("ddp,pp=2,schedule=zero-bubble", "which DDP does not see"),
        ("pp=2,schedule=gpipe", "unknown way to be parallel 'schedule=gpipe'"),
        ("zero3,no-reshard", "no-reshard is about what FSDP gathers"),
        ("ddp,reduce-half", "reduce-half is about FSDP's mixed precision"),
        ("", "unknown way to be parallel"),
    ],
)
def test_a_layout_that_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        Parallel.parse(text)
    assert words in str(refused.value)
    assert not str(refused.value).startswith("--")  # the command line names the option itself


@pytest.mark.parametrize(
    ("device", "layout", "words"),
    [
        ("8xh100-80gb", "fsdp2,tp=3", "8 GPUs cannot be divided by 3"),
        ("8xh100-80gb", "tp=16", "tp=16 needs 16 GPUs, but the device has 8"),
        ("8xh100-80gb", "tp=2", "tp=2 leaves 4 GPUs for different samples"),
        ("8xh100-80gb", "fsdp2,replicate=3", "replicate=3 does not divide the 8 data-parallel GPUs"),
        ("h100-80gb", "ddp", "--parallel ddp needs several GPUs; name them like 8xh100-80gb"),
    ],
)
def test_a_layout_that_the_device_does_not_take(device: str, layout: str, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        Spec.read("zoo:mlp", batch_size=2, device=device, parallel=layout)
    assert words in str(refused.value)


def test_a_rank_beyond_the_world() -> None:
    with pytest.raises(BadInput, match="has the ranks 0 to 7"):
        Spec.read("zoo:mlp", batch_size=2, device="8xt4", parallel="ddp", rank=8)


def test_a_spec_goes_through_json_and_old_ones_stay() -> None:
    spec = Spec.read("zoo:mlp", batch_size=2, device="8xt4", parallel="ddp", rank=3)
    assert Spec.from_dict(spec.as_dict()) == spec
    plain = Spec.read("zoo:mlp", batch_size=2, device="t4").as_dict()
    assert "parallel" not in plain["workload"]
    assert "rank" not in plain["place"]


def test_a_near_word_is_told() -> None:
    with pytest.raises(UnknownName) as unknown:
        Parallel.parse("zero")
    assert "zero1" in unknown.value.near


def test_where_no_word_is_near_all_of_a_few_are_told() -> None:
    with pytest.raises(UnknownName, match=r"There are ddp, .*, schedule=zbv\.$"):
        Parallel.parse("wonder")
