"""Vision transformers on patches of 16 pixels, with a class token and learned positions; no dropout."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .catalogue import ZooModel
from .inputs import Grid
from .jobs import GridJob, image_classification
from .layers import PreNormBlock

__all__ = ["ViT", "vit_b_16", "vit_l_16", "vit_s_16", "vit_t_16"]


class ViT(nn.Module):
    def __init__(
        self, width: int, depth: int, heads: int, image: int = 224, patch: int = 16, classes: int = 1000
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 1 + (image // patch) ** 2, width))
        self.blocks = nn.Sequential(
            *(PreNormBlock(width, heads, dropout=0.0, causal=False, eps=1e-6) for _ in range(depth))
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.classifier(self.norm(self.blocks(x))[:, 0])


def _job(entry: ZooModel, width: int, depth: int, heads: int) -> GridJob:
    return image_classification(entry, lambda: ViT(width, depth, heads), Grid(fixed=True))


def vit_t_16(entry: ZooModel) -> GridJob:
    return _job(entry, width=192, depth=12, heads=3)


def vit_s_16(entry: ZooModel) -> GridJob:
    return _job(entry, width=384, depth=12, heads=6)


def vit_b_16(entry: ZooModel) -> GridJob:
    return _job(entry, width=768, depth=12, heads=12)


def vit_l_16(entry: ZooModel) -> GridJob:
    return _job(entry, width=1024, depth=24, heads=16)
