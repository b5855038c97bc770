"""Megatron-LM's own recorded bytes: each row's arguments become a run of `pretrain.py` on the last rank, which logs."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

from oomcast.spec import Script

from ..cases import Case, Measure
from ..table import Row

__all__ = ["MEGATRON_COLUMNS", "read_megatron"]

MEGATRON_COLUMNS = ("file", "model_family", "test_case", "platform", "environment", "nodes", "gpus_per_node", "steps",
                    "mem_max_allocated_bytes_max", "model_args_json")  # fmt: skip
_SCRIPT = Path(__file__).with_name("pretrain.py")
_GPUS = {"": "a100-80gb", "dgx_a100": "a100-80gb", "dgx_h100": "h100-80gb", "dgx_gb200": "b200"}
"""Tests without a platform in their file's name are of the time when there was only the first. A GB200 has B200s."""
_STACKS = {"lts": "torch-2.4-cu121", "dev": "torch-2.8-cu128"}
_DEFAULT_NODE = 8
_VOCABULARIES = {"": 50257, "GPT2BPETokenizer": 50257, "BertWordPieceCase": 28996, "BertWordPieceLowerCase": 30522}
"""Of GPT-2's merges and of BERT's published word lists; Megatron-LM's BERT and GPT scripts read these by default."""

_OLD_RECORDS = "lts_dgxa100_dracooci"
"""In the names of files that an earlier test machine recorded and nobody renewed, while the arguments beside them are
today's. Its TransformerEngine had no deterministic flash attention: what asks for determinism ran unfused, and recorded
the very bytes that tests record which say `--attention-backend unfused`. So did the LTS image before that of November
2025 (Megatron-LM 23a1dcaf74); what it recorded has the old form of such files, a value for every fifth step alone, and
some of them were never renewed either."""

_NOT_BUILT = {
    "fp8_format": "8-bit floats of TransformerEngine are not written here",
    "use_megatron_fsdp": "Megatron's own FSDP is not put together here",
    "use_torch_fsdp2": "Megatron's use of FSDP2 is not put together here",
    "perform_rl_step": "it generates text between its steps: reinforcement learning is not put together here",
    "hybrid_layer_pattern": "Mamba layers need the package mamba-ssm",
    "is_hybrid_model": "Mamba layers need the package mamba-ssm",
    "model_provider": "multimodal models are not put together here",
    "img_h": "multimodal models are not put together here",
    "cuda_graph_impl": "CUDA graphs of Megatron are not put together here",
    "tp_comm_overlap": "user buffers of TransformerEngine are not written here",
    "fine_grained_activation_offloading": "activations on the host are not put together here",
    "overlap_moe_expert_parallel_comm": "overlapped schedules of experts are not put together here",
    "moe_permute_fusion": "TransformerEngine's permutation kernels are not written here",
    "moe_flex_dispatcher_backend": "DeepEP's and HybridEP's buffers are not written here",
    "defer_embedding_wgrad_compute": "deferred gradients of the embedding are not put together here",
    "delay_wgrad_compute": "delayed gradients of weights are not put together here",
    "export_kd_cfg": "distillation needs the package modelopt",
    "export_te_mcore_model": "distillation needs the package modelopt",
    "step_batch_size_schedule": "its batch grows while it runs",
}
"""Arguments that change what a run holds and that `pretrain.py` does not follow, with the reason."""
_SIZES = ("num_layers", "hidden_size", "num_attention_heads", "seq_length")
"""What a checkpoint may say in their place (`use_checkpoint_args`). Tests that resume read one that their own first
half has written with the arguments that they name."""
_NOT_HELD = re.compile(
    r"(log|save|load|data_|wandb|tensorboard|lr$|lr_|min_lr|eval|ckpt|dist_ckpt|async|use_persistent|vocab_file|merge_file|"
    r"exit_|train_|timing|tokenizer|split$|weight_decay|distributed_(backend|timeout)|use_checkpoint|straggler|manual_gc|"
    r"mock_data|num_workers|verify|init_method|adam_)"
)
"""Names that change nothing of what the GPU holds: logs, files, data, schedules of the learning rate."""


def read_megatron(row: Row) -> Case | str:
    arguments = _arguments(row)
    for name, reason in _NOT_BUILT.items():
        if arguments.get(name):
            return reason
    if arguments.get("use_checkpoint_args") and not all(arguments.get(size) for size in _SIZES):
        return "its sizes are in a checkpoint that is not published"
    family = arguments["family"] = row.text("model_family")
    if family not in ("gpt", "moe", "mixtral", "bert", "t5"):
        return f"{family} is not put together here"
    optimizer = arguments.get("optimizer", "adam")
    if optimizer != "adam":
        return f"the optimizer {optimizer} needs a package that is not built here"
    vocabulary = _vocabulary(arguments)
    if vocabulary is None:
        return "the size of its vocabulary is in a tokenizer that is not published with the row"
    if importlib.util.find_spec("megatron") is None:
        return "it needs megatron-core; install it with: pip install megatron-core"
    arguments["padded_vocab_size"] = vocabulary
    if _is_old(row, arguments) and arguments.get("deterministic_mode"):
        arguments.setdefault("attention_backend", "unfused")
    world = _world(row)
    needed = _parts(arguments)
    if world % needed:
        return f"its {world} GPUs do not divide into the {needed} that its layout needs"
    platform = row.get("platform")
    if platform not in _GPUS:
        return f"the GPU of {platform} is not known here"
    gpu = _GPUS[platform]
    return Case.of_script(
        Script(line=_line(arguments, world)),
        data="megatron_golden",
        campaign=f"megatron {platform} {row.get('environment')}",
        row=f"{row.number} {row.text('test_case')} {platform} {row.get('environment')}",
        family=f"{family}-{arguments['transformer_impl']}",
        gpu=f"{world}x{gpu}",
        rank=world - 1,
        stack=_STACKS.get(row.get("environment"), "torch-2.8-cu128"),
        measure=Measure.ALLOCATED,
        measured=row.whole("mem_max_allocated_bytes_max"),
        ran=True,
    )


def _is_old(row: Row, arguments: dict[str, Any]) -> bool:
    """Whether a test machine or an image recorded it whose TransformerEngine was older (`_OLD_RECORDS`)."""
    if _OLD_RECORDS in row.get("file"):
        return True
    iterations, steps = arguments.get("train_iters"), row.get("steps")
    is_thinned = isinstance(iterations, int) and steps.isdecimal() and int(steps) <= iterations // 4
    return row.get("environment") == "lts" and is_thinned


def _arguments(row: Row) -> dict[str, Any]:
    """By name, with underscores; numbers as numbers."""
    try:
        given = json.loads(row.text("model_args_json"))
    except ValueError:
        raise row.error("model_args_json", "it is not JSON") from None
    if not isinstance(given, dict):
        raise row.error("model_args_json", "it is not an object")
    arguments = {name.lstrip("-").replace("-", "_"): _number(value) for name, value in given.items()}
    arguments.setdefault("transformer_impl", "local" if arguments.get("spec") == "local" else "transformer_engine")
    return arguments


def _number(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"-?(\d+\.\d*|\.?\d+)([eE]-?\d+)?", value):
        return float(value)
    return value


def _vocabulary(arguments: dict[str, Any]) -> int | None:
    """Padded as Megatron does it: to a multiple of 128 times the tensor-parallel size."""
    kind = arguments.get("tokenizer_type", "BertWordPieceLowerCase" if arguments["family"] in ("bert", "t5") else "")
    size = arguments.get("vocab_size") if kind == "NullTokenizer" or kind not in _VOCABULARIES else _VOCABULARIES[kind]
    if size is None:
        return None
    multiple = arguments.get("make_vocab_size_divisible_by", 128) * arguments.get("tensor_model_parallel_size", 1)
    return -(-(int(size) + int(arguments.get("vocab_extra_ids", 0))) // multiple) * multiple


def _parts(arguments: dict[str, Any]) -> int:
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    size = 1
    for name in names:
        size *= int(arguments.get(name, 1))
    return size


def _world(row: Row) -> int:
    """GPUs of the test. Where a cell lists several machines (`1;2` nodes of `4;8`), more nodes have fewer GPUs."""
    nodes, gpus = ([int(number) for number in re.findall(r"\d+", row.get(name))] for name in ("nodes", "gpus_per_node"))
    return min(nodes, default=1) * max(gpus, default=_DEFAULT_NODE)


def _line(arguments: dict[str, Any], world: int) -> tuple[str, ...]:
    """Deterministic tests set cuBLAS's workspace, as torch demands it of them (all of Megatron-LM's say :4096:8)."""
    variables = [f"NVTE_APPLY_QK_LAYER_SCALING={int(bool(arguments.get('apply_query_key_layer_scaling')))}"]
    if arguments.get("deterministic_mode"):
        variables += ["CUBLAS_WORKSPACE_CONFIG=:4096:8", "NVTE_ALLOW_NONDETERMINISTIC_ALGO=0"]
    words = json.dumps({name: value for name, value in arguments.items() if not _NOT_HELD.match(name)}, sort_keys=True)
    return ("env", *variables, "torchrun", "--nproc_per_node", str(world), str(_SCRIPT), words)
