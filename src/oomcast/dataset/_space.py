"""What networks are drawn from: every feature with its range, the same for all architectures of a kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BadInput, UnknownName
from ._network import ARCHITECTURES, KINDS, Network

__all__ = ["ACTIVATION_NAMES", "SPACE", "Choice", "Feature", "Range", "Stratum", "make_network", "strata", "value_of"]

ACTIVATION_NAMES = (
    "relu",
    "leaky_relu",
    "prelu",
    "elu",
    "selu",
    "gelu",
    "tanh",
    "swish",
    "softplus",
    "mish",
    "identity",
)


@dataclass(frozen=True)
class Range:
    """Whole numbers from `low` to `high`, `step` apart, each as likely as the others."""

    name: str
    low: int
    high: int
    step: int = 1

    @property
    def count(self) -> int:
        return (self.high - self.low) // self.step + 1

    def at(self, place: float) -> int:
        """The value at a place from 0 to 1, without 1."""
        return self.low + self.step * int(place * self.count)

    def place(self, value: int) -> float:
        """The middle of the places that give it."""
        return ((value - self.low) / self.step + 0.5) / self.count


@dataclass(frozen=True)
class Choice:
    """Values without an order that matters, each as likely as the others."""

    name: str
    values: tuple[Any, ...]

    @property
    def count(self) -> int:
        return len(self.values)

    def at(self, place: float) -> Any:
        return self.values[int(place * self.count)]

    def place(self, value: Any) -> float:
        return (self.values.index(value) + 0.5) / self.count


Feature = Range | Choice
_DROPOUT_RATES = (0.1, 0.2, 0.3, 0.4, 0.5)
_COMMON: tuple[Feature, ...] = (
    Choice("activation", ACTIVATION_NAMES),
    Choice("batch_norm", (False, True)),
    Choice("dropout", (False, True)),
    Range("output_size", 2, 1000),
)
SPACE: Mapping[str, tuple[Feature, ...]] = {
    "mlp": (
        *_COMMON,
        Range("input_size", 16, 4096),
        Range("depth", 1, 12),
        Range("width", 16, 8192),
        Range("batch_size", 4, 1024),
    ),
    "cnn": (
        *_COMMON,
        Choice("channels", (1, 3)),
        Range("input_size", 16, 224),
        Range("depth", 4, 24),
        Range("width", 16, 128),
        Range("batch_size", 2, 64),
    ),
    "transformer": (
        *_COMMON,
        Range("input_size", 16, 512),
        Range("depth", 1, 12),
        Range("width", 64, 1024, 64),
        Range("hidden", 64, 4096),
        Choice("heads", (2, 4, 8, 16)),
        Range("vocabulary", 1000, 100_000),
        Range("batch_size", 2, 128),
    ),
}


@dataclass(frozen=True)
class Stratum:
    """A part of the space that gets its own share of the rows."""

    kind: str
    architecture: str

    @property
    def name(self) -> str:
        return f"{self.kind} {self.architecture}"


def strata(kinds: Iterable[str] = (), architectures: Iterable[str] = ()) -> tuple[Stratum, ...]:
    """Every kind with every architecture; all of them where none is named."""
    chosen_kinds = _known("kind of network", kinds, KINDS)
    chosen = _known("architecture", architectures, ARCHITECTURES)
    return tuple(Stratum(kind, architecture) for architecture in chosen for kind in chosen_kinds)


def _known(what: str, names: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    wanted = tuple(names)
    for name in wanted:
        if name not in known:
            raise UnknownName(what, name, known, f"There are {', '.join(known)}.")
    if len(set(wanted)) < len(wanted):
        raise BadInput(f"each {what} can be named once, not {' '.join(wanted)}.")
    return tuple(name for name in known if name in wanted) if wanted else tuple(known)


def make_network(stratum: Stratum, places: Sequence[float]) -> Network:
    """The network at a point of the unit cube: one place for each feature, and one for the rate of dropout."""
    *of_features, of_rate = places
    features = SPACE[stratum.kind]
    values: dict[str, Any] = {
        feature.name: feature.at(place) for feature, place in zip(features, of_features, strict=True)
    }
    rate = _DROPOUT_RATES[int(of_rate * len(_DROPOUT_RATES))]
    values["dropout"] = rate if values["dropout"] else None
    return Network(stratum.kind, stratum.architecture, **values)


def value_of(network: Network, feature: Feature) -> Any:
    """As the feature counts it: of dropout, whether there is any."""
    value = getattr(network, feature.name)
    return value is not None if feature.name == "dropout" else value
