"""The GPT-2 of rasbt/LLMs-from-scratch, chapter 10's training speed examples, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Gpt"]

WIDTH, LAYERS, HEADS, DROPOUT = 768, 12, 12, 0.1


class _LayerNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.eps = 1e-5
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=-1, keepdim=True)
        var = x.var(dim=-1, keepdim=True, unbiased=False)
        norm_x = (x - mean) / torch.sqrt(var + self.eps)
        return self.scale * norm_x + self.shift


class _Gelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(torch.sqrt(torch.tensor(2.0 / torch.pi)) * (x + 0.044715 * torch.pow(x, 3))))


class _Attention(nn.Module):
    mask: Tensor

    def __init__(self, length: int, mask_buffer: bool) -> None:
        super().__init__()
        self.W_query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.W_key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.W_value = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out_proj = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.mask_buffer = mask_buffer
        if mask_buffer:
            self.register_buffer("mask", torch.triu(torch.ones(length, length), diagonal=1))

    def forward(self, x: Tensor) -> Tensor:
        b, tokens, _ = x.shape
        keys = self.W_key(x)
        queries = self.W_query(x)
        values = self.W_value(x)
        keys = keys.view(b, tokens, HEADS, WIDTH // HEADS)
        values = values.view(b, tokens, HEADS, WIDTH // HEADS)
        queries = queries.view(b, tokens, HEADS, WIDTH // HEADS)
        keys = keys.transpose(1, 2)
        queries = queries.transpose(1, 2)
        values = values.transpose(1, 2)
        attn_scores = queries @ keys.transpose(2, 3)
        if self.mask_buffer:
            mask_bool = self.mask.bool()[:tokens, :tokens]
        else:
            mask_bool = torch.triu(torch.ones(tokens, tokens, device=x.device), diagonal=1).bool()
        attn_scores.masked_fill_(mask_bool, -torch.inf)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        attn_weights = self.dropout(attn_weights)
        context_vec = (attn_weights @ values).transpose(1, 2)
        context_vec = context_vec.contiguous().view(b, tokens, WIDTH)
        return self.out_proj(context_vec)


class _Block(nn.Module):
    def __init__(self, length: int, own_layers: bool, mask_buffer: bool) -> None:
        super().__init__()
        norm = _LayerNorm if own_layers else nn.LayerNorm
        gelu = _Gelu() if own_layers else nn.GELU(approximate="tanh")
        self.att = _Attention(length, mask_buffer)
        self.ff = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), gelu, nn.Linear(4 * WIDTH, WIDTH))
        self.norm1 = norm(WIDTH)
        self.norm2 = norm(WIDTH)
        self.drop_shortcut = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.norm1(x)
        x = self.att(x)
        x = self.drop_shortcut(x)
        x = x + shortcut
        shortcut = x
        x = self.norm2(x)
        x = self.ff(x)
        x = self.drop_shortcut(x)
        return x + shortcut


class Gpt(nn.Module):
    def __init__(self, vocabulary: int, length: int, own_layers: bool, mask_buffer: bool) -> None:
        super().__init__()
        norm = _LayerNorm if own_layers else nn.LayerNorm
        self.tok_emb = nn.Embedding(vocabulary, WIDTH)
        self.pos_emb = nn.Embedding(length, WIDTH)
        self.drop_emb = nn.Dropout(DROPOUT)
        self.trf_blocks = nn.Sequential(*(_Block(length, own_layers, mask_buffer) for _ in range(LAYERS)))
        self.final_norm = norm(WIDTH)
        self.out_head = nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        _, length = tokens.shape
        embedded = self.tok_emb(tokens)
        positions = self.pos_emb(torch.arange(length, device=tokens.device))
        x = embedded + positions
        x = self.drop_emb(x)
        x = self.trf_blocks(x)
        x = self.final_norm(x)
        return self.out_head(x)
