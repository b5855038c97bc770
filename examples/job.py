"""A job file: what oomcast needs to know of a training job. Run it with

    oomcast estimate examples/job.py --batch-size 32 --device rtx-3090

`model()` and `batch(batch_size)` are required; `loss(model, batch)` and `optimizer(params)` are optional. The file is
plain PyTorch: nothing in it knows of oomcast, and nothing is computed for real.
"""

import torch
from torch import nn


def model() -> nn.Module:
    layer = nn.TransformerEncoderLayer(d_model=512, nhead=8, dim_feedforward=2048, batch_first=True)
    return nn.Sequential(
        nn.Embedding(32_000, 512),
        nn.TransformerEncoder(layer, num_layers=6, enable_nested_tensor=False),
        nn.Linear(512, 32_000),
    )


def batch(batch_size: int, seq_len: int = 256) -> dict[str, torch.Tensor]:
    tokens = torch.randint(0, 32_000, (batch_size, seq_len + 1))
    return {"input": tokens[:, :-1], "target": tokens[:, 1:]}


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = model(batch["input"])
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch["target"].flatten())


def optimizer(params):  # type: ignore[no-untyped-def]
    return torch.optim.AdamW(params, lr=3e-4, weight_decay=0.1)
