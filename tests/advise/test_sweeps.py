"""Between captures, never beyond them, and never without saying which of the two a value is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import oomcast
from oomcast.advise import memory_map, sweep
from oomcast.errors import BadInput


def test_values_that_the_job_does_not_take_are_absent() -> None:
    swept = sweep(
        "zoo:bert-base", device="a100-40gb", parameter="seq-len", batch_size=2, seq_len=128, blocks=1, steps=1
    )
    values = [point.value for point in swept.points]
    assert max(values) == 512  # the model has 512 positions
    assert {point.value for point in swept.points if point.captured} == {64, 128, 512}
    between = next(point for point in swept.points if point.value == 256)
    captured = oomcast.estimate("zoo:bert-base", device="a100-40gb", batch_size=2, seq_len=256, blocks=1, steps=1)
    assert (between.device_total, between.low, between.high) == (captured.device_total, captured.low, captured.high)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp2", "fsdp2,tp=2"])
def test_values_between_captures_on_several_gpus_are_those_of_captures(parallel: str) -> None:
    asked = {
        "device": "4xa100-40gb",
        "parallel": parallel,
        "seq_len": 64,
        "blocks": 2,
        "steps": 2,
        "precision": "amp-bf16",
    }
    swept = sweep("zoo:llama-3-8b", batch_size=4, values=(2, 3, 4, 8, 12, 16), **asked)
    between = {point.value: point for point in swept.points if not point.captured}
    assert set(between) == {3, 8, 12}
    captured = oomcast.estimate("zoo:llama-3-8b", batch_size=12, **asked)
    for name in ("peak_allocated", "peak_reserved", "device_total", "low", "high", "p_oom"):
        assert getattr(between[12], name) == getattr(captured, name)
    assert captured.breakdown["communication"] > 0


def test_the_rank_of_a_lora_between_captures(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 256, "vocab_size": 500}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    job = str(tmp_path / "config.json")

    def asked(rank: int) -> dict[str, Any]:
        return {"device": "t4", "batch_size": 2, "seq_len": 64, "steps": 1, "adapter": f"lora,r={rank}"}

    points = {point.value: point for point in sweep(job, parameter="lora-rank", **asked(32)).points}
    assert {rank for rank, point in points.items() if point.captured} == {4, 32, 256}
    captured = oomcast.estimate(job, **asked(128))
    assert points[128].peak_allocated == captured.peak_allocated > points[64].peak_allocated
    with pytest.raises(BadInput, match="no LoRA"):
        sweep(job, parameter="lora-rank", **{**asked(8), "adapter": None})


def test_numbers_of_gpus_are_each_captured() -> None:
    asked = {"batch_size": 2, "seq_len": 64, "blocks": 2, "steps": 1, "precision": "amp-bf16", "parallel": "fsdp2,tp=4"}
    swept = sweep("zoo:llama-3-8b", parameter="gpus", device="4xa100-40gb", values=(2, 4, 8), **asked)
    assert [point.value for point in swept.points] == [4, 8]  # two GPUs cannot be four
    assert all(point.captured for point in swept.points)
    assert swept.likeness is None
    whole = oomcast.estimate("zoo:llama-3-8b", device="8xa100-40gb", **asked)
    assert swept.points[1].device_total == whole.device_total < swept.points[0].device_total


def test_a_map_on_several_gpus() -> None:
    asked = {"device": "8xt4", "parallel": "fsdp2", "blocks": 1, "steps": 1}
    found = memory_map("zoo:bert-base", parameter="seq-len", batch_size=4, seq_len=128, **asked)
    inner = next(cell for cell in found.cells if not cell.captured)
    whole = oomcast.estimate("zoo:bert-base", batch_size=inner.batch_size, seq_len=inner.size, **asked)
    assert inner.device_total == whole.device_total


def test_a_map_has_a_cell_for_each_pair_and_captures_at_its_corners() -> None:
    found = memory_map("zoo:lstm-lm", device="t4", parameter="seq-len", batch_size=4, seq_len=64, steps=1)
    sizes, batches = {cell.size for cell in found.cells}, {cell.batch_size for cell in found.cells}
    assert len(found.cells) == len(sizes) * len(batches)
    corners = {(batch, size) for batch in (min(batches), max(batches)) for size in (min(sizes), max(sizes))}
    assert corners <= {(cell.batch_size, cell.size) for cell in found.cells if cell.captured}


def test_what_cannot_be_swept_is_said() -> None:
    with pytest.raises(BadInput, match="does not say how it uses them"):
        sweep("zoo:mlp", device="2xt4", batch_size=2)
    with pytest.raises(BadInput, match="GPUs of a pipeline hold different things"):
        sweep("zoo:llama-2-7b", device="2xt4", batch_size=2, seq_len=64, parallel="pp=2")
    with pytest.raises(BadInput, match="no slider"):
        sweep("zoo:mlp", device="t4", parameter="accumulation", batch_size=2)
    with pytest.raises(BadInput, match="one side"):
        memory_map("zoo:mlp", device="t4", parameter="batch-size", batch_size=2)
    with pytest.raises(BadInput, match="several of one node"):
        sweep("zoo:mlp", device="t4", parameter="gpus", batch_size=2)
