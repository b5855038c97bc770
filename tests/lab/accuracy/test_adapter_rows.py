"""Rows of fine-tuning with adapters, read as the product would be asked."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from lab.accuracy.adapter_rows import ADAPTER_SETS, read_adapter_rows
from lab.accuracy.cases import CaseSet, Measure
from oomcast.units import MiB


def read(folder: Path, name: str, *rows: dict[str, str]) -> CaseSet:
    path = folder / f"{name}.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ADAPTER_SETS[name][0], restval="")
        writer.writeheader()
        writer.writerows(rows)
    return read_adapter_rows(name, path)


QWEN = {"model": "Qwen-7B", "method": "LoRA", "seq_len": "1024", "micro_batch": "1", "grad_accum": "8",
        "gpu": "A100-SXM4-80G", "memory_gb": "21.5"}  # fmt: skip


def test_a_row_of_qwen_becomes_options_of_the_product(tmp_path: Path) -> None:
    found = read(
        tmp_path, "qwen_finetune", QWEN, {**QWEN, "method": "LoRA (emb)"}, {**QWEN, "method": "Q-LoRA"},
        {**QWEN, "model": "Qwen1.5-7B"},
    )  # fmt: skip
    plain, embeddings = found.cases
    assert plain.workload.job.reference == "hf:Qwen/Qwen-7B"
    assert (plain.workload.seq_len, plain.workload.checkpointing, plain.measured) == (1024, True, 21_500 * MiB)
    assert plain.workload.adapter is not None
    assert plain.workload.adapter.settings["target_modules"] == ["c_attn", "c_proj", "w1", "w2"]
    assert embeddings.workload.adapter is not None
    assert embeddings.workload.adapter.settings["modules_to_save"] == ["wte", "lm_head"]
    assert ["DeepSpeed" in skip.reason for skip in found.skipped] == [True, False]


PEFT: dict[str, Any] = {
    "model": "meta-llama/Llama-3.2-3B", "batch_size": "4", "dtype": "bfloat16", "max_seq_length": "768",
    "autocast": "True", "compile": "False", "peft_config": json.dumps({"peft_type": "VERA", "r": 8, "bias": None}),
    "system": json.dumps({"accelerator": "NVIDIA L40S"}), "accelerator_memory_max": "21621637120",
}  # fmt: skip


def test_rows_of_peft_say_the_length_that_is_assumed(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    found = read(
        tmp_path, "peft_bytes", PEFT, {**PEFT, "compile": "True"}, {**PEFT, "max_seq_length": ""},
        {**PEFT, "peft_config": PEFT["peft_config"][:-3]}, {**PEFT, "system": "{}"},
    )  # fmt: skip
    (case,) = found.cases
    assert (case.measure, case.measured, case.gpu) == (Measure.RESERVED, 21621637120, "l40s")
    assert str(case.workload.adapter) == "vera,r=8"
    # Its script sorts from long to short and empties the cache between: the longest batch finds it empty.
    assert (max(case.workload.lengths), case.workload.empty_cache_steps) == (768, 1)
    assert "768 tokens" in case.notes
    assert [skip.reason.split()[0] for skip in found.skipped] == ["compiled:", "its", "the", "its"]


def test_rows_of_a_method_that_peft_has_written_anew_are_left_out(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    settings = {"peft_type": "OSF", "effective_rank": 8, "peft_version": "0.19.2.dev0"}
    now = {**settings, "peft_version": peft.__version__}
    rows = [{**PEFT, "peft_config": json.dumps(one)} for one in (settings, now)]
    found = read(tmp_path, "peft_bytes", *rows)
    is_older = tuple(map(int, peft.__version__.split(".")[:2])) < (0, 21)
    assert (len(found.cases), len(found.skipped)) == ((2, 0) if is_older else (1, 1))


SWIFT = {"GPU Memory (GiB)": "27.74", "Model Type [LoRA]": "qwen-7b-chat"}


def test_rows_of_swift_draw_their_lengths_from_the_published_distribution(tmp_path: Path) -> None:
    found = read(
        tmp_path, "ms_swift", SWIFT, {**SWIFT, "Max Length": "512", "LoRA Rank": "64"}, {**SWIFT, "Batch Size": "8"},
        {"Model Type [FULL]": "qwen-7b-chat", "GPU Memory (GiB)": "73.37", "Gradient Checkpointing": "✘"},
        {**SWIFT, "Quantization": "int4 (bnb)"}, {**SWIFT, "GPU Memory (GiB)": "61.34+73.00"},
        {**SWIFT, "Model Type [LoRA]": "chatglm3-6b"}, {"memory": "24.26GiB"}, {},
    )  # fmt: skip
    plain, short, batches, full, quantised = (case.workload for case in found.cases)
    assert found.cases[0].measure is Measure.RESERVED
    assert (max(plain.lengths), max(short.lengths)) == (2048, 512)
    assert min(plain.lengths) >= 91
    assert sum(batches.lengths) > sum(plain.lengths)  # a batch is as long as the longest of its texts
    assert short.adapter is not None
    assert short.adapter.settings["r"] == 64
    assert (full.adapter, full.checkpointing, quantised.quantization) == (None, False, "nf4-double")
    assert [skip.reason.split()[0] for skip in found.skipped] == ["several", "the", "its", "it"]
