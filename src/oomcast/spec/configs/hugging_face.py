"""Hugging Face's files: TrainingArguments (JSON, YAML, the command line of run_clm and kin), TRL, and peft's adapters.

Defaults are those of transformers 5 and TRL 1: fused AdamW, eight samples a GPU; TRL also checkpoints, trains in
bfloat16 and cuts at 1,024 tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import BadInput
from .found import SCRIPT, Findings, Setting, as_count, as_number, as_switch, weights_of
from .launchers import deepspeed_of, fsdp_of
from .optimizer_names import optimizer_of

__all__ = [
    "answering_of",
    "attention_of",
    "precision_of",
    "quantization_of",
    "read_adapter",
    "read_arguments",
    "read_trl",
]

_ARGUMENTS: Mapping[str, Setting] = {
    "model_name_or_path": ("model", str),
    "config_name": ("model", str),
    "per_device_train_batch_size": ("batch_size", as_count),
    "gradient_accumulation_steps": ("accumulation", as_count),
    "gradient_checkpointing": ("checkpointing", as_switch),
    "optim": ("optimizer", optimizer_of),
    "torch_empty_cache_steps": ("empty_cache_steps", as_count),
    "block_size": ("seq_len", as_count),
    "max_seq_length": ("seq_len", as_count),
    "max_source_length": ("seq_len", as_count),
    "max_length": ("seq_len", as_count),
    "torch_dtype": ("weights", weights_of),
    "dtype": ("weights", weights_of),
    "attn_implementation": ("attention", lambda value: attention_of(value)),
}
_LANGUAGE_MODELLING_TOKENS = 1024
"""What run_clm and TRL cut at where nothing is said."""


def read_arguments(found: Findings) -> None:
    """`TrainingArguments` with the arguments of the example scripts beside them."""
    found.follow(_ARGUMENTS)
    options = found.options
    options["training_loop"] = "hf-trainer"
    options.setdefault("optimizer", "adamw-fused")
    if "batch_size" not in options:
        options["batch_size"] = 8
        found.assume("the batch size is 8, TrainingArguments' default")
    options["precision"] = precision_of(found.switch("bf16"), found.switch("fp16"), "fp32")
    if found.switch("tf32") and options["precision"] == "fp32":
        options["precision"] = "tf32"
    if found.switch("torch_compile"):
        options["compile"] = "model"
    if "seq_len" not in options:
        options["seq_len"] = _LANGUAGE_MODELLING_TOKENS
        found.assume(
            f"samples have {_LANGUAGE_MODELLING_TOKENS:,} tokens, what run_clm cuts at where no length is given"
        )
    _tuning(found)
    _by_script(found)
    _spread(found)
    found.without_effect(("gradient_checkpointing_kwargs", "deepspeed_plugin", "logging_dir", "fp16_opt_level"))


def _tuning(found: Findings) -> bool:
    """Adapter and quantised weights, by the names that TRL, peft's examples and scripts made after them have; whether
    the weights are quantised."""
    options = found.options
    use_qlora = found.switch("use_qlora")
    bits = str(found.first("quant_bit", "bits", default=4 if use_qlora else ""))
    options["quantization"] = quantization_of(
        four=found.any_switch("load_in_4bit", "use_4bit_quantization", "use_4bit") or (use_qlora and bits == "4"),
        eight=found.any_switch("load_in_8bit", "use_8bit_quantization", "use_8bit") or (use_qlora and bits == "8"),
        kind=found.first("bnb_4bit_quant_type", "quant_type", default="nf4"),
        double=found.any_switch(
            "use_bnb_nested_quant", "use_nested_quant", "bnb_4bit_use_double_quant", "double_quant"
        ),
    )
    has_adapter = found.any_switch("use_peft", "use_peft_lora", "use_lora") or use_qlora
    rank, targets = found.first("lora_r", "lora_rank", default=16), found.take("lora_target_modules")
    kept = found.take("lora_modules_to_save")
    found.without_effect(("bnb_4bit_compute_dtype", "bnb_4bit_quant_storage_dtype", "lora_dropout"))
    if has_adapter:
        options["adapter"] = lora(rank, targets, modules_to_save=kept)
    elif options["quantization"]:
        raise BadInput(
            "the file quantises the weights and trains them all (no use_peft); quantised weights need an adapter."
        )
    if options["quantization"]:
        options.setdefault("weights", "bf16")
    return options["quantization"] is not None


_HEADS_OF_SCRIPTS = {
    "run_glue": "sequence-classification", "run_xnli": "sequence-classification",
    "run_classification": "sequence-classification", "run_ner": "token-classification",
    "run_qa": "question-answering", "run_mlm": "masked-lm", "run_clm": "causal-lm",
}  # fmt: skip
_OBJECTIVES = ("dpo", "orpo", "kto", "reward", "grpo", "rloo", "ppo")


def _by_script(found: Findings) -> None:
    """What the script of a command line trains, by its name: transformers' examples, `trl dpo`, `dpo.py`."""
    script = str(found.take(SCRIPT, ""))
    if not script:
        return
    name = script.rpartition("/")[2].removesuffix(".py").lower()
    if name.removesuffix("_no_trainer") in _HEADS_OF_SCRIPTS:
        found.options["head"] = _HEADS_OF_SCRIPTS[name.removesuffix("_no_trainer")]
        return
    words = name.replace("-", "_").split("_")
    objective = next((one for one in _OBJECTIVES if any(word.startswith(one) for word in words)), None)
    if objective in ("grpo", "rloo", "ppo"):
        answering_of(found, found.data, objective)
    elif objective is not None and "objective" not in found.options:
        found.set_objective(objective)


def answering_of(found: Findings, settings: Mapping[str, Any], objective: str) -> None:
    """TRL's settings of GRPO, RLOO and PPO: lengths, how many answers are generated at once, who generates them."""
    keys = ("max_prompt_length", "max_completion_length", "num_generations", "steps_per_generation", "beta", "use_vllm",
            "vllm_mode", "vllm_gpu_memory_utilization", "temperature", "reward_funcs", "reward_weights", "epsilon",
            "num_iterations", "log_completions", "response_length", "num_mini_batches", "kl_coef", "num_ppo_epochs",
            "missing_eos_penalty", "total_episodes", "sft_model_path", "loss_type", "top_p", "top_k",
            "scale_rewards")  # fmt: skip
    found.without_effect(keys)
    options = found.options
    found.set_objective(objective)
    if settings.get("max_prompt_length") is not None:
        options["seq_len"] = as_count(settings["max_prompt_length"])
    else:
        options["seq_len"] = _PROMPT_TOKENS
        found.assume(f"prompts have {_PROMPT_TOKENS} tokens, since the file does not say; --seq-len counts more")
    usual = _ANSWER_TOKENS_OF_PPO if objective == "ppo" else _ANSWER_TOKENS
    options["new_tokens"] = as_count(settings.get("max_completion_length") or settings.get("response_length") or usual)
    batches = as_count(settings.get("steps_per_generation") or options.get("accumulation") or 1)
    if objective == "ppo":
        batches *= as_count(settings.get("num_mini_batches") or 1)
        judge = found.take("reward_model_path")
        if judge:
            options["reward_model"] = str(judge)
    options["rollouts"] = as_count(options.get("batch_size", 8)) * batches
    if settings.get("beta") is not None:
        options["reference_model"] = as_number(settings["beta"]) > 0
    if as_switch(settings.get("use_vllm", False) or settings.get("vllm_mode") is not None):
        if settings.get("vllm_mode", "colocate") == "server":
            found.assume("vLLM generates on other GPUs: its memory is not in the figures")
            options["rollouts"] = 1
        else:
            options["vllm_share"] = as_number(settings.get("vllm_gpu_memory_utilization") or _VLLM_SHARE)


_PROMPT_TOKENS, _ANSWER_TOKENS, _VLLM_SHARE, _ANSWER_TOKENS_OF_PPO = 512, 256, 0.3, 53
"""Of TRL: what max_prompt_length was while it had it, max_completion_length, vllm_gpu_memory_utilization, PPO's
response_length."""


def _spread(found: Findings) -> None:
    """ZeRO or FSDP as TrainingArguments name them; a path to another file is told."""
    deepspeed = found.take("deepspeed")
    if isinstance(deepspeed, Mapping):
        deepspeed_of(found, deepspeed)
    elif deepspeed:
        found.assume(f"what {deepspeed} says is not in the figures; give it with --configs")
    fsdp = found.take("fsdp")
    if fsdp:
        fsdp_of(found, found.part("fsdp_config"))


_TRL: Mapping[str, Setting] = {
    **_ARGUMENTS,
    "max_seq_length": ("seq_len", as_count),
}


def read_trl(found: Findings) -> None:
    """A configuration of `trl sft` or `trl dpo`, or of the alignment handbook, which is built on it."""
    found.follow(_TRL)
    options = found.options
    options["training_loop"] = "hf-trainer"
    options.setdefault("optimizer", "adamw-fused")
    options.setdefault("checkpointing", True)
    if "batch_size" not in options:
        options["batch_size"] = 8
        found.assume("the batch size is 8, TrainingArguments' default")
    fp16 = found.switch("fp16")
    options["precision"] = precision_of(found.switch("bf16", not fp16), fp16, "fp32")
    if "seq_len" not in options:
        options["seq_len"] = _LANGUAGE_MODELLING_TOKENS
        found.assume(f"samples have {_LANGUAGE_MODELLING_TOKENS:,} tokens, TRL's max_length")
    if _tuning(found) and "adapter" in options:
        options["trained_weights"] = "bf16"  # TRL casts adapters on quantised weights to bfloat16
    keys = ("num_generations", "max_completion_length", "reward_funcs")
    if any(found.data.get(key) is not None for key in keys):
        answering_of(found, found.data, "rloo" if "rloo" in str(found.data.get(SCRIPT, "")) else "grpo")
    elif found.data.get("desirable_weight") is not None or found.data.get("undesirable_weight") is not None:
        found.set_objective("kto")
    elif found.take("beta") is not None or found.take("loss_type") in ("sigmoid", "ipo", "hinge"):
        found.set_objective("dpo")
        if found.switch("precompute_ref_log_probs"):
            options["reference_model"] = False
    _by_script(found)
    if "weights" not in options:
        options["weights"] = "fp32"
        found.assume("the weights are loaded in float32, TRL's default")
    if found.switch("use_liger_kernel") or found.switch("use_liger"):
        options["fused_loss"] = True
    if found.switch("activation_offloading"):
        found.set_offloading()
    if found.switch("packing"):
        found.assume("packing fills every sample to the full length")
    _spread(found)
    found.without_effect(("gradient_checkpointing_kwargs", "loss_type", "peft_config", "packing_strategy", "beta"))


def lora(rank: Any, targets: Any, **others: Any) -> dict[str, Any]:
    """LoRA as peft takes it; without targets it has its own for each kind of model."""
    if isinstance(targets, str) and targets in ("all", "all-linear"):
        targets = "all-linear"
    elif isinstance(targets, str):
        targets = [part.strip() for part in targets.split(",")] if "," in targets else targets
    settings = {"r": as_count(rank), "target_modules": targets, **others}
    return {"kind": "lora", **{key: value for key, value in settings.items() if value not in (None, [], "")}}


def precision_of(bf16: bool, fp16: bool, otherwise: str) -> str:
    if bf16 and fp16:
        raise BadInput("the file asks for bf16 and fp16 at once; one of them must go.")
    return "amp-bf16" if bf16 else "amp-fp16" if fp16 else otherwise


def quantization_of(*, four: bool, eight: bool, kind: Any = "nf4", double: bool = False) -> str | None:
    if four and eight:
        raise BadInput("the file asks for 4-bit and 8-bit weights at once; one of them must go.")
    if four:
        name = str(kind).lower()
        if name not in ("nf4", "fp4"):
            raise BadInput(f"the 4-bit type {kind!r} is not known; it is nf4 or fp4.")
        return f"{name}-double" if double else name
    return "int8" if eight else None


def attention_of(value: Any) -> str | None:
    """transformers' names; kernels of the hub are FlashAttention by another way."""
    name = str(value).lower()
    if "flash" in name:
        return "flash"
    return name if name in ("eager", "sdpa") else None


# -------- peft's adapter_config.json

_OF_THE_FILE = ("base_model_name_or_path", "peft_type", "task_type", "inference_mode", "auto_mapping", "revision",
                "peft_version", "corda_config", "eva_config", "runtime_config", "loftq_config", "megatron_config",
                "megatron_core")  # fmt: skip


def read_adapter(found: Findings) -> None:
    """peft's own file: the method and its settings, the model perhaps."""
    found.without_effect(tuple(found.data))
    settings = {key: value for key, value in found.data.items() if key not in _OF_THE_FILE and value is not None}
    found.options["model"] = found.take("base_model_name_or_path")
    found.options["adapter"] = {"kind": str(found.data["peft_type"]).lower(), **settings}
    found.options["weights"] = "bf16"
    found.options["precision"] = "amp-bf16"
    found.assume("an adapter's file does not say how it is trained: bfloat16 weights and autocast are assumed")
