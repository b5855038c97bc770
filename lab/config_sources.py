"""Public configuration files by format: repository and paths. They are fetched when asked for, never committed.

Chosen for small models and different methods; two of TRL's that name models whose sizes do not ship gave way to others.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from oomcast.errors import BadInput

__all__ = ["SOURCES", "fetch_files"]

_LOCAL_GIT = (".git", "repo", ".")
"""Where a folder of clones may have the git directory of a repository."""

SOURCES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "axolotl": {
        "axolotl-ai-cloud/axolotl": (
            "examples/llama-3/qlora-1b.yml",
            "examples/llama-3/lora-1b.yml",
            "examples/llama-3/qlora-1b-kto.yaml",
            "examples/gemma3/gemma-3-1b-qlora.yml",
            "examples/llama-2/qlora.yml",
            "examples/mistral/dpo/mistral-dpo-qlora.yml",
        )
    },
    "llama-factory": {
        "hiyouga/LLaMA-Factory": (
            "examples/train_lora/qwen3_lora_sft.yaml",
            "examples/train_lora/qwen3_lora_dpo.yaml",
            "examples/train_lora/qwen3_lora_reward.yaml",
            "examples/train_qlora/qwen3_lora_sft_otfq.yaml",
            "examples/extras/muon/qwen2_full_sft.yaml",
            "examples/extras/galore/llama3_full_sft.yaml",
        )
    },
    "torchtune": {
        "pytorch/torchtune": (
            "recipes/configs/llama3_2/1B_lora_single_device.yaml",
            "recipes/configs/llama3_2/1B_qlora_single_device.yaml",
            "recipes/configs/llama3_2/1B_full_single_device.yaml",
            "recipes/configs/qwen2/0.5B_lora_single_device.yaml",
            "recipes/configs/qwen2_5/0.5B_full_single_device.yaml",
            "recipes/configs/gemma/2B_lora_single_device.yaml",
        )
    },
    "litgpt": {
        "Lightning-AI/litgpt": (
            "config_hub/finetune/tiny-llama/lora.yaml",
            "config_hub/finetune/tiny-llama/qlora.yaml",
            "config_hub/finetune/tiny-llama/full.yaml",
            "config_hub/finetune/llama-3.2-1B/qlora.yaml",
            "config_hub/finetune/phi-2/lora.yaml",
            "config_hub/finetune/gemma-2b/qlora.yaml",
        )
    },
    "trl": {
        "huggingface/alignment-handbook": (
            "recipes/smollm/sft/config.yaml",
            "recipes/smollm2/sft/config_smol.yaml",
            "recipes/smollm2/sft/config.yaml",
            "recipes/zephyr-7b-beta/sft/config_qlora.yaml",
            "recipes/pref_align_scan/dpo/config_zephyr.yaml",
        ),
        "huggingface/trl": ("examples/cli_configs/example_config.yaml",),
    },
    "training-arguments": {
        "OptimalScale/LMFlow": (
            "scripts/archive/run_finetune.sh",
            "scripts/archive/run_finetune_with_lora.sh",
            "scripts/run_finetune_with_qlora.sh",
        ),
        "microsoft/DeepSpeedExamples": (
            "training/autotuning/hf/gpt2/test_tune.sh",
            "training/autotuning/hf/bert-base/test_tune.sh",
            "training/autotuning/hf/distilbert/test_tune.sh",
        ),
    },
    "deepspeed": {
        "hiyouga/LLaMA-Factory": (
            "examples/deepspeed/ds_z0_config.json",
            "examples/deepspeed/ds_z2_config.json",
            "examples/deepspeed/ds_z3_config.json",
            "examples/deepspeed/ds_z3_offload_config.json",
        ),
        "microsoft/DeepSpeedExamples": (
            "training/autotuning/hf/dsconfigs/ds_config_fp16_z1.json",
            "training/autotuning/hf/dsconfigs/ds_config_fp16_z2.json",
        ),
    },
    "accelerate": {
        "huggingface/trl": (
            "examples/accelerate_configs/single_gpu.yaml",
            "examples/accelerate_configs/multi_gpu.yaml",
            "examples/accelerate_configs/deepspeed_zero2.yaml",
            "examples/accelerate_configs/deepspeed_zero3.yaml",
            "examples/accelerate_configs/fsdp1.yaml",
            "examples/accelerate_configs/fsdp2.yaml",
        )
    },
    "peft": {
        "huggingface/peft": tuple(
            f"method_comparison/MetaMathQA/experiments/{name}/adapter_config.json"
            for name in (
                "lora/llama-3.2-3B-rank32",
                "lora/llama-3.2-3B-rank32-dora",
                "ia3/llama-3.2-3B-default",
                "loha/llama-3.2-3B-rank32",
                "prompt_tuning/llama-3.2-3B-default",
                "ptuning/llama-3.2-3B-default",
            )
        )
    },
    "lightning": {
        "torchgeo/torchgeo": (
            "experiments/torchgeo/conf/eurosat.yaml",
            "experiments/torchgeo/conf/etci2021.yaml",
            "experiments/torchgeo/conf/cowc_counting.yaml",
        ),
        "microsoft/ClimaX": ("configs/pretrain_climax.yaml", "configs/climate_projection.yaml"),
    },
}
"""Format → repository → files."""


def fetch_files(checkouts: Path, into: Path) -> None:
    """The files of `SOURCES`, a folder for each format, from clones in `checkouts` (`owner+name`); those that are not
    there are cloned, without their history."""
    for name, repositories in SOURCES.items():
        for repository, paths in repositories.items():
            git = _clone(repository, checkouts)
            for path in paths:
                place = into / name / f"{repository}/{path}".replace("/", "_")
                if place.exists():
                    continue
                done = subprocess.run(
                    ["git", "--git-dir", str(git), "show", f"HEAD:{path}"], capture_output=True, check=False
                )
                if done.returncode:
                    raise BadInput(f"{repository} has no file {path} any more.")
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(done.stdout)


def _clone(repository: str, checkouts: Path) -> Path:
    place = checkouts / repository.replace("/", "+")
    if not place.exists():
        checkouts.mkdir(parents=True, exist_ok=True)
        line = ["git", "clone", "-q", "--depth", "1", "--filter=blob:none", "--no-checkout"]
        done = subprocess.run(
            [*line, f"https://github.com/{repository}", str(place)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BadInput(f"{repository} cannot be cloned: {done.stderr.strip().splitlines()[-1]}")
    return next(place / name for name in _LOCAL_GIT if (place / name / "HEAD").exists())
