"""Each saving is the difference of two estimates that a user can ask for; each patch does what it says."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import oomcast
from oomcast.advise import Advice, what_to_change
from oomcast.advise.job_file import optimizer_of, patched
from oomcast.advise.remedies import remedies_for, with_8bit_states
from oomcast.capture import capture
from oomcast.errors import BadInput
from oomcast.estimation import Estimate, estimate_trace, target_of
from oomcast.spec import Spec, Workload
from oomcast.trace import Category, Trace
from oomcast.units import parse_bytes

BATCH = 60_000
DEVICE = "2GiB"


def estimated(job: str, **options: Any) -> Estimate:
    return oomcast.estimate(job, **({"batch_size": BATCH, "device": DEVICE, "steps": 2} | options))


def asked(job: str, **options: Any) -> Advice:
    return what_to_change(job, **({"batch_size": BATCH, "device": DEVICE, "steps": 2} | options))  # type: ignore[arg-type]


AS_ESTIMATES: dict[str, dict[str, Any]] = {
    "checkpointing": {"checkpointing": True},
    "checkpointing-offload": {"checkpointing": True, "offload_activations": True},
    "amp-bf16": {"precision": "amp-bf16"},
    "foreach-off": {"optimizer": "adamw-forloop"},
    "sgd": {"optimizer": "sgd-momentum"},
    "accumulate-2": {"batch_size": BATCH // 2, "accumulation": 2},
    "expandable-segments": {"alloc_conf": "expandable_segments:True"},
}


def test_savings_are_differences_of_estimates(job: str) -> None:
    advice = asked(job, only=list(AS_ESTIMATES))
    base = estimated(job)
    assert dataclasses.replace(advice.base, seconds=0, history=None) == dataclasses.replace(
        base, seconds=0, history=None
    )
    assert {change.keys[0] for change in advice.single} == set(AS_ESTIMATES)
    for change in advice.single:
        other = estimated(job, **AS_ESTIMATES[change.keys[0]])
        assert change.saving == base.least_capacity - other.least_capacity
        assert change.saving_total == base.device_total - other.device_total
    savings = [change.saving for change in advice.single]
    assert savings == sorted(savings, reverse=True)


def test_the_fewest_changes_that_reach_the_goal(job: str) -> None:
    base = estimated(job).device_total
    one = asked(job, goal=str(base * 9 // 10), only=["amp-bf16", "checkpointing"])
    assert not one.reached
    assert one.combined
    assert all(len(change.remedies) == 1 for change in one.combined)
    assert all(change.estimate.device_total <= base * 9 // 10 for change in one.combined)
    # What neither reaches alone, both together do; and they were captured together.
    least = min(change.estimate.device_total for change in one.single)
    both = asked(job, goal=str(least - 1), only=["amp-bf16", "checkpointing"])
    assert [set(change.keys) for change in both.combined] == [{"amp-bf16", "checkpointing"}]
    together = estimated(job, precision="amp-bf16", checkpointing=True)
    assert both.combined[0].saving_total == base - together.device_total
    assert not any(change.reaches for change in both.single)


def test_what_changes_the_same_part_is_not_combined(job: str) -> None:
    advice = asked(job, goal="600MiB", only=["foreach-off", "sgd"])
    assert advice.combined == ()
    assert not advice.reachable


def test_nothing_to_change(job: str) -> None:
    advice = asked(job, batch_size=8, only=["expandable-segments"])
    assert advice.reached
    assert advice.combined == ()


@pytest.mark.filterwarnings("ignore")
def test_compiling_is_offered_with_what_it_saves(job: str) -> None:
    advice = asked(job, only=["compile"])
    [change] = advice.single
    assert change.saving_total == estimated(job).device_total - estimated(job, compile="model").device_total
    with pytest.raises(BadInput, match="'compile' is no remedy"):
        asked(job, compile="model", only=["compile"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"goal": "1MiB"}, "below what the CUDA context alone takes"),
        ({"goal": "little"}, "cannot read 'little' as a size"),
        ({"only": ["magic"]}, "'magic' is no remedy for this job; there are checkpointing"),
        ({"confidence": 2.0}, "confidence must be"),
    ],
)
def test_mistakes_of_advice_are_told(job: str, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        asked(job, batch_size=8, **options)


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("fused", {"optimizer": "adamw-fused"}),
        ("sgd", {"optimizer": "sgd-momentum"}),
        ("checkpointing", {"checkpointing": True}),
    ],
)
def test_a_patched_file_is_the_changed_job(job: str, key: str, options: dict[str, object]) -> None:
    spec = Spec.read(job, device=DEVICE, batch_size=BATCH, steps=2)
    trace = capture(spec)
    remedies = remedies_for(spec.workload, target_of(spec), trace, optimizer_of(spec.workload))
    remedy = next(r for r in remedies if r.key == key)
    wanted = estimated(job, **options)
    path = Path(job)
    path.write_text(patched(path.read_text(), (remedy,), trace))
    found = estimated(job)
    assert found.device_total == wanted.device_total
    assert found.breakdown == wanted.breakdown


def test_the_patch_is_a_diff_of_the_file(job: str) -> None:
    advice = asked(job, only=["fused", "amp-bf16"], batch_size=64)
    patches = {change.keys[0]: change.patch for change in advice.single}
    assert "-    return torch.optim.AdamW(params, lr=3e-4)" in patches["fused"]
    assert "+    return torch.optim.AdamW(params, lr=0.0003, fused=True)" in patches["fused"]
    assert patches["fused"].startswith("--- a/job.py\n+++ b/job.py\n")
    assert patches["amp-bf16"] == ""  # it belongs to the training loop


def test_a_file_without_an_optimizer_gets_one(job: str) -> None:
    path = Path(job)
    text = path.read_text().partition("\n\ndef optimizer")[0] + "\n"
    path.write_text(text)
    spec = Spec.read(job, device=DEVICE, batch_size=8)
    offered = remedies_for(spec.workload, target_of(spec), Trace((), ()), optimizer_of(spec.workload))
    remedies = {remedy.key: remedy for remedy in offered}
    changed = patched(text, (remedies["foreach-off"],), Trace((), ()))
    path.write_text(changed)
    assert optimizer_of(spec.workload) == "adamw-forloop"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("torch.optim.Adam(params)", "adam"),
        ("torch.optim.AdamW(params, fused=True)", "adamw-fused"),
        ("torch.optim.SGD(params, lr=0.1)", "sgd"),
        ("torch.optim.SGD(params, lr=0.1, momentum=0.9, foreach=False)", "sgd-momentum-forloop"),
        ("make(params)", None),
    ],
)
def test_the_optimizer_is_read_from_the_file(job: str, written: str, name: str | None) -> None:
    path = Path(job)
    path.write_text(path.read_text().replace("torch.optim.AdamW(params, lr=3e-4)", written))
    assert optimizer_of(Workload.create(job)) == name


def test_eight_bit_states_by_the_formula(job: str) -> None:
    spec = Spec.read(job, device=DEVICE, batch_size=64, optimizer="adamw-fused", steps=2)
    target, trace = target_of(spec), capture(spec)
    small = with_8bit_states(trace)

    def states(one: Trace) -> int:
        return sum(a.nbytes for a in one.allocations if a.category is Category.OPTIMIZER_STATE)

    matrices = 3 * 2 * 4 * 256 * 256  # weights of at least 4096 values; two states each
    saved = 2 * (matrices * 4 - matrices - 4 * matrices // 256)
    assert states(trace) - states(small) == saved
    assert estimate_trace(small, target).device_total <= estimate_trace(trace, target).device_total
    assert parse_bytes("1KiB") == 1024


@pytest.mark.parametrize(
    ("layout", "offered"),
    [
        ("ddp", {"fsdp2": "fsdp2", "zero2": "zero2"}),
        ("ddp,tp=2", {"fsdp2": "fsdp2,tp=2"}),
        ("fsdp2,no-reshard", {"reshard": "fsdp2", "offload-states": "fsdp2,no-reshard,offload"}),
        ("fsdp2,offload", {}),
        ("zero3", {"offload-states": "zero3,offload"}),
    ],
)
def test_states_can_be_shared_by_the_gpus(layout: str, offered: dict[str, str]) -> None:
    spec = Spec.read("zoo:gpt2", device="4xrtx-4090", batch_size=1, seq_len=16, parallel=layout)
    remedies = remedies_for(spec.workload, target_of(spec), Trace((), ()), "adamw")
    found = {r.key: str(r.changes["parallel"]) for r in remedies if r.part == "sharding"}
    assert found == offered


def test_shared_states_are_captured() -> None:
    """The saving is that of two estimates: of two GPUs each holds half of four numbers a weight."""
    options = {"batch_size": 1, "seq_len": 16, "steps": 2, "device": "2xrtx-4090"}
    advice = what_to_change("zoo:gpt2", goal="1500MiB", only=["fsdp2"], parallel="ddp", **options)  # type: ignore[arg-type]
    other = oomcast.estimate("zoo:gpt2", parallel="fsdp2", **options)  # type: ignore[arg-type]
    assert advice.single[0].estimate.device_total == other.device_total
    assert advice.single[0].saving > 700 * 1024 * 1024


def test_packing_is_offered_for_texts_of_different_lengths() -> None:
    spec = Spec.read("hf:gpt2", device=DEVICE, batch_size=1, lengths="100,300,200")
    remedies = {r.key: r for r in remedies_for(spec.workload, target_of(spec), Trace((), ()), "adamw")}
    assert "shorter" not in remedies
    packed = remedies["packing"].apply(spec).workload
    assert (packed.lengths, packed.seq_len) == ((), 300)


def test_models_of_transformers_have_remedies_of_their_own(tmp_path: Path) -> None:
    """Each is captured whole; of an adapter's weights only the quantisation is left to offer."""
    pytest.importorskip("transformers")
    config = {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 4, "intermediate_size": 512, "vocab_size": 8192}  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    asked_for = ["fused-loss", "shorter", *(["lora"] if importlib.util.find_spec("peft") else [])]
    advice = what_to_change(
        f"hf:{path}", device=DEVICE, goal="520MiB", batch_size=8, seq_len=128, steps=2, only=asked_for
    )
    savings = {change.keys[0]: change.saving for change in advice.single}
    assert set(savings) == set(asked_for)
    assert all(saving > 0 for saving in savings.values())
    tuned = Spec.read(f"hf:{path}", device=DEVICE, seq_len=128, adapter="lora", fused_loss=True)
    keys = {remedy.key for remedy in remedies_for(tuned.workload, target_of(tuned), Trace((), ()), "adamw")}
    assert "qlora" in keys
    assert not {"lora", "fused-loss"} & keys
