"""Files of the tuning frameworks that build on Hugging Face's Trainer: axolotl and LLaMA-Factory."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import BadInput
from .found import Findings, Setting, as_count, as_switch, weights_of
from .hugging_face import answering_of, attention_of, lora, precision_of, quantization_of
from .launchers import deepspeed_of, fsdp_of
from .optimizer_names import optimizer_of

__all__ = ["read_axolotl", "read_llama_factory"]

_PREFERENCES = {"dpo": "dpo", "ipo": "dpo", "orpo": "orpo", "kto": "kto"}
_OFFLOADS = ("offload", "offload_disk", "unsloth")
"""What axolotl's gradient_checkpointing may be beside true and false."""
_AXOLOTL: Mapping[str, Setting] = {
    "base_model": ("model", str),
    "micro_batch_size": ("batch_size", as_count),
    "gradient_accumulation_steps": ("accumulation", as_count),
    "sequence_len": ("seq_len", as_count),
    "gradient_checkpointing": ("checkpointing", lambda value: value in _OFFLOADS or as_switch(value)),
    "optimizer": ("optimizer", optimizer_of),
    "torch_dtype": ("weights", weights_of),
    "attn_implementation": ("attention", attention_of),
}


def read_axolotl(found: Findings) -> None:
    """axolotl loads the weights in the type it trains in, and runs them through Hugging Face's Trainer."""
    found.follow(_AXOLOTL)
    options = found.options
    options["training_loop"] = "hf-trainer"
    options.setdefault("optimizer", "adamw-fused")
    options.setdefault("batch_size", 1)
    if "seq_len" not in options:
        options["seq_len"] = 512
        found.assume("samples have 512 tokens, axolotl's default of sequence_len")
    given = found.take("bf16", "auto"), found.take("fp16", False)
    bf16, fp16 = given[0] == "full" or as_switch(given[0]), as_switch(given[1])
    if fp16 and given[0] == "auto":
        bf16 = False
    options["precision"] = precision_of(bf16, fp16, "fp32")
    options.setdefault("weights", {"amp-bf16": "bf16", "amp-fp16": "fp16"}.get(options["precision"], "fp32"))
    if given[0] == "full":
        options.update(precision="bf16", weights="bf16")
    found.switch("bfloat16"), found.switch("float16")
    compiles = found.take("torch_compile", False)
    if compiles == "auto":
        found.assume("torch_compile: auto is taken as off, since axolotl asks the machine; --compile takes it as on")
    elif as_switch(compiles):
        options["compile"] = "model"
    if found.switch("flash_attention"):
        options["attention"] = "flash"
    elif found.switch("sdp_attention"):
        options.setdefault("attention", "sdpa")
    elif found.switch("eager_attention"):
        options.setdefault("attention", "eager")
    _axolotl_adapter(found)
    _axolotl_objective(found)
    _axolotl_qat(found)
    if found.switch("liger_fused_linear_cross_entropy") or found.switch("cut_cross_entropy"):
        options["fused_loss"] = True
    if found.switch("sample_packing"):
        found.assume("packing fills every sample to the full length")
    else:
        found.assume("every sample is as long as sequence_len; shorter ones hold less")
    if found.take("deepspeed"):
        deepspeed = found.take("deepspeed")
        if isinstance(deepspeed, Mapping):
            deepspeed_of(found, deepspeed)
        else:
            found.assume(f"what {deepspeed} says is not in the figures; give it with --configs")
    if found.take("fsdp") or found.take("fsdp_config"):
        version = found.take("fsdp_version", 1)
        fsdp_of(found, {"fsdp_version": version, **found.part("fsdp_config")})
    found.without_effect(
        (
            "gradient_checkpointing_kwargs",
            "plugins",
            "model_type",
            "model_config",
            "base_model_config",
            "tokenizer_type",
            "pad_to_sequence_len",
            "eval_sample_packing",
            "strict",
            "rl",
            "is_llama_derived_model",
            "xformers_attention",
            "s2_attention",
            "flash_attn_fuse_mlp",
            "processor_type",
            "dpo_use_weighting",
            "liger_rope",
            "is_mistral_derived_model",
            "is_falcon_derived_model",
        )
    )
    offloads = found.take("activation_offloading", False)
    if found.data.get("gradient_checkpointing") in _OFFLOADS or offloads in ("legacy", "disk") or as_switch(offloads):
        options["checkpointing"] = True
        found.set_offloading()


def _axolotl_adapter(found: Findings) -> None:
    options, adapter = found.options, str(found.take("adapter", "")).lower()
    rank, targets = found.take("lora_r", 8), found.take("lora_target_modules")
    linear, saved = found.switch("lora_target_linear"), found.take("lora_modules_to_save")
    four, eight = found.switch("load_in_4bit"), found.switch("load_in_8bit")
    found.without_effect(
        (
            "lora_dropout",
            "lora_fan_in_fan_out",
            "lora_on_cpu",
            "peft_use_dora",
            "peft_layers_to_transform",
            "lora_target_parameters",
            "qlora_sharded_model_loading",
            "peft",
            "lora_bias",
        )
    )
    options["quantization"] = quantization_of(four=four, eight=eight, double=True)
    if not adapter or adapter == "none":
        if four or eight:
            raise BadInput(
                "the file quantises the weights and names no adapter; quantised weights cannot be trained in full."
            )
        return
    if adapter not in ("lora", "qlora"):
        raise BadInput(f"the adapter {adapter!r} of axolotl is not offered; lora and qlora are.")
    if adapter == "qlora" and not four and not options["quantization"]:
        raise BadInput("the adapter is qlora, but load_in_4bit is not set; say one or the other.")
    extra = {"use_dora": True} if found.data.get("peft_use_dora") else {}
    layers = found.data.get("peft_layers_to_transform")
    if layers:
        extra["layers_to_transform"] = layers
    if found.data.get("lora_target_parameters"):
        found.assume("lora_target_parameters (adapters on experts) are not followed")
    options["adapter"] = lora(rank, "all-linear" if linear else targets, modules_to_save=saved, **extra)
    # peft's preparation upcasts what is not quantised; FlashAttention makes axolotl cast it back.
    options["upcast_rest"] = bool(options["quantization"]) and options.get("attention") != "flash"


_QAT: Mapping[tuple[str | None, str | None], str] = {
    (None, "int4"): "int4", ("int8", "int4"): "int8-int4", ("fp8", "int4"): "fp8-int4", ("fp8", "fp8"): "fp8-fp8",
}  # fmt: skip
"""The types of activations and weights → the names of --qat."""


def _axolotl_qat(found: Findings) -> None:
    qat = found.part("qat")
    if not qat:
        return
    activations, weights = (
        None if qat.get(key) is None else str(qat[key]).lower().removeprefix("torch.").replace("float8_e4m3fn", "fp8")
        for key in ("activation_dtype", "weight_dtype")
    )
    name = _QAT.get((activations, weights))
    if name is None:
        raise BadInput(
            f"qat: activations in {activations} and weights in {weights} are not offered; weights in int4 are, or int4 "
            "beside int8 or fp8, or both in fp8."
        )
    found.options["qat"] = name
    if as_switch(qat.get("quantize_embedding", False)):
        found.assume("qat: embeddings are trained as they are, though the file rounds them too (quantize_embedding)")


def _axolotl_objective(found: Findings) -> None:
    rl = str(found.take("rl", "")).lower()
    if rl == "grpo":
        answering_of(found, found.part("trl"), rl)
    elif rl:
        if rl not in _PREFERENCES:
            raise BadInput(f"the objective rl: {rl} is not offered; supervised tuning, dpo, orpo, kto and grpo are.")
        found.set_objective(_PREFERENCES[rl])
    if found.switch("reward_model"):
        found.set_objective("reward")
    if found.switch("process_reward_model"):
        found.options["head"] = "token-classification"


_LLAMA_FACTORY: Mapping[str, Setting] = {
    "model_name_or_path": ("model", str),
    "model": ("model", str),
    "per_device_train_batch_size": ("batch_size", as_count),
    "micro_batch_size": ("batch_size", as_count),
    "gradient_accumulation_steps": ("accumulation", as_count),
    "cutoff_len": ("seq_len", as_count),
    "optim": ("optimizer", optimizer_of),
}
_CUTOFF = 2048
_STAGES = {"dpo": "dpo", "kto": "kto", "rm": "reward"}


def read_llama_factory(found: Findings) -> None:
    """LLaMA-Factory checkpoints unless told not to, and keeps what is trained in float32 unless told `pure_bf16`."""
    found.follow(_LLAMA_FACTORY)
    options = found.options
    options["training_loop"] = "hf-trainer"
    options.setdefault("optimizer", "adamw-fused")
    options["checkpointing"] = not found.switch("disable_gradient_checkpointing")
    if found.switch("use_unsloth_gc") and options["checkpointing"]:
        found.set_offloading()
    if "batch_size" not in options:
        options["batch_size"] = 8
        found.assume("the batch size is 8, TrainingArguments' default")
    if "seq_len" not in options:
        options["seq_len"] = _CUTOFF
        found.assume(f"samples have {_CUTOFF:,} tokens, LLaMA-Factory's default of cutoff_len")
    pure = found.switch("pure_bf16")
    options["precision"] = precision_of(found.switch("bf16") or pure, found.switch("fp16"), "fp32")
    half = {"amp-bf16": "bf16", "amp-fp16": "fp16"}.get(options["precision"], "fp32")
    options["weights"] = half
    options["trained_weights"] = "bf16" if pure else "fp32"
    if pure:
        options["precision"] = "bf16"
    flash = str(found.take("flash_attn", "auto")).lower()
    options["attention"] = {"fa2": "flash", "fa3": "flash", "sdpa": "sdpa", "disabled": "eager"}.get(flash)
    _factory_method(found)
    stage = str(found.take("stage", "sft")).lower()
    if stage in _STAGES:
        is_orpo = stage == "dpo" and found.data.get("pref_loss") in ("orpo", "simpo")
        found.set_objective("orpo" if is_orpo else _STAGES[stage])
    elif stage not in ("sft", "pt"):
        raise BadInput(f"the stage {stage!r} is not offered; pt, sft, dpo, kto and rm are.")
    if found.switch("enable_liger_kernel"):
        options["fused_loss"] = True
    deepspeed = found.take("deepspeed")
    if isinstance(deepspeed, Mapping):
        deepspeed_of(found, deepspeed)
    elif deepspeed:
        found.assume(f"what {deepspeed} says is not in the figures; give it with --configs")
    if found.take("fsdp"):
        fsdp_of(found, found.part("fsdp_config"))
    found.assume("every sample is as long as cutoff_len; shorter ones hold less")
    found.without_effect(
        (
            "packing",
            "neat_packing",
            "resize_vocab",
            "infer_backend",
            "image_max_pixels",
            "video_max_pixels",
            "quantization_method",
            "double_quantization",
            "pref_beta",
            "pref_loss",
            "media_dir",
        )
    )


def _factory_method(found: Findings) -> None:
    options, method = found.options, str(found.take("finetuning_type", "lora")).lower()
    bits = found.take("quantization_bit")
    rank, targets = found.take("lora_rank", 8), found.take("lora_target", "all")
    if bits is not None:
        library = str(found.data.get("quantization_method", "bnb")).lower()
        if library not in ("bnb", "bitsandbytes"):
            raise BadInput(f"the quantisation by {library} is not offered; bnb is.")
        if as_count(bits) not in (4, 8):
            raise BadInput(f"quantization_bit is 4 or 8 with bitsandbytes, not {bits!r}.")
        double = as_switch(found.data.get("double_quantization", True))
        options["quantization"] = quantization_of(four=as_count(bits) == 4, eight=as_count(bits) == 8, double=double)
        if method in ("full", "freeze"):
            raise BadInput(
                "the file quantises the weights and trains them (finetuning_type); quantised weights need lora."
            )
    if method == "lora":
        dora = {"use_dora": True} if found.switch("use_dora") else {}
        options["adapter"] = lora(rank, targets, modules_to_save=found.take("additional_target"), **dora)
    elif method == "oft":
        block = found.take("oft_block_size", 32)
        target = found.take("oft_target", "all")
        options["adapter"] = {
            "kind": "oft", "oft_block_size": as_count(block), "r": 0,
            "target_modules": "all-linear" if target == "all" else target,
        }  # fmt: skip
    elif method == "freeze":
        layers = found.take("freeze_trainable_layers", 2)
        options["trained_layers"] = int(layers)
    elif method != "full":
        raise BadInput(f"the finetuning_type {method!r} is not known; it is lora, oft, freeze or full.")
    for switch, optimizer in (
        ("use_galore", "galore_adamw"),
        ("use_apollo", "apollo_adamw"),
        ("use_muon", "muon"),
    ):
        if found.switch(switch):
            found.set_optimizer(optimizer)
            if optimizer != "muon":
                found.assume(f"{switch}: the optimizer projects to rank 128, whatever the file says")
    for switch in ("use_badam", "use_adam_mini"):
        if found.switch(switch):
            found.assume(f"{switch}: its optimizer is not followed; the figures are those of {options['optimizer']}")
