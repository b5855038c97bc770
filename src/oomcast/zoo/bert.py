"""BERT base and large (uncased), for the classification of texts and as a masked language model; dropout 0.1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import ZooModel
from .jobs import MaskedLmJob, TextClassificationJob
from .layers import FeedForward, embedding, merge_heads, split_heads

__all__ = [
    "BertClassifier",
    "BertConfig",
    "BertMaskedLm",
    "bert_base",
    "bert_base_mlm",
    "bert_large",
    "bert_large_mlm",
]

_EPS = 1e-12
_MASK_TOKEN = 103


@dataclass(frozen=True)
class BertConfig:
    width: int
    depth: int
    heads: int
    vocabulary: int = 30522
    positions: int = 512
    dropout: float = 0.1


_BASE = BertConfig(768, 12, 12)
_LARGE = BertConfig(1024, 24, 16)


class Attention(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.query = nn.Linear(config.width, config.width)
        self.key = nn.Linear(config.width, config.width)
        self.value = nn.Linear(config.width, config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (split_heads(part(x), self.heads) for part in (self.query, self.key, self.value))
        dropout = self.dropout if self.training else 0.0
        return self.out(merge_heads(F.scaled_dot_product_attention(query, key, value, mask, dropout)))


class Block(nn.Module):
    """Norms come after the sums."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.width, eps=_EPS)
        self.feed_forward = FeedForward(config.width, 4 * config.width)
        self.forward_norm = nn.LayerNorm(config.width, eps=_EPS)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, mask)))
        return self.forward_norm(x + self.dropout(self.feed_forward(x)))


class Encoder(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.words = embedding(config.vocabulary, config.width)
        self.positions = embedding(config.positions, config.width)
        self.types = embedding(2, config.width)
        self.norm = nn.LayerNorm(config.width, eps=_EPS)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.words(input_ids) + self.types(token_type_ids) + self.positions(positions)
        x = self.dropout(self.norm(x))
        mask = attention_mask[:, None, None, :].bool()
        for block in self.blocks:
            x = block(x, mask)
        return x


class BertClassifier(nn.Module):
    def __init__(self, config: BertConfig, classes: int = 2) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.pooler = nn.Sequential(nn.Linear(config.width, config.width), nn.Tanh(), nn.Dropout(config.dropout))
        self.classifier = nn.Linear(config.width, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        x = self.encoder(input_ids, attention_mask, token_type_ids)
        return self.classifier(self.pooler(x[:, 0]))


class BertMaskedLm(nn.Module):
    """The head's last layer is tied to the word embeddings and has its own bias; there is no pooler."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.transform = nn.Sequential(
            nn.Linear(config.width, config.width), nn.GELU(), nn.LayerNorm(config.width, eps=_EPS)
        )
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        x = self.transform(self.encoder(input_ids, attention_mask, token_type_ids))
        return F.linear(x, self.encoder.words.weight, self.bias)


def _classification(entry: ZooModel, config: BertConfig) -> TextClassificationJob:
    return TextClassificationJob(entry, lambda: BertClassifier(config), config.vocabulary, config.positions, classes=2)


def _masked_lm(entry: ZooModel, config: BertConfig) -> MaskedLmJob:
    return MaskedLmJob(entry, lambda: BertMaskedLm(config), config.vocabulary, config.positions, _MASK_TOKEN)


def bert_base(entry: ZooModel) -> TextClassificationJob:
    return _classification(entry, _BASE)


def bert_large(entry: ZooModel) -> TextClassificationJob:
    return _classification(entry, _LARGE)


def bert_base_mlm(entry: ZooModel) -> MaskedLmJob:
    return _masked_lm(entry, _BASE)


def bert_large_mlm(entry: ZooModel) -> MaskedLmJob:
    return _masked_lm(entry, _LARGE)
