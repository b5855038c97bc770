"""torchtitan's command lines and tables are read from their own columns; what changes the source says why not."""

from __future__ import annotations

import csv
import json
import weakref
from pathlib import Path

import pytest
import torch

import oomcast
from lab.accuracy.cases import CaseSet
from lab.accuracy.titan_2026 import TitanDecoderJob, TitanDecoderShape
from lab.accuracy.titan_runs import TITAN_SETS, read_titan_runs
from lab.accuracy.unbuilt import LOW_PRECISION
from oomcast.units import GiB

COMMAND = "+ torchrun --nproc_per_node=4 -m torchtitan.train --module qwen3 --config qwen3_14b --compile.enable"
RUN = {
    "run": "run7-sdpa-prefetch-seq64-compile-bf16",
    "gpu": "NVIDIA B200",
    "world": "4",
    "mem_gib_max": "100.5",
    "oom": "False",
    "command": f"{COMMAND} --training.dtype=bfloat16 --training.seq_len=64 --training.local_batch_size=12",
}


def read(folder: Path, name: str, *rows: dict[str, str]) -> CaseSet:
    path = folder / f"{name}.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, TITAN_SETS[name][0], restval="")
        writer.writeheader()
        writer.writerows(rows)
    return read_titan_runs(name, path)


def test_a_command_line_becomes_a_job(tmp_path: Path) -> None:
    out = {**RUN, "oom": "True", "mem_gib_max": "", "command": f"{RUN['command']} --loss.num_chunks=2"}
    found = read(
        tmp_path,
        "torchtitan_qwen3_14b",
        RUN,
        {**RUN, "command": f"{RUN['command']} --compile.components '[\"loss\"]' --training.global_batch_size=96"},
        {**RUN, "run": "run8-full-ac", "command": f"{COMMAND} --parallelism.data_parallel_replicate_degree=2"},
        {**RUN, "run": "run9-mxfp8-linear"},
        {**RUN, "run": "run10-flex-no-fp8"},
        {**RUN, "oom": "True", "mem_gib_max": ""},
        out,
    )
    first, loss, copies, flex, last = found.cases
    assert (first.gpu, first.measured, first.alloc_conf) == ("4xb200", round(100.5 * GiB), "expandable_segments:True")
    assert (first.workload.batch_size, first.workload.job.target.length) == (12, 64)
    assert (first.workload.job.target.compiled, first.workload.job.target.pieces) == (("model", "loss"), 8)
    assert (loss.workload.job.target.compiled, loss.workload.accumulation) == (("loss",), 2)
    assert (str(copies.workload.parallel), copies.workload.job.target.recompute) == ("fsdp2,replicate=2", "full")
    assert flex.workload.job.target.attention == "flex"
    assert (last.ran, last.measured) == (False, None)
    assert [skip.reason for skip in found.skipped] == [LOW_PRECISION, "the same command ran in another row"]


def test_tables_tell_their_model_or_are_left_out(tmp_path: Path) -> None:
    context = "tokens with global batch size 128 (local batch size 32, FSDP degree 4)."
    rows = [
        {"section": "Llama 3 8B evidence", "context": context, "row": json.dumps({"Run": run, "Memory": "90.5 GiB"})}
        for run in ("BF16", "NVFP4 (bf16 tail)")
    ]
    qwen = {"context": "leaves layers 30-35 plus the LM head in bf16.", "row": rows[0]["row"]}
    found = read(tmp_path, "torchtitan_tables", *rows, {**rows[0], "section": "of nobody"}, qwen)
    case, other = found.cases
    assert (case.gpu, case.workload.batch_size, case.measured) == ("4xb200", 32, round(90.5 * GiB))
    assert (other.workload.batch_size, other.workload.job.target.shape.depth) == (16, 36)
    for each in found.cases:
        assert each.alloc_conf is None, "their command is torchrun itself"
        assert each.workload.job.target.shape.fused_qkv
        assert each.workload.job.target.embeds_apart
    assert len(found.skipped) == 2


@pytest.mark.filterwarnings("ignore")
def test_the_loss_in_pieces_gives_the_gradients_of_the_whole() -> None:
    """For real, on the host, without FSDP: what the pieces leave is what one loss leaves."""
    from lab.accuracy.titan_decoder import TitanDecoder, chunked_loss

    torch.manual_seed(0)
    model = TitanDecoder(TitanDecoderShape(32, 1, 2, 1, 64, 50, per_head=16), 8, "sdpa")
    model.table.copy_(torch.cat((torch.ones(8, 16), torch.zeros(8, 16)), dim=1))
    tokens, positions = torch.randint(50, (2, 8)), torch.arange(8).expand(2, -1)
    head = model.lm_head
    for name in ("set_reshard_after_forward", "set_reshard_after_backward", "reshard"):
        setattr(head, name, lambda *args: None)
    head.set_requires_gradient_sync = lambda *args, **options: None  # type: ignore[assignment]

    held: list[weakref.ref[torch.Tensor]] = []
    before_next: list[bool] = []
    hook = head.register_forward_pre_hook(lambda *given: before_next.extend(found() is not None for found in held[-1:]))

    def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        held.append(weakref.ref(logits))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")

    chunked_loss(model, model(tokens, positions), tokens, 4, cross_entropy).backward()
    assert before_next == [True] * 3, "torchtitan names a piece's logits: they live until the next ones are there"
    hook.remove()
    pieces = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    (cross_entropy(head(model(tokens, positions)), tokens) / tokens.numel()).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(pieces[name], parameter.grad, msg=name)


def test_a_small_job_runs_on_several_virtual_gpus() -> None:
    job = TitanDecoderJob(TitanDecoderShape(64, 2, 4, 2, 128, 500, per_head=16), 32, 4)
    answer = oomcast.estimate(job, batch_size=4, precision="amp-bf16", parallel="fsdp2", device="2xb200")
    assert answer.peak_allocated > 0


def test_a_norm_that_is_one_unit_with_the_head_costs_a_second_head() -> None:
    """FSDP gathers the two into a buffer, copies them out of it, and keeps the buffer until it gathers again."""
    shape = TitanDecoderShape(64, 2, 4, 2, 128, 50_000, per_head=16)
    head = 2 * 50_000 * 64
    together, apart = (
        oomcast.estimate(
            TitanDecoderJob(shape, 32, 4, embeds_apart=apart),
            batch_size=4,
            precision="amp-bf16",
            parallel="fsdp2",
            device="2xb200",
        ).peak_allocated
        for apart in (False, True)
    )
    assert apart - together == pytest.approx(head, rel=0.05)
