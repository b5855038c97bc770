"""Files of the frameworks with loops of their own: torchtune, litgpt, Lightning's CLI."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from ...errors import BadInput
from .found import Findings, as_count, as_switch, weights_of
from .hugging_face import lora

__all__ = ["read_lightning", "read_litgpt", "read_torchtune"]

# -------- torchtune

_BUILDERS = {
    "llama2": "meta-llama/Llama-2-{}-hf",
    "code_llama2": "codellama/CodeLlama-{}-hf",
    "llama3": "meta-llama/Meta-Llama-3-{}",
    "llama3_1": "meta-llama/Llama-3.1-{}",
    "llama3_2": "meta-llama/Llama-3.2-{}",
    "llama3_3": "meta-llama/Llama-3.3-{}-Instruct",
    "mistral": "mistralai/Mistral-{}-v0.1",
    "gemma": "google/gemma-{}",
    "gemma2": "google/gemma-2-{}",
    "phi3": "microsoft/Phi-3-{}-4k-instruct",
    "phi4": "microsoft/phi-4",
    "qwen2": "Qwen/Qwen2-{}",
    "qwen2_5": "Qwen/Qwen2.5-{}",
    "qwen3": "Qwen/Qwen3-{}",
}
"""torchtune's families → the names of their models on the hub."""
_MODULES = {"output_proj": "o_proj", "w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_FEED_FORWARD = ["gate_proj", "up_proj", "down_proj"]
_TORCHTUNE_CHUNKS = 8
"""torchtune's losses compute the logits in this many chunks, unless told otherwise."""


def read_torchtune(found: Findings) -> None:
    """Everything in one type, adapters included; blocks are checkpointed; the optimizer is the class that is named."""
    options = found.options
    model = found.part("model")
    builder = str(model.get("_component_", ""))
    if "model" not in found.given:
        options["model"] = _torchtune_model(builder)
    options["weights"] = weights_of(found.take("dtype", "bf16"))
    options["precision"] = "bf16" if options["weights"] == "bf16" else "fp32"
    options["trained_weights"] = options["weights"]
    found.follow(
        {
            "batch_size": ("batch_size", as_count),
            "gradient_accumulation_steps": ("accumulation", as_count),
            "enable_activation_checkpointing": ("checkpointing", as_switch),
        }
    )
    length = found.part("tokenizer").get("max_seq_len")
    if length is not None:
        options["seq_len"] = as_count(length)
    optimizer = found.part("optimizer")
    if optimizer:
        found.set_optimizer(optimizer.get("_component_"), as_switch(optimizer.get("fused", False)))
    name = builder.rpartition(".")[2]
    if "lora_rank" in model or name.startswith(("lora_", "qlora_")):
        targets = [_MODULES.get(str(part), str(part)) for part in model.get("lora_attn_modules", ())]
        targets += _FEED_FORWARD if as_switch(model.get("apply_lora_to_mlp", False)) else []
        targets += ["lm_head"] if as_switch(model.get("apply_lora_to_output", False)) else []
        dora = {"use_dora": True} if as_switch(model.get("use_dora", False)) else {}
        options["adapter"] = lora(model.get("lora_rank", 8), targets, **dora)
    if name.startswith("qlora_") or as_switch(model.get("quantize_base", False)):
        options["quantization"] = "nf4-torchao"
    quantizer = str(found.part("quantizer").get("_component_", ""))
    if "QAT" in quantizer:
        options["qat"] = _torchtune_qat(quantizer)
    if found.switch("optimizer_in_bwd"):
        options["optimizer_in_backward"] = True
    loss = str(found.part("loss").get("_component_", ""))
    if re.search(r"Chunked|LinearCrossEntropy", loss):
        options["loss_chunks"] = as_count(found.part("loss").get("num_output_chunks", _TORCHTUNE_CHUNKS))
    if found.switch("compile"):
        options["compile"] = "blocks"  # torchtune/training/_compile.py: each layer by itself
    if found.switch("enable_activation_offloading"):
        found.set_offloading()
    if any(word in str(found.data) for word in ("dpo", "ppo", "DPOLoss", "grpo")):
        raise BadInput("the file is of a preference or reinforcement recipe of torchtune, which is not offered.")
    found.without_effect(("fsdp_cpu_offload", "packed", "custom_sharded_layers", "cpu_offload", "gradient_clipping"))
    for key in ("tensor_parallel_dim", "context_parallel_dim", "data_parallel_shard_dim"):
        if found.take(key, 1) not in (1, -1):
            found.assume(f"{key} is not followed: the figures are those of one GPU that holds everything")


def _torchtune_qat(quantizer: str) -> str:
    name = quantizer.rpartition(".")[2]
    if name not in _QAT_QUANTIZERS:
        raise BadInput(f"the quantizer {name} of torchtune is not known; {' and '.join(_QAT_QUANTIZERS)} are.")
    return _QAT_QUANTIZERS[name]


_QAT_QUANTIZERS = {"Int8DynActInt4WeightQATQuantizer": "int8-int4", "Int4WeightOnlyQATQuantizer": "int4"}


def _torchtune_model(builder: str) -> str:
    found = re.fullmatch(r"torchtune\.models\.(\w+)\.(?:q?lora_)?(\w+)", builder)
    if found is None:
        raise BadInput("the file names no builder of torchtune (model: _component_: torchtune.models.…).")
    family, name = found[1], found[2]
    if family not in _BUILDERS:
        raise BadInput(f"the models of {family} are not known here; name one of the same sizes with --model.")
    size = name.removeprefix(f"{family}_").replace("_base", "").replace("_instruct", "").upper()
    size = re.sub(r"(\d)_(\d)", r"\1.\2", size)
    if family in ("llama2", "code_llama2", "gemma", "gemma2"):
        size = size.lower()
    return _BUILDERS[family].format(size.lower() if family == "phi3" else size)


# -------- litgpt

_LITGPT_TARGETS = {
    "lora_query": ["q_proj"], "lora_key": ["k_proj"], "lora_value": ["v_proj"], "lora_projection": ["o_proj"],
    "lora_mlp": _FEED_FORWARD, "lora_head": ["lm_head"],
}  # fmt: skip
_LITGPT_DEFAULTS = {"lora_query": True, "lora_value": True}
_LITGPT_QUANTIZATIONS = {
    "bnb.nf4": "nf4", "bnb.nf4-dq": "nf4-double", "bnb.fp4": "fp4", "bnb.fp4-dq": "fp4-double",
    "bnb.int8": "int8", "bnb.int8-training": "int8",
}  # fmt: skip


def read_litgpt(found: Findings) -> None:
    """litgpt's own loop: bf16-true holds everything in bfloat16, adapters too; one GPU checkpoints nothing."""
    options = found.options
    place = found.take("checkpoint_dir")
    options["model"] = "/".join(PurePosixPath(str(place)).parts[-2:]) if place else found.take("model_name")
    options["precision"], options["weights"] = fabric_precision(found.take("precision", "bf16-true"))
    options["trained_weights"] = options["weights"]
    devices = found.take("devices", 1)
    found.world_size = (as_count(devices) if devices != "auto" else 1) * as_count(found.take("num_nodes", 1))
    if found.world_size > 1:
        options["parallel"] = "fsdp"
    train = found.part("train")
    batch = as_count(train.get("micro_batch_size") or 4)
    options["batch_size"] = batch
    whole = train.get("global_batch_size")
    if whole:
        options["accumulation"] = max(1, as_count(whole) // (batch * found.world_size))
    if train.get("max_seq_length"):
        options["seq_len"] = as_count(train["max_seq_length"])
    _set_class(found, found.take("optimizer", "torch.optim.AdamW"))
    quantization = found.take("quantize")
    if quantization:
        if quantization not in _LITGPT_QUANTIZATIONS:
            raise BadInput(
                f"the quantisation {quantization!r} is not known; litgpt has {', '.join(_LITGPT_QUANTIZATIONS)}."
            )
        options["quantization"] = _LITGPT_QUANTIZATIONS[quantization]
    targets = []
    for key, names in _LITGPT_TARGETS.items():
        if as_switch(found.take(key, _LITGPT_DEFAULTS.get(key, False))):
            targets += names
    rank = found.take("lora_r")
    if rank is not None:
        options["adapter"] = lora(rank, targets)
    elif quantization:
        raise BadInput("the file quantises the weights and trains them all; quantised weights need LoRA.")
    model_config = found.part("model_config")
    if model_config and options["model"] is None:
        options["model"] = model_config.get("name")
    found.without_effect(("lora_dropout", "initial_checkpoint_dir", "data", "eval", "resume", "tie_embeddings"))


def _set_class(found: Findings, value: Any) -> None:
    """An optimizer by the path of its class, with or without its arguments."""
    if isinstance(value, Mapping):
        settings = value.get("init_args")
        fused = as_switch(settings.get("fused", False)) if isinstance(settings, Mapping) else False
        found.set_optimizer(value.get("class_path"), fused)
    else:
        found.set_optimizer(value)


_FABRIC = {
    "32": ("fp32", "fp32"), "32-true": ("fp32", "fp32"), "16": ("amp-fp16", "fp32"), "16-mixed": ("amp-fp16", "fp32"),
    "bf16": ("amp-bf16", "fp32"), "bf16-mixed": ("amp-bf16", "fp32"), "bf16-true": ("bf16", "bf16"),
    "16-true": ("fp32", "fp16"),
}  # fmt: skip


def fabric_precision(value: Any) -> tuple[str, str]:
    """Lightning's names → the precision and the type of the weights."""
    name = str(value).lower()
    if name not in _FABRIC:
        raise BadInput(f"the precision {value!r} is not known; it is one of {', '.join(_FABRIC)}.")
    return _FABRIC[name]


# -------- Lightning's command line

_BACKBONES = ("backbone", "backbone_name", "arch", "encoder_name")
_MODEL_KEYS = ("model_name_or_path", "model_name", "pretrained_model_name_or_path", "pretrained_model", *_BACKBONES)
_BATCH_KEYS = ("batch_size", "train_batch_size", "batch_size_train", "per_device_train_batch_size")
_LENGTH_KEYS = ("max_seq_length", "max_length", "seq_len", "sequence_length", "max_seq_len", "block_size")


def read_lightning(found: Findings) -> None:
    """`LightningCLI`: the trainer's settings; the model is a class of the user's, which is never run from here."""
    options = found.options
    inner = found.data.get("fit")
    if isinstance(inner, Mapping):
        found.without_effect(("fit", "validate", "test", "predict"))
        found = Findings(inner, found.given, options, notes=found.notes)
    trainer = found.part("trainer")
    precision = trainer.get("precision") or "32-true"
    options["precision"], options["weights"] = fabric_precision(precision)
    if trainer.get("accumulate_grad_batches"):
        options["accumulation"] = as_count(trainer["accumulate_grad_batches"])
    model, data = found.part("model"), found.part("data")
    settings = {**_settings(model), **_settings(data)}
    for option, keys, read in (
        ("model", _MODEL_KEYS, str),
        ("batch_size", _BATCH_KEYS, as_count),
        ("seq_len", _LENGTH_KEYS, as_count),
    ):
        named = next((settings[key] for key in keys if _counts(key, settings.get(key))), None)
        if named is not None:
            options[option] = read(named)
    optimizer = found.take("optimizer")
    if isinstance(optimizer, Mapping) and optimizer.get("class_path"):
        _set_class(found, optimizer)
    if model.get("class_path"):
        found.assume(f"{model['class_path']} is the user's own class and is not run: the model stands in for it")
    found.without_effect(("seed_everything", "ckpt_path", "lr_scheduler", "config", "optimizer"))


def _counts(key: str, value: Any) -> bool:
    """Whether an argument says something. A backbone such as resnet18 is a part of an image model, and no language
    model's name, which has its owner before a slash."""
    return value is not None and (key not in _BACKBONES or "/" in str(value))


def _settings(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a class, whether they stand under init_args or alone."""
    inner = part.get("init_args")
    return inner if isinstance(inner, Mapping) else part
