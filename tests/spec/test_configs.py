"""Configuration files of training frameworks: what each asks for, what is said of it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomcast.errors import BadInput, UnreadableFile
from oomcast.spec import JobKind, Spec, Workload
from oomcast.spec.configs import read_configuration

DEVICE = "rtx-4090"

AXOLOTL = """
base_model: NousResearch/Llama-3.2-1B
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_target_linear: true
sequence_len: 2048
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_bnb_8bit
learning_rate: 0.0002
bf16: auto
gradient_checkpointing: true
unheard_of: 7
"""
LLAMA_FACTORY = """
model_name_or_path: Qwen/Qwen3-4B
stage: sft
finetuning_type: lora
lora_target: all
cutoff_len: 1024
per_device_train_batch_size: 1
bf16: true
"""
TORCHTUNE = """
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 8
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 4096}
batch_size: 2
optimizer: {_component_: torch.optim.AdamW, fused: True}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
enable_activation_checkpointing: True
dtype: bf16
"""
LITGPT = """
checkpoint_dir: checkpoints/meta-llama/Llama-3.2-1B
precision: bf16-true
quantize: bnb.nf4
lora_r: 16
train: {micro_batch_size: 2, global_batch_size: 8, max_seq_length: 512}
"""
TRL = """
model_name_or_path: Qwen/Qwen2.5-0.5B
use_peft: true
lora_r: 8
max_length: 2048
per_device_train_batch_size: 4
torch_dtype: bfloat16
"""
ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 3, offload_optimizer_device: none}
mixed_precision: bf16
num_processes: 8
"""
LIGHTNING = """
trainer: {precision: bf16-mixed, accumulate_grad_batches: 2}
model: {class_path: mine.Classifier, init_args: {model_name: google-bert/bert-base-uncased}}
data: {class_path: mine.Data, init_args: {batch_size: 16, max_length: 128}}
"""
DEEPSPEED = {
    "train_micro_batch_size_per_gpu": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
}
ADAPTER = {
    "peft_type": "LORA",
    "r": 4,
    "target_modules": ["q_proj"],
    "base_model_name_or_path": "openai-community/gpt2",
}
COMMAND = """
# a comment
CUDA_VISIBLE_DEVICES=0 python run_clm.py \\
    --model_name_or_path openai-community/gpt2 --block_size 256 \\
    --per_device_train_batch_size 16 --gradient_checkpointing true --fp16 --output_dir out \\
    --torch_empty_cache_steps 4
"""

FULL_AXOLOTL = AXOLOTL.replace("adapter: qlora\n", "").replace("load_in_4bit: true\n", "")

FILES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "axolotl.yml": (AXOLOTL, "axolotl", {
        "model": "NousResearch/Llama-3.2-1B", "batch_size": 2, "seq_len": 2048, "quantization": "nf4-double",
        "optimizer": "adamw-8bit", "precision": "amp-bf16", "weights": "bf16", "checkpointing": True,
        "upcast_rest": True}),
    "llama_factory.yaml": (LLAMA_FACTORY, "LLaMA-Factory", {
        "model": "Qwen/Qwen3-4B", "batch_size": 1, "seq_len": 1024, "weights": "bf16", "trained_weights": "fp32",
        "checkpointing": True}),
    "torchtune.yaml": (TORCHTUNE, "torchtune", {
        "model": "meta-llama/Llama-3.1-8B", "batch_size": 2, "seq_len": 4096, "weights": "bf16", "precision": "bf16",
        "optimizer": "adamw-fused", "loss_chunks": 8, "checkpointing": True}),
    "litgpt.yaml": (LITGPT, "litgpt", {
        "model": "meta-llama/Llama-3.2-1B", "batch_size": 2, "accumulation": 4, "seq_len": 512, "quantization": "nf4"}),
    "trl.yaml": (TRL, "TRL", {
        "model": "Qwen/Qwen2.5-0.5B", "batch_size": 4, "seq_len": 2048, "weights": "bf16", "precision": "amp-bf16",
        "checkpointing": True}),
    "accelerate.yaml": (ACCELERATE, "accelerate", {
        "weights": "bf16", "precision": "fp32", "master_weights": True, "parallel": "zero3"}),
    "lightning.yaml": (LIGHTNING, "Lightning", {
        "model": "google-bert/bert-base-uncased", "batch_size": 16, "seq_len": 128, "precision": "amp-bf16",
        "accumulation": 2}),
    "ds_config.json": (json.dumps(DEEPSPEED), "DeepSpeed", {
        "batch_size": 4, "weights": "bf16", "master_weights": True, "optimizer": "adamw", "parallel": "zero2"}),
    "adapter_config.json": (json.dumps(ADAPTER), "peft", {
        "model": "openai-community/gpt2", "adapter": {"kind": "lora", "r": 4, "target_modules": ["q_proj"]}}),
    "run.sh": (COMMAND, "TrainingArguments", {
        "model": "openai-community/gpt2", "batch_size": 16, "seq_len": 256, "precision": "amp-fp16",
        "checkpointing": True, "empty_cache_steps": 4}),
}  # fmt: skip


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", FILES)
def test_each_format_is_known_by_its_keys_and_says_its_options(name: str, tmp_path: Path) -> None:
    text, format, expected = FILES[name]
    recipe = read_configuration(str(_write(tmp_path, name, text)))
    assert recipe.format == format
    assert {key: recipe.options.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "text", "option", "value"),
    [
        ("t.yaml", TORCHTUNE.replace(".lora_llama", ".qlora_llama"), "quantization", "nf4-torchao"),
        (
            "t.yaml",
            TORCHTUNE + "quantizer: {_component_: torchtune.training.quantization.Int8DynActInt4WeightQATQuantizer}\n",
            "qat",
            "int8-int4",
        ),
        ("a.yml", FULL_AXOLOTL + "qat: {activation_dtype: int8, weight_dtype: int4}\n", "qat", "int8-int4"),
        ("a.yml", FULL_AXOLOTL + "qat: {weight_dtype: int4}\n", "qat", "int4"),
    ],
)
def test_torchaos_quantisation_is_followed(name: str, text: str, option: str, value: str, tmp_path: Path) -> None:
    recipe = read_configuration(str(_write(tmp_path, name, text)))
    assert recipe.options.get(option) == value
    assert not {"quantizer", "qat"} & set(recipe.not_followed)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yml", AXOLOTL.replace("gradient_checkpointing: true", "") + "gradient_checkpointing: offload\n"),
        ("a.yml", AXOLOTL.replace("gradient_checkpointing: true", "") + "gradient_checkpointing: unsloth\n"),
        ("a.yml", AXOLOTL + "activation_offloading: legacy\n"),
        ("f.yaml", LLAMA_FACTORY + "use_unsloth_gc: true\n"),
        ("t.yaml", TORCHTUNE + "enable_activation_offloading: true\n"),
        ("s.yaml", TRL + "activation_offloading: true\n"),
    ],
)
def test_offloaded_activations_are_followed(name: str, text: str, tmp_path: Path) -> None:
    recipe = read_configuration(str(_write(tmp_path, name, text)))
    assert recipe.options["offload_activations"] is True
    assert recipe.options["checkpointing"] is True
    assert not {"activation_offloading", "use_unsloth_gc"} & set(recipe.not_followed)


def test_offloading_beside_a_compiled_model_is_told(tmp_path: Path) -> None:
    text = TORCHTUNE + "enable_activation_offloading: true\ncompile: true\n"
    recipe = read_configuration(str(_write(tmp_path, "t.yaml", text)))
    assert "offload_activations" not in recipe.options
    assert any("counted on the GPU" in sentence for sentence in recipe.notes)


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("torchtune.yaml", TORCHTUNE + "compile: True\n", "blocks"),
        ("torchtune.yaml", TORCHTUNE + "compile: False\n", None),
        ("axolotl.yml", AXOLOTL + "torch_compile: true\n", "model"),
        ("axolotl.yml", AXOLOTL + "torch_compile: auto\n", None),
        ("run.sh", COMMAND.rstrip() + " --torch_compile True\n", "model"),
    ],
)
def test_files_that_compile_are_compiled(name: str, text: str, part: str | None, tmp_path: Path) -> None:
    recipe = read_configuration(str(_write(tmp_path, name, text)))
    assert recipe.options.get("compile") == part
    assert not [key for key in recipe.not_followed if "compile" in key]
    assert any("torch_compile" in sentence for sentence in recipe.notes) == ("auto" in text.splitlines()[-1])


def test_a_file_is_a_job_and_what_the_user_gives_counts(tmp_path: Path) -> None:
    path = _write(tmp_path, "axolotl.yml", AXOLOTL)
    workload = Spec.read(path, device=DEVICE, seq_len=512).workload
    assert workload.job.kind is JobKind.CONFIG
    assert (workload.batch_size, workload.seq_len) == (2, 512)
    assert workload.adapter is not None
    assert workload.adapter.settings == {"r": 32, "target_modules": "all-linear"}
    assert Workload.from_dict(workload.as_dict()) == workload


def test_keys_that_may_matter_are_listed_and_harmless_ones_are_not(tmp_path: Path) -> None:
    recipe = read_configuration(str(_write(tmp_path, "axolotl.yml", AXOLOTL)))
    assert recipe.not_followed == ("unheard_of",)
    notes = Spec.read(tmp_path / "axolotl.yml", device=DEVICE).workload.notes
    assert any("not followed: unheard_of" in note for note in notes)


def test_files_that_say_how_need_a_model_and_go_together(tmp_path: Path) -> None:
    deepspeed = _write(tmp_path, "ds_config.json", json.dumps(DEEPSPEED))
    with pytest.raises(BadInput, match="names no model; give it with --model"):
        Spec.read(deepspeed, device=DEVICE)
    trl = _write(tmp_path, "trl.yaml", TRL)
    workload = Spec.read(trl, device=DEVICE, configs=[str(deepspeed)]).workload
    assert workload.model == "Qwen/Qwen2.5-0.5B"
    assert workload.master_weights
    assert any("zero2" in note for note in workload.notes)
    accelerate = _write(tmp_path, "accelerate.yaml", ACCELERATE)
    with pytest.raises(BadInput, match="names no batch size"):
        Spec.read(accelerate, device=DEVICE, model="hf:gpt2")
    assert Spec.read("hf:gpt2", device=DEVICE, batch_size=1, configs=str(accelerate)).workload.master_weights


def test_an_option_that_is_given_need_not_be_understood_in_the_file(tmp_path: Path) -> None:
    path = _write(tmp_path, "axolotl.yml", AXOLOTL.replace("adamw_bnb_8bit", "home_made"))
    with pytest.raises(BadInput, match="home_made"):
        Spec.read(path, device=DEVICE)
    assert Spec.read(path, device=DEVICE, optimizer="sgd").workload.optimizer == "sgd"


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.yml", AXOLOTL.replace("bf16: auto", "bf16: true\nfp16: true"), "bf16 and fp16 at once"),
        ("a.yml", AXOLOTL.replace("adapter: qlora", ""), "quantised weights cannot be trained in full"),
        ("a.yml", AXOLOTL + "\nload_in_8bit: true", "4-bit and 8-bit"),
        ("a.yml", AXOLOTL.replace("adapter: qlora", "adapter: magic"), "'magic' of axolotl is not offered"),
        ("a.yml", FULL_AXOLOTL + "qat: {weight_dtype: nvfp4}", "weights in nvfp4 are not offered"),
        ("a.yml", AXOLOTL.replace("micro_batch_size: 2", "micro_batch_size: many"), "micro_batch_size: it must be"),
        ("f.yaml", LLAMA_FACTORY.replace("lora\n", "full\nquantization_bit: 4\n", 1), "quantised weights need lora"),
        ("f.yaml", LLAMA_FACTORY.replace("stage: sft", "stage: ppo"), "'ppo' is not offered"),
        ("t.yaml", TRL.replace("use_peft: true", "load_in_4bit: true"), "quantised weights need an adapter"),
        ("l.yaml", LITGPT.replace("bnb.nf4", "gptq"), "'gptq' is not known"),
        ("c.yaml", ACCELERATE.replace("bf16", "fp7"), "mixed_precision 'fp7' is not known"),
        ("x.yaml", "a: 1", "is no configuration of"),
    ],
)
def test_contradictions_and_unknown_methods_are_one_sentence(
    name: str, text: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=sentence):
        Spec.read(_write(tmp_path, name, text), device=DEVICE)


def test_an_adapter_of_another_model_is_refused_or_told(tmp_path: Path) -> None:
    made_for = {"peft_type": "LORA", "r": 8, "base_model_name_or_path": "meta-llama/Llama-3.2-3B"}
    path = str(_write(tmp_path, "adapter_config.json", json.dumps(made_for)))
    with pytest.raises(BadInput, match=r"is an adapter of meta-llama/Llama-3.2-3B, not of own/gpt-small-1B"):
        Spec.read(path, device=DEVICE, model="hf:own/gpt-small-1B", batch_size=1)
    with pytest.raises(BadInput, match=r"not of Qwen/Qwen2.5-7B"):
        Spec.read("hf:Qwen/Qwen2.5-7B", device=DEVICE, batch_size=1, configs=path)
    told = Spec.read("hf:own/Llama-3.2-3B-Instruct", device=DEVICE, batch_size=1, configs=path).workload.notes
    assert any("was made for meta-llama/Llama-3.2-3B" in note for note in told)
    plain = Spec.read("hf:NousResearch/Llama-3.2-3B", device=DEVICE, batch_size=1, configs=path).workload.notes
    assert not any("made for" in note for note in plain)


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "!!python/object/apply:os.system ['true']", "\x00"])
def test_what_is_no_table_is_refused_and_nothing_is_run(text: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile):
        Spec.read(_write(tmp_path, "hostile.yaml", text), device=DEVICE)


def test_quantised_weights_without_an_adapter_are_refused() -> None:
    with pytest.raises(BadInput, match="add an adapter"):
        Workload.create("hf:gpt2", quantization="nf4")


def test_adapters_are_written_as_text_or_as_a_table() -> None:
    text = Workload.create("hf:gpt2", adapter="lora,r=16,target_modules=c_attn+c_proj,use_dora=true")
    table = {"kind": "lora", "r": 16, "target_modules": ["c_attn", "c_proj"], "use_dora": True}
    assert text.adapter == Workload.create("hf:gpt2", adapter=table).adapter
    assert str(text.adapter) == "lora,r=16,target_modules=c_attn+c_proj,use_dora=true"
    with pytest.raises(BadInput, match="write settings like r=16"):
        Workload.create("hf:gpt2", adapter="lora,16")


def test_a_models_own_configuration_stays_a_model(tmp_path: Path) -> None:
    path = _write(tmp_path, "config.json", json.dumps({"model_type": "gpt2"}))
    assert Spec.read(path, device=DEVICE, batch_size=1).workload.job.kind is JobKind.HF


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("laughs.yaml", "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(40))
         + "base_model: *a40\n", "more than 200000 values"),
        ("self.yaml", "base_model: &a [*a]\n", "contains itself"),
        ("deep.json", '{"base_model": ' + "[" * 60 + "]" * 60 + "}", "nested more than"),
        ("deeper.yaml", "[" * 5000, "not YAML"),
        ("long.json", json.dumps(DEEPSPEED | {"train_micro_batch_size_per_gpu": 10**400}), "must be a number"),
        ("infinite.yaml", "base_model: x\nsequence_len: .inf\n", "must be a number"),
        ("kind.yaml", "train: {micro_batch_size: 1}\nquantize: {a: 1}\n", "not of the kind that litgpt has"),
        ("code.yaml", 'base_model: !!python/object/apply:os.system ["true"]\n', "not YAML"),
        ("large.json", json.dumps({"base_model": "x" * 600_000}), "too large"),
    ],
)  # fmt: skip
def test_hostile_files_are_refused_in_a_sentence(name: str, text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        read_configuration(str(_write(tmp_path, name, text)))
    assert len(str(refused.value)) < 1500


def of_script(text: str, tmp_path: Path) -> Workload:
    path = tmp_path / "train.sh"
    path.write_text(text)
    return Spec.read(str(path), device=DEVICE).workload


def test_variables_that_a_script_sets_are_known(tmp_path: Path) -> None:
    text = """
MODEL=gpt2  # the small one
export BATCH="4"
LENGTH=${2:-256}
if [ $# -ge 1 ]; then
  BATCH=$1
  MODEL=gpt2-xl
fi
python run_clm.py --model_name_or_path $MODEL --per_device_train_batch_size ${BATCH} --block_size $LENGTH --fp16
"""
    workload = of_script(text, tmp_path)
    assert (workload.model, workload.batch_size, workload.seq_len) == ("gpt2", 4, 256)
    with pytest.raises(BadInput, match="per_device_train_batch_size"):
        of_script("python run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size $B", tmp_path)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run_glue.py --max_seq_length 128", {"head": "sequence-classification"}),
        ("train.py --use_peft_lora True --lora_r 8 --use_4bit_quantization True --use_nested_quant True",
         {"quantization": "nf4-double"}),
        ("finetune.py --use_qlora 1 --quant_bit 8", {"quantization": "int8"}),
        ("reward_modeling.py", {"objective": "reward"}),
        ("trl dpo --beta 0.1 --precompute_ref_log_probs true", {"objective": "dpo", "reference_model": False}),
        ("grpo.py --max_completion_length 512 --steps_per_generation 4 --use_vllm true --beta 0.04",
         {"objective": "grpo", "new_tokens": 512, "rollouts": 8, "vllm_share": 0.3, "reference_model": True}),
        ("rloo.py --max_completion_length 64 --beta 0",
         {"objective": "rloo", "new_tokens": 64, "reference_model": False}),
        ("ppo.py --response_length 80 --num_mini_batches 2 --reward_model_path gpt2",
         {"objective": "ppo", "new_tokens": 80, "rollouts": 4, "reward_model": "gpt2"}),
    ],
)  # fmt: skip
def test_what_a_command_trains(line: str, expected: dict[str, Any], tmp_path: Path) -> None:
    start = "" if line.startswith("trl") else "python "
    text = f"{start}{line} --model_name_or_path gpt2 --per_device_train_batch_size 2"
    workload = of_script(text, tmp_path)
    assert {name: getattr(workload, name) for name in expected} == expected
    assert (workload.adapter is not None) == (workload.quantization is not None)


def test_lightning_files_may_have_no_trainer(tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(
        "model: {class_path: Task, init_args: {model_name: gpt2}}\n"
        "data: {class_path: Data, init_args: {batch_size: 3}}\n"
    )
    recipe = read_configuration(str(path))
    assert (recipe.format, recipe.options["batch_size"]) == ("Lightning", 3)
    path.write_text(path.read_text().replace("model_name: gpt2", "backbone: resnet18"))
    with pytest.raises(BadInput, match="names no model"):
        Spec.read(str(path), device=DEVICE)
