"""Valid content of every kind that oomcast reads, made when asked for: nothing of it is kept in the repository."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import oomcast
from oomcast.capture import capture
from oomcast.estimation import Calibration, Estimate, MeasuredRun, write_calibration
from oomcast.report import estimate_as_json, snapshot_as_pickle
from oomcast.spec import Spec
from oomcast.trace import trace_to_bytes
from oomcast.units import MiB

__all__ = [
    "calibrations",
    "configurations",
    "estimates",
    "job_lists",
    "onnx_models",
    "recipes",
    "snapshots",
    "traces",
    "written",
]

_JOBS = """
gpus = "2xa100-40gb,t4"
risk = 0.01
max_per_gpu = 3
[[job]]
name = "first"
job = "zoo:mlp"
batch_size = 8
optimizer = "adam"
[[job]]
name = "second"
device_total = "6GiB"
low = "5GiB"
high = "7GiB"
count = 3
duration = 100
arrival = 5.5
[[job]]
name = "third"
group = "models"
[job.estimates.simulator]
device_total = 4000000000
coverage = 0.9
"""
_RECIPES: tuple[dict[str, Any], ...] = (
    {
        "base_model": "NousResearch/Llama-3.2-1B",
        "load_in_4bit": True,
        "adapter": "qlora",
        "lora_r": 32,
        "lora_target_linear": True,
        "sequence_len": 2048,
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "optimizer": "adamw_bnb_8bit",
        "bf16": "auto",
        "fsdp_config": {"fsdp_version": 2, "fsdp_offload_params": False},
        "unheard_of": 7,
    },
    {
        "model_name_or_path": "Qwen/Qwen3-4B",
        "stage": "sft",
        "finetuning_type": "lora",
        "lora_target": "all",
        "cutoff_len": 1024,
        "per_device_train_batch_size": 1,
        "bf16": True,
    },
    {
        "model": {
            "_component_": "torchtune.models.llama3_1.lora_llama3_1_8b",
            "lora_attn_modules": ["q_proj", "output_proj"],
            "lora_rank": 8,
        },
        "tokenizer": {"_component_": "torchtune.models.llama3.llama3_tokenizer", "max_seq_len": 4096},
        "batch_size": 2,
        "optimizer": {"_component_": "torch.optim.AdamW", "fused": True},
        "loss": {"_component_": "torchtune.modules.loss.LinearCrossEntropyLoss"},
        "enable_activation_checkpointing": True,
        "dtype": "bf16",
    },
    {
        "checkpoint_dir": "checkpoints/meta-llama/Llama-3.2-1B",
        "precision": "bf16-true",
        "quantize": "bnb.nf4",
        "lora_r": 16,
        "train": {"micro_batch_size": 2, "global_batch_size": 8, "max_seq_length": 512},
    },
    {
        "model_name_or_path": "Qwen/Qwen2.5-0.5B",
        "use_peft": True,
        "lora_r": 8,
        "lora_target_modules": ["q_proj", "v_proj"],
        "max_length": 2048,
        "per_device_train_batch_size": 4,
        "torch_dtype": "bfloat16",
    },
    {
        "model_name_or_path": "openai-community/gpt2",
        "output_dir": "out",
        "per_device_train_batch_size": 8,
        "block_size": 256,
        "optim": "adamw_torch_fused",
        "fsdp": "full_shard auto_wrap",
        "deepspeed": {"zero_optimization": {"stage": 2}},
        "fp16": True,
    },
    {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": {"zero_stage": 3, "offload_optimizer_device": "none"},
        "mixed_precision": "bf16",
        "num_processes": 8,
    },
    {
        "trainer": {"precision": "bf16-mixed", "accumulate_grad_batches": 2, "strategy": "fsdp", "devices": 4},
        "model": {"class_path": "mine.Net", "init_args": {"model_name": "google-bert/bert-base-uncased"}},
        "data": {"class_path": "mine.Data", "init_args": {"batch_size": 16, "max_length": 128}},
    },
    {
        "train_micro_batch_size_per_gpu": 4,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    },
    {"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"], "base_model_name_or_path": "openai-community/gpt2"},
)
_COMMAND = """#!/bin/sh
CUDA_VISIBLE_DEVICES=0 python run_clm.py --model_name_or_path openai-community/gpt2 --block_size 256 \\
    --per_device_train_batch_size 16 --gradient_checkpointing true --fp16 --output_dir out --lora_r=8
"""
_CONFIGURATIONS: tuple[dict[str, Any], ...] = (
    {
        "model_type": "gpt2",
        "n_layer": 1,
        "n_embd": 32,
        "n_head": 2,
        "n_positions": 64,
        "vocab_size": 99,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "architectures": ["GPT2LMHeadModel"],
    },
    {
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 99,
        "max_position_embeddings": 64,
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
    {
        "model_type": "bert",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 99,
        "max_position_embeddings": 64,
    },
)


@cache
def _estimate() -> Estimate:
    return oomcast.estimate("zoo:mlp", batch_size=2, device="a100-40gb", steps=1, keep_history=True)


def written(write: Callable[[Path], object]) -> bytes:
    """What `write` writes to the path that it is given."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seed"
        write(path)
        return path.read_bytes()


def snapshots() -> tuple[bytes, ...]:
    history = _estimate().history
    assert history is not None
    return (snapshot_as_pickle(history),)


def traces() -> tuple[bytes, ...]:
    return (trace_to_bytes(capture(Spec.read("zoo:mlp", device="a100-40gb", batch_size=2, steps=1))),)


def estimates() -> tuple[bytes, ...]:
    return (json.dumps(estimate_as_json(_estimate())).encode(),)


def calibrations() -> tuple[bytes, ...]:
    run = MeasuredRun("nvidia-smi", 2500 * MiB, 2000 * MiB, 1800 * MiB, 2000 * MiB, 1800 * MiB, True, date="2026-11-17")
    known = Calibration("rtx-3090", "torch-2.8-cu128", (run,))
    return (written(lambda path: write_calibration(known, path)),)


def job_lists() -> tuple[bytes, ...]:
    return (_JOBS.encode(),)


def configurations() -> tuple[bytes, ...]:
    return tuple(json.dumps(one).encode() for one in _CONFIGURATIONS)


def recipes() -> tuple[bytes, ...]:
    """Of the ten formats whose files a job may be, as JSON, which is YAML too; and a command in a shell script."""
    return (*(json.dumps(recipe).encode() for recipe in _RECIPES), _COMMAND.encode())


def onnx_models() -> tuple[bytes, ...]:
    """Needs onnx; raises ImportError without it."""
    import numpy
    from onnx import TensorProto, helper, numpy_helper

    weights = [
        numpy_helper.from_array(numpy.zeros((4, 3, 3, 3), "float32"), "kernel"),
        numpy_helper.from_array(numpy.zeros((4, 10), "float32"), "matrix"),
        numpy_helper.from_array(numpy.array([0, -1], "int64"), "form"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["maps"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["maps"], ["positive"]),
        helper.make_node("GlobalAveragePool", ["positive"], ["pooled"]),
        helper.make_node("Reshape", ["pooled", "form"], ["flat"]),
        helper.make_node("MatMul", ["flat", "matrix"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return (bytes(model.SerializeToString()),)
