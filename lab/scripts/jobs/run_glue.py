"""transformers' run_glue.py with the tiny BERT of its row, as a job: HF's Trainer pads to 128 and fuses AdamW."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from oomcast.capture.torch.vision_operators import prepare_torchvision


def model() -> Any:
    prepare_torchvision()  # whose operators may be built for another torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    configuration = AutoConfig.from_pretrained(Path(__file__).parent / "bert", num_labels=2)
    return AutoModelForSequenceClassification.from_config(configuration)


def batch(batch_size: int) -> Any:
    names = ("input_ids", "attention_mask", "token_type_ids")
    tokens = {name: torch.ones(batch_size, 128, dtype=torch.int64) for name in names}
    return {**tokens, "labels": torch.zeros(batch_size, dtype=torch.int64)}


def loss(model: Any, batch: Any) -> torch.Tensor:
    loss: torch.Tensor = model(**batch).loss
    return loss


def optimizer(params: Any) -> Any:
    return torch.optim.AdamW(params, fused=True)
