"""Fits the classifiers in plain torch: seeded, stopped early on rows kept out, every network made anew."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ..networks import Arrays, Floats, MlpEnsemble, SequenceEnsemble, pad_sequences

__all__ = ["FitSettings", "fit_mlp_ensemble", "fit_sequence_ensemble"]

Labels = NDArray[np.int64]
_NEVER_VARIED = 1e30


@dataclass(frozen=True)
class FitSettings:
    members: int = 5
    hidden: tuple[int, ...] = (48, 24)
    width: int = 16
    """Of a Transformer's tokens."""
    layers: int = 1
    attention_heads: int = 2
    epochs: int = 300
    patience: int = 30
    """Epochs without a better loss on the rows kept out before it stops."""
    batch_size: int = 128
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    kept_out: float = 0.15
    """The share of the rows that decides when to stop."""
    longest: int = 128
    seed: int = 0


def fit_mlp_ensemble(
    x: Floats,
    labels: Sequence[Labels],
    heads: Sequence[int],
    settings: FitSettings = FitSettings(),  # noqa: B008 (frozen)
    on_epoch: Callable[[], None] = lambda: None,
) -> MlpEnsemble:
    """`labels` has the classes of all rows for every head."""
    _check(x, labels, heads)
    generator = torch.Generator().manual_seed(settings.seed)
    mean, scale = _scaling(x)
    values = torch.from_numpy(((x - mean) / scale).astype(np.float32))
    targets = [torch.from_numpy(np.asarray(label, dtype=np.int64)) for label in labels]
    network = _Mlps((x.shape[1], *settings.hidden, sum(heads)), settings.members, generator)
    training, watched = _parted(len(x), settings, generator)

    def losses(rows: Tensor) -> Tensor:
        return _losses(network(values[rows]), [target[rows] for target in targets], heads)

    best = _descend(network, losses, training, watched, settings, generator, on_epoch)
    layers = tuple((_plain(best[f"weights.{n}"]), _plain(best[f"biases.{n}"])) for n in range(len(settings.hidden) + 1))
    return MlpEnsemble(mean, scale, layers, tuple(heads))


def fit_sequence_ensemble(
    sequences: Sequence[Floats],
    x: Floats,
    labels: Sequence[Labels],
    heads: Sequence[int],
    settings: FitSettings = FitSettings(),  # noqa: B008 (frozen)
    on_epoch: Callable[[], None] = lambda: None,
) -> SequenceEnsemble:
    """Sequences longer than `settings.longest` are cut; what they sum to is among the features beside."""
    _check(x, labels, heads)
    members = [
        _fit_sequence(sequences, x, labels, heads, settings, settings.seed + member, on_epoch)
        for member in range(settings.members)
    ]
    arrays: Arrays = {name: np.stack([member[name] for member in members]) for name in members[0]}
    return SequenceEnsemble(arrays, settings.attention_heads, tuple(heads))


def _fit_sequence(
    sequences: Sequence[Floats],
    x: Floats,
    labels: Sequence[Labels],
    heads: Sequence[int],
    settings: FitSettings,
    seed: int,
    on_epoch: Callable[[], None],
) -> dict[str, NDArray[np.float32]]:
    generator = torch.Generator().manual_seed(seed)
    cut = [sequence[: settings.longest] for sequence in sequences]
    mean, scale = _scaling(x)
    token_mean, token_scale = _scaling(np.concatenate(cut))
    block, present = pad_sequences([((sequence - token_mean) / token_scale).astype(np.float32) for sequence in cut])
    tokens, mask = torch.from_numpy(block), torch.from_numpy(present)
    lengths = mask.sum(dim=1)
    side = torch.from_numpy(((x - mean) / scale).astype(np.float32))
    targets = [torch.from_numpy(np.asarray(label, dtype=np.int64)) for label in labels]
    network = _Encoder(block.shape[2], x.shape[1], sum(heads), settings, generator)
    training, watched = _parted(len(x), settings, generator)

    def losses(rows: Tensor) -> Tensor:
        longest = int(lengths[rows].max())
        logits = network(tokens[rows, :longest], mask[rows, :longest], side[rows])
        return _losses(logits[None], [target[rows] for target in targets], heads)

    best = _descend(network, losses, training, watched, settings, generator, on_epoch, lengths)
    arrays = {name: _plain(value) for name, value in best.items()}
    return arrays | {"mean": mean, "scale": scale, "token_mean": token_mean, "token_scale": token_scale}


class _Mlps(nn.Module):
    """All members at once: their weights are the slices of one tensor."""

    def __init__(self, widths: Sequence[int], members: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for inputs, outputs in itertools.pairwise(widths):
            drawn = torch.randn(members, inputs, outputs, generator=generator)
            self.weights.append(nn.Parameter(drawn * math.sqrt(2 / inputs)))
            self.biases.append(nn.Parameter(torch.zeros(members, 1, outputs)))

    def forward(self, x: Tensor) -> Tensor:
        values = x[None]
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = values @ weight + bias
            if number < len(self.weights) - 1:
                values = values.relu()
        return values


class _Encoder(nn.Module):
    def __init__(
        self, tokens: int, features: int, outputs: int, settings: FitSettings, generator: torch.Generator
    ) -> None:
        super().__init__()
        width, hidden = settings.width, settings.hidden[-1]
        self.attention_heads, self.layers = settings.attention_heads, settings.layers

        def dense(name: str, inputs: int, outputs: int, end: str = "") -> None:
            drawn = torch.randn(inputs, outputs, generator=generator) / math.sqrt(inputs)
            self.register_parameter(f"{name}_weight{end}", nn.Parameter(drawn))
            self.register_parameter(f"{name}_bias{end}", nn.Parameter(torch.zeros(outputs)))

        dense("embed", tokens, width)
        self.position = nn.Parameter(torch.randn(settings.longest, width, generator=generator) * 0.02)
        for layer in range(settings.layers):
            for name in ("query", "key", "value", "out"):
                dense(name, width, width, str(layer))
            dense("up", width, 2 * width, str(layer))
            dense("down", 2 * width, width, str(layer))
            for name in (f"norm1_{layer}", f"norm2_{layer}"):
                self.register_parameter(f"{name}_weight", nn.Parameter(torch.ones(width)))
                self.register_parameter(f"{name}_bias", nn.Parameter(torch.zeros(width)))
        dense("hidden", width + features, 2 * hidden)
        dense("head", 2 * hidden, outputs)

    def forward(self, tokens: Tensor, mask: Tensor, side: Tensor) -> Tensor:
        values = self._dense("embed", tokens * mask[..., None]) + self.position[: tokens.shape[1]]
        for layer in range(self.layers):
            values = values + self._attention(layer, self._normed(values, f"norm1_{layer}"), mask)
            inner = self._dense("up", self._normed(values, f"norm2_{layer}"), str(layer)).relu()
            values = values + self._dense("down", inner, str(layer))
        pooled = (values * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)
        hidden = self._dense("hidden", torch.cat([pooled, side], dim=1)).relu()
        return self._dense("head", hidden)

    def _dense(self, name: str, values: Tensor, end: str = "") -> Tensor:
        return values @ self.get_parameter(f"{name}_weight{end}") + self.get_parameter(f"{name}_bias{end}")

    def _normed(self, values: Tensor, name: str) -> Tensor:
        weight, bias = self.get_parameter(f"{name}_weight"), self.get_parameter(f"{name}_bias")
        return functional.layer_norm(values, values.shape[-1:], weight, bias)

    def _attention(self, layer: int, values: Tensor, mask: Tensor) -> Tensor:
        rows, length, width = values.shape
        query, key, value = (
            self._dense(name, values, str(layer)).view(rows, length, self.attention_heads, -1).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
        return self._dense("out", mixed.transpose(1, 2).reshape(rows, length, width), str(layer))


def _losses(logits: Tensor, targets: Sequence[Tensor], heads: Sequence[int]) -> Tensor:
    """One for each member: cross entropy, the heads summed."""
    total = torch.zeros(logits.shape[0])
    for part, target in zip(torch.split(logits, list(heads), dim=-1), targets, strict=True):
        members, rows, classes = part.shape
        own = functional.cross_entropy(part.reshape(-1, classes), target.repeat(members), reduction="none").view(
            members, rows
        )
        total = total + own.mean(dim=1)
    return total


def _descend(
    network: nn.Module,
    losses: Callable[[Tensor], Tensor],
    training: Tensor,
    watched: Tensor,
    settings: FitSettings,
    generator: torch.Generator,
    on_epoch: Callable[[], None],
    lengths: Tensor | None = None,
) -> dict[str, Tensor]:
    """The parameters with the lowest loss on the watched rows; of members side by side, each at its own best."""
    # Networks this small gain nothing from more threads, and lose much where cores are shared.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _best(network, losses, training, watched, settings, generator, on_epoch, lengths)
    finally:
        torch.set_num_threads(threads)


def _best(
    network: nn.Module,
    losses: Callable[[Tensor], Tensor],
    training: Tensor,
    watched: Tensor,
    settings: FitSettings,
    generator: torch.Generator,
    on_epoch: Callable[[], None],
    lengths: Tensor | None,
) -> dict[str, Tensor]:
    optimizer = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.epochs)
    best: dict[str, Tensor] = {}
    lowest = torch.full((1,), math.inf)
    since = 0
    for _ in range(settings.epochs):
        network.train()
        for rows in _batches(training, settings.batch_size, generator, lengths):
            optimizer.zero_grad()
            losses(rows).sum().backward()
            optimizer.step()
        schedule.step()
        on_epoch()
        with torch.no_grad():
            found = losses(watched)
        better = found < lowest - 1e-4
        lowest = torch.where(better, found, lowest.expand_as(found))
        best = _kept(best, network, better)
        since = 0 if bool(better.any()) else since + 1
        if since >= settings.patience:
            break
    return best


def _kept(best: dict[str, Tensor], network: nn.Module, better: Tensor) -> dict[str, Tensor]:
    now = {name: value.detach().clone() for name, value in network.named_parameters()}
    if not best or len(better) == 1:
        return now if not best or bool(better.all()) else best
    return {
        name: torch.where(better.view(-1, *[1] * (value.dim() - 1)), value, best[name]) for name, value in now.items()
    }


def _batches(training: Tensor, size: int, generator: torch.Generator, lengths: Tensor | None) -> Iterator[Tensor]:
    """In random order; sequences of like length together, so that little is padded."""
    order = training[torch.randperm(len(training), generator=generator)]
    if lengths is None:
        yield from torch.split(order, size)
        return
    noisy = lengths[order] + torch.rand(len(order), generator=generator) * 8
    parts = torch.split(order[noisy.argsort()], size)
    for number in torch.randperm(len(parts), generator=generator).tolist():
        yield parts[number]


def _parted(rows: int, settings: FitSettings, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows to learn from, and rows that say when to stop; very few rows are both."""
    order = torch.randperm(rows, generator=generator)
    count = round(rows * settings.kept_out)
    return (order[count:], order[:count]) if count >= 2 else (order, order)


def _scaling(x: Floats) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A feature that was the same in every row taught nothing: whatever it is later, it is read as that value."""
    mean, scale = x.mean(axis=0), x.std(axis=0)
    return mean.astype(np.float32), np.where(scale > 1e-6, scale, _NEVER_VARIED).astype(np.float32)


def _plain(value: Tensor) -> NDArray[np.float32]:
    return np.asarray(value.numpy(), dtype=np.float32)


def _check(x: Floats, labels: Sequence[Labels], heads: Sequence[int]) -> None:
    if len(labels) != len(heads):
        raise ValueError(f"{len(labels)} divisions into classes for {len(heads)} heads")
    for label, classes in zip(labels, heads, strict=True):
        if len(label) != len(x) or not len(x):
            raise ValueError(f"{len(label)} classes for {len(x)} rows")
        if label.min() < 0 or label.max() >= classes:
            raise ValueError(f"a class is not one of the {classes}")
    if not np.isfinite(x).all():
        raise ValueError("a feature is not a finite number")
