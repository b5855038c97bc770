"""Fine-tuning on the virtual GPU: what adapters, losses and optimizers hold, byte by byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tuned_jobs import (
    HIDDEN,
    LAYERS,
    LINEAR,
    LLAMA,
    LORA,
    RANK,
    REST,
    TOKENS,
    VOCABULARY,
    held,
    needs,
    peak,
    traced,
    write_llama,
)

from oomcast.capture.torch.jobs.resolve import layers_of_job
from oomcast.capture.torch.run import capture_here
from oomcast.errors import BadInput, CaptureFailed, UnknownName
from oomcast.estimation import Simulation, Target, estimate_trace
from oomcast.spec import Spec
from oomcast.trace import Category, EventKind, Phase, Trace


@pytest.fixture
def llama(tmp_path: Path) -> str:
    """A config.json of a small Llama."""
    return write_llama(tmp_path)


@needs("peft")
def test_lora_trains_its_own_parameters_alone(llama: str) -> None:
    trace = traced(llama, weights="bf16", precision="amp-bf16", adapter=f"lora,r={RANK},target_modules=all-linear")
    assert held(trace, Category.PARAMETER) == 2 * (LINEAR + REST) + 4 * LORA
    assert held(trace, Category.GRADIENT) == 4 * LORA
    assert 8 * LORA <= held(trace, Category.OPTIMIZER_STATE) <= 8 * LORA + 8 * 14 * LAYERS
    in_half = traced(llama, weights="bf16", precision="bf16", trained_weights="bf16", adapter=f"lora,r={RANK}")
    assert held(in_half, Category.GRADIENT) == 2 * LAYERS * 2 * RANK * 2 * HIDDEN  # peft's own targets: q and v


@needs("peft")
def test_unknown_adapters_and_settings_that_peft_refuses_are_one_sentence(llama: str) -> None:
    with pytest.raises(UnknownName, match="adapter 'magic'"):
        traced(llama, adapter="magic")
    with pytest.raises(BadInput, match="peft refuses the adapter"):
        traced(llama, adapter="lora,target_modules=nowhere")


def test_a_loss_in_chunks_never_holds_all_logits_twice(llama: str) -> None:
    whole, chunks = (traced(llama, batch_size=16, optimizer="sgd", loss_chunks=n) for n in (1, 8))
    logits = 4 * 16 * TOKENS * VOCABULARY
    assert peak(chunks) < peak(whole) - logits // 2


def test_a_fused_loss_never_holds_all_logits(llama: str) -> None:
    trace = traced(llama, batch_size=16, optimizer="sgd", fused_loss=True, weights="bf16")
    assert max(a.nbytes for a in trace.allocations) < 2 * 16 * TOKENS * VOCABULARY
    assert any("Liger" in sentence for sentence in trace.assumptions)


def test_preferences_hold_a_reference_model_beside_the_trained_one(llama: str) -> None:
    plain = traced(llama, optimizer="sgd", training_loop="hf-trainer")
    pairs = traced(llama, optimizer="sgd", objective="dpo")
    assert peak(pairs) >= peak(plain) + 4 * (LINEAR + REST)


def test_only_some_preferences_have_a_reference(llama: str) -> None:
    model = 4 * (LINEAR + REST)
    with_one = held(traced(llama, optimizer="sgd", objective="dpo"), Category.PARAMETER)
    assert with_one == held(traced(llama, optimizer="sgd", objective="kto"), Category.PARAMETER) == 2 * model
    for options in ({"objective": "orpo"}, {"objective": "dpo", "reference_model": False}):
        assert held(traced(llama, optimizer="sgd", **options), Category.PARAMETER) == model


def test_a_reward_is_one_number_for_each_answer_of_a_pair(llama: str) -> None:
    trace = traced(llama, optimizer="sgd", objective="reward")
    assert held(trace, Category.PARAMETER) == 4 * (LINEAR + REST - VOCABULARY * HIDDEN + HIDDEN)
    assert any(a.shape == (2 * 2, TOKENS, HIDDEN) for a in trace.allocations)  # two answers in each of two pairs


def test_a_policy_generates_its_answers_before_it_learns_from_them(llama: str) -> None:
    new, rows = 32, 6
    trace = traced(llama, optimizer="sgd", objective="grpo", new_tokens=new, rollouts=rows)
    phases = [mark.phase for mark in trace.marks]
    assert phases.index(Phase.PREFILL) < phases.index(Phase.DECODE) < phases.index(Phase.BACKWARD)
    heads = (rows, 4, TOKENS + new - 1, HIDDEN // 4)
    assert any(a.phase is Phase.DECODE and a.shape == heads for a in trace.allocations), "no cache of all answers"
    logits = [a.shape for a in trace.allocations if a.shape and a.shape[-1] == VOCABULARY and len(a.shape) == 3]
    assert (2, new + 1, VOCABULARY) in logits
    assert (2, TOKENS + new, VOCABULARY) not in logits  # of the prompt none


def test_rloo_keeps_a_copy_of_the_policy_as_its_reference(llama: str) -> None:
    options: dict[str, Any] = {"objective": "rloo", "new_tokens": 16, "training_loop": "hf-trainer", "weights": "bf16"}
    with_reference = traced(llama, **options)
    alone = traced(llama, reference_model=False, **options)
    assert held(with_reference, Category.PARAMETER) - held(alone, Category.PARAMETER) == 2 * (LINEAR + REST)
    assert {Phase.PREFILL, Phase.DECODE} <= {allocation.phase for allocation in alone.allocations}


def test_a_reward_model_stands_beside_the_policy_and_scores_its_answers(llama: str, tmp_path: Path) -> None:
    judge = tmp_path / "judge"
    judge.mkdir()
    (judge / "config.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": 1}))
    options: dict[str, Any] = {"objective": "grpo", "new_tokens": 16, "training_loop": "hf-trainer", "weights": "bf16"}
    scored = traced(llama, reward_model=f"hf:{judge}", rollouts=8, **options)
    alone = traced(llama, rollouts=8, **options)
    of_the_judge = LINEAR // 2 + VOCABULARY * HIDDEN + 3 * HIDDEN + HIDDEN  # one block, norms, a head of one number
    assert held(scored, Category.PARAMETER) - held(alone, Category.PARAMETER) == 2 * of_the_judge

    def reads_all_answers(trace: Trace) -> bool:
        return any(a.shape == (8, TOKENS + 16, HIDDEN) for a in trace.allocations)

    assert reads_all_answers(scored)
    assert not reads_all_answers(alone)


def test_ppo_trains_values_beside_the_policy_and_holds_two_more_models(llama: str) -> None:
    """Policy and values are trained: their gradients; reference and reward model are not. Logits of all new tokens
    stay, in fp32, while it learns."""
    new, rows = 16, 4
    options: dict[str, Any] = {"objective": "ppo", "new_tokens": new, "rollouts": rows, "training_loop": "hf-trainer"}
    trace = traced(llama, **options)
    of_values = LINEAR + VOCABULARY * HIDDEN + (2 * LAYERS + 1) * HIDDEN + HIDDEN  # a head of one number
    assert held(trace, Category.PARAMETER) == 4 * (2 * (LINEAR + REST) + 2 * of_values)
    assert held(trace, Category.GRADIENT) == 4 * (LINEAR + REST + of_values)
    scores = [a for a in trace.allocations if a.nbytes == 4 * rows * new * VOCABULARY and a.phase is Phase.DECODE]
    assert scores
    alone = traced(llama, reference_model=False, **options)
    assert held(trace, Category.PARAMETER) - held(alone, Category.PARAMETER) == 4 * (LINEAR + REST)


def test_models_beside_the_policy_are_followed_on_one_gpu_and_in_full_depth(llama: str) -> None:
    Path(llama).write_text(json.dumps({**LLAMA, "num_hidden_layers": 32}))
    for objective, is_grown in (("sft", True), ("grpo", False), ("rloo", False), ("ppo", False)):
        spec = Spec.read(llama, device="a100-40gb", batch_size=1, seq_len=8, objective=objective)
        assert (layers_of_job(spec.workload) is not None) == is_grown
    with pytest.raises(BadInput, match="followed on one GPU"):
        traced(llama, objective="ppo", parallel="fsdp2", device="2xa100-40gb")


@pytest.mark.parametrize("objective", ["dpo", "kto", "grpo", "rloo"])
def test_a_fused_head_never_holds_all_logits_of_an_objective(llama: str, objective: str) -> None:
    options: dict[str, Any] = {"objective": objective, "new_tokens": TOKENS, "weights": "bf16", "vllm_share": 0.1}
    if objective in ("dpo", "kto"):
        del options["vllm_share"]

    def logits(trace: Trace) -> int:
        """The most bytes of one tensor that has a place for each word and each token."""
        return max((a.nbytes for a in trace.allocations if VOCABULARY in a.shape and len(a.shape) >= 3), default=0)

    assert logits(traced(llama, **options)) > 0
    fused = traced(llama, fused_loss=True, **options)
    assert logits(fused) == 0
    tiles = [a for a in fused.allocations if a.shape[-1:] == (32768,)]
    assert tiles
    assert all(tile.shape[0] <= 4096 for tile in tiles)
    assert any("fused head" in sentence for sentence in fused.assumptions)


def test_a_vllm_beside_the_policy_takes_its_share_of_the_card(llama: str) -> None:
    trace = traced(llama, optimizer="sgd", objective="grpo", new_tokens=8, vllm_share=0.25)
    assert Phase.PREFILL not in {mark.phase for mark in trace.marks}
    assert max(a.nbytes for a in trace.allocations) > 9 << 30
    assert any("vLLM" in sentence for sentence in trace.assumptions)
    with pytest.raises(BadInput, match="grpo"):
        traced(llama, vllm_share=0.25)


@pytest.mark.parametrize("head", ["sequence-classification", "token-classification", "question-answering", "none"])
def test_other_heads(llama: str, head: str) -> None:
    trace = traced(llama, optimizer="sgd", head=head)
    assert held(trace, Category.PARAMETER) < 4 * (LINEAR + REST - VOCABULARY * HIDDEN) + 4096
    with pytest.raises(BadInput, match="masked-lm"):
        traced(llama, head="masked-lm")


def test_a_step_in_backward_keeps_no_gradients_and_master_weights_are_copies(llama: str) -> None:
    apart = traced(llama, optimizer="sgd", optimizer_in_backward=True)
    together = traced(llama, optimizer="sgd")
    assert held(apart, Category.GRADIENT) < held(together, Category.GRADIENT) // 2
    half = traced(llama, optimizer="adamw", weights="bf16", master_weights=True)
    assert held(half, Category.PARAMETER) == (2 + 4) * (LINEAR + REST)
    assert peak(half) >= (2 + 2 + 4 + 8) * (LINEAR + REST)


def test_only_the_last_blocks_are_trained(llama: str) -> None:
    trace = traced(llama, optimizer="sgd", trained_layers=1)
    assert held(trace, Category.GRADIENT) == 4 * (LINEAR // LAYERS + 2 * HIDDEN)
    with pytest.raises(BadInput, match="has 2 blocks"):
        traced(llama, trained_layers=5)


def test_a_job_file_builds_its_own_model(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--loss-chunks is for models of transformers"):
        capture_here(Spec.read("zoo:mlp", device="a100-40gb", batch_size=1, loss_chunks=2))


def test_a_configuration_without_lengths_asks_for_them(tmp_path: Path, llama: str) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0}}))
    with pytest.raises(BadInput, match="does not say how long its samples are; give --seq-len"):
        capture_here(Spec.read(path, device="a100-40gb", model=llama))
    trace = capture_here(Spec.read(path, device="a100-40gb", model=llama, seq_len=TOKENS))
    assert any("configuration of DeepSpeed" in sentence for sentence in trace.assumptions)


def test_qwen_of_2023_has_its_published_number_of_parameters() -> None:
    """7.72 billion, as its model card says; the halves of its MLP have half the configuration's size each."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from oomcast.capture.torch.jobs.remote_code import QWenConfig, QWenLMHeadModel

    with FakeTensorMode():
        model: Any = QWenLMHeadModel(QWenConfig())
    assert sum(p.numel() for p in model.parameters()) == 7_721_324_544
    assert model.transformer.h[0].mlp.w1.out_features == 11008


def test_qwen_of_2023_without_flash_attention_keeps_a_mask_for_each_head(tmp_path) -> None:
    """torch 2.1 pads a mask whose columns are no multiple of 16 after it has expanded it; backward needs it."""
    length, heads, layers = 250, 8, 3
    sizes = {"vocab_size": 64, "hidden_size": 64, "num_hidden_layers": layers, "num_attention_heads": heads,
             "intermediate_size": 64}  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "qwen", "architectures": ["QWenLMHeadModel"], **sizes}))

    def most(attention: str) -> int:
        return peak(traced(str(path), weights="bf16", environment="torch-2.1", seq_len=length, attention=attention))

    of_each_layer = 2 * heads * length * 256 * 2
    assert most("eager") - most("flash") == pytest.approx(layers * of_each_layer, rel=0.2)


def test_an_image_takes_as_many_tokens_as_its_encoder_makes() -> None:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    from oomcast.capture.torch.jobs.hf_inputs import make_batch
    from oomcast.spec import Workload

    workload = Workload.create("hf:qwen2_5_vl", batch_size=2, seq_len=300, input_shape="3x448x448")
    config = Qwen2_5_VLConfig()
    batch = make_batch(config, Qwen2_5_VLForConditionalGeneration, workload)
    patches = (448 // 14) ** 2
    assert batch["pixel_values"].shape == (2 * patches, 3 * 2 * 14 * 14)
    assert int((batch["input_ids"] == config.image_token_id).sum()) == 2 * patches // 4
    short = Workload.create("hf:qwen2_5_vl", seq_len=64, input_shape="3x448x448")
    with pytest.raises(BadInput, match="takes 256 tokens"):
        make_batch(config, Qwen2_5_VLForConditionalGeneration, short)


def test_images_raise_the_peak_of_a_vision_language_model(tmp_path: Path) -> None:
    vision = {"depth": 2, "hidden_size": 64, "out_hidden_size": 256, "num_heads": 4, "intermediate_size": 128}
    text: dict[str, Any] = {**LLAMA, "hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1}
    text["model_type"] = "qwen2_5_vl_text"
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": "qwen2_5_vl", "text_config": text, "vision_config": vision, "image_token_id": 1990})
    )
    words = traced(str(path))
    seen = traced(str(path), input_shape="3x112x112")
    assert any("fed no pixel_values" in sentence for sentence in words.assumptions)
    assert not any("fed no" in sentence for sentence in seen.assumptions)
    assert held(seen, Category.ACTIVATION) > held(words, Category.ACTIVATION) + 2 * 64 * 64 * 4 * 2


@needs("peft")
def test_what_peft_leaves_on_the_host_is_on_the_gpu_only_if_the_whole_model_is_moved_again(llama: str) -> None:
    """BOFT's permutation is a matrix of the width, in fp32, for each layer that it rotates."""
    boft = {"adapter": "boft,boft_block_size=4,target_modules=q_proj+v_proj", "weights": "bf16"}
    plain, trainer = traced(llama, **boft), traced(llama, training_loop="hf-trainer", **boft)
    permutations = 2 * LAYERS * HIDDEN * HIDDEN * 4
    assert held(trainer, Category.BUFFER) - held(plain, Category.BUFFER) == permutations


def test_lengths_come_one_after_the_other(llama: str) -> None:
    trace = traced(llama, seq_len=None, lengths="16,48,32")
    shapes = [
        one.shape for one in trace.allocations if one.category is Category.INPUT and one.operator == "aten._to_copy"
    ]
    assert [shape[1] for shape in dict.fromkeys(shapes)] == [16, 48, 32]
    assert max(mark.step for mark in trace.marks) == 3  # the first one comes once more, beside the optimizer's state


def test_the_interval_holds_what_other_orders_of_the_lengths_reserve(llama: str) -> None:
    target = Target.of(Spec.read(llama, device="a100-40gb").place)
    trace = traced(llama, seq_len=None, lengths=",".join(str(512 * number) for number in (1, 2, 3, 4, 5, 6, 7, 8)))
    answer = estimate_trace(trace, target)
    context = answer.breakdown["context"]
    orders = Simulation(trace, target).other_orders
    assert len(orders) == 8
    assert answer.reserved_in_orders == (min(answer.peak_reserved, *orders), max(answer.peak_reserved, *orders))
    assert answer.low < min(orders) + context
    assert max(orders) + context < answer.will_not_exceed <= answer.high
    assert sum("in it and 8 others the allocator reserves" in sentence for sentence in answer.assumptions) == 1

    of_one_length = traced(llama, seq_len=2048)
    assert Simulation(of_one_length, target).other_orders == ()


def test_lengths_are_refused_beside_one_length_and_for_what_reads_no_tokens(llama: str) -> None:
    with pytest.raises(BadInput, match="not both"):
        traced(llama, lengths="16,32")
    with pytest.raises(BadInput, match="whole number of at least 1"):
        traced(llama, seq_len=None, lengths="16,none")
    with pytest.raises(BadInput, match="reads pixel_values"):
        traced("hf:vit", seq_len=None, lengths="16,32")


@pytest.mark.parametrize(
    ("loop", "steps", "emptied"),
    [("plain", 1, [Phase.OPTIMIZER] * 3), ("plain", 2, [Phase.OPTIMIZER]), ("plain", 9, []),
     ("hf-trainer", 2, [Phase.FORWARD] * 2)],
)  # fmt: skip
def test_the_cache_is_emptied_after_the_step_or_before_trainers_backward(
    llama: str, loop: str, steps: int, emptied: list[Phase]
) -> None:
    trace = traced(llama, steps=3, training_loop=loop, empty_cache_steps=steps)
    places = [place for place, event in enumerate(trace.events) if event.kind is EventKind.EMPTY_CACHE]
    phases = [
        max((mark for mark in trace.marks if mark.position <= place), key=lambda m: m.position) for place in places
    ]
    assert [mark.phase for mark in phases] == emptied


@needs("peft")
def test_one_module_may_be_named_alone(llama: str) -> None:
    alone, listed = (
        traced(llama, adapter=f"lora,r={RANK},target_modules={names}") for names in ("q_proj", "q_proj+q_proj")
    )
    assert held(alone, Category.GRADIENT) == held(listed, Category.GRADIENT) == 4 * LAYERS * RANK * 2 * HIDDEN


@needs("peft")
def test_settings_that_peft_does_not_have_are_refused_or_told_of_a_file(tmp_path: Path, llama: str) -> None:
    """They were left out without a word: `rank=64` trained peft's own rank of 8."""
    with pytest.raises(UnknownName, match="setting of lora 'rank'"):
        traced(llama, adapter="lora,rank=64")
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps({"peft_type": "LORA", "r": RANK, "target_modules": ["q_proj"], "of_tomorrow": 3}))
    trace = traced(str(path), model=llama)
    assert any("does not know of_tomorrow" in sentence for sentence in trace.assumptions)


@needs("peft")
@needs("sklearn")
def test_a_method_that_reads_the_weights_is_not_called_refused_by_peft(llama: str) -> None:
    """AdaMSS sorts the singular vectors of each weight into clusters, whose sizes are those of its matrices."""
    with pytest.raises(CaptureFailed, match="reads values of the model's weights"):
        traced(llama, adapter="adamss,r=16,num_subspaces=4,target_modules=q_proj+v_proj")
