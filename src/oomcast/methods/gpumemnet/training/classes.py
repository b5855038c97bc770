"""GPUMemNet's two estimators, fitted and judged on rows that were kept out: every fold has networks of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import BadInput
from ..artifact import ClassModel, Domain
from ..classes import Classes
from ..features import VECTOR_NAMES, LayerFeatures, feature_vector, token_vectors
from ..networks import MlpEnsemble, SequenceEnsemble
from .fitting import FitSettings, fit_mlp_ensemble, fit_sequence_ensemble

__all__ = [
    "ClassRows",
    "ClassScore",
    "fit_classes",
    "importance",
    "judge_classes",
    "judge_fitted",
    "score_classes",
    "settings_for",
]

_MIB = 1 << 20
_COVERAGE = 0.95
Progress = Callable[[], None]


@dataclass(frozen=True)
class ClassRows:
    """Networks of one kind with their memory; what was out of memory belongs to the class above the device."""

    kind: str
    features: tuple[LayerFeatures, ...]
    measured: tuple[int | None, ...]
    device: int
    """Bytes of the device, where the open class begins at the latest."""

    def labels(self, width: int) -> NDArray[np.int64]:
        top = self.classes(width) - 1
        return np.array([top if held is None else min(held // width, top) for held in self.measured], dtype=np.int64)

    def classes(self, width: int) -> int:
        """Up to the highest that has a member; one that begins where the device ends, if runs were out of memory."""
        seen = [held // width for held in self.measured if held is not None]
        ends = self.device // width if None in self.measured else 0
        return int(max([*seen, ends])) + 1

    def take(self, rows: Sequence[int]) -> ClassRows:
        return replace(
            self, features=tuple(self.features[i] for i in rows), measured=tuple(self.measured[i] for i in rows)
        )


@dataclass(frozen=True)
class ClassScore:
    """One estimator on rows it had not seen."""

    estimator: str
    kind: str
    width: int
    rows: int
    accuracy: float
    within_one: float
    """The share whose class is at most one off."""
    under: float
    """The share whose class is too low."""
    covered: float
    """The share whose class is among those that the estimator says hold 95 %."""
    confusion: tuple[tuple[int, ...], ...]
    """True classes by estimated ones."""
    judged_on: str

    @property
    def precision(self) -> float:
        """Of the rows that were put into a class, the share that belongs there; classes weigh by their members."""
        return self._weighted(lambda counts: _share(np.diag(counts), counts.sum(axis=0)))

    @property
    def recall(self) -> float:
        """Of a class's members, the share that was put there: weighed by members, that is the accuracy."""
        return self._weighted(lambda counts: _share(np.diag(counts), counts.sum(axis=1)))

    @property
    def f1(self) -> float:
        """The harmonic mean of a class's precision and recall, weighed by members."""
        return self._weighted(lambda counts: _share(2 * np.diag(counts), counts.sum(axis=0) + counts.sum(axis=1)))

    def _weighted(self, by_class: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
        counts = np.array(self.confusion, dtype=np.float64)
        return float(by_class(counts) @ counts.sum(axis=1) / max(counts.sum(), 1.0))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"precision": self.precision, "recall": self.recall, "f1": self.f1}


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros_like(part, dtype=np.float64), where=whole > 0)


def settings_for(estimator: str, seed: int) -> FitSettings:
    if estimator == "gpumemnet-mlp":
        return FitSettings(epochs=200, patience=25, seed=seed)
    return FitSettings(members=1, epochs=50, patience=10, seed=seed)


def judge_classes(
    rows: ClassRows, widths: Sequence[int], estimator: str, folds: int, seed: int, progress: Progress = lambda: None
) -> list[ClassScore]:
    """Each row by a model that was fitted without its fold."""
    probabilities: list[NDArray[np.float64]] = [np.zeros((len(rows.features), rows.classes(w))) for w in widths]
    for kept_out in _folds(len(rows.features), folds, seed):
        learnt = np.setdiff1d(np.arange(len(rows.features)), kept_out)
        model = fit_classes(rows, widths, estimator, seed, learnt.tolist())
        for place, found in zip(probabilities, _answers(model.network, rows.take(kept_out.tolist())), strict=True):
            place[kept_out] = found
        progress()
    told = f"{folds} folds"
    return [
        score_classes(estimator, rows.kind, width, rows.labels(width), found, told)
        for width, found in zip(widths, probabilities, strict=True)
    ]


def judge_fitted(model: ClassModel, rows: ClassRows, estimator: str, judged_on: str) -> list[ClassScore]:
    """Rows that had no part in the fit."""
    scores = []
    for width, found in zip(model.widths, _answers(model.network, rows), strict=True):
        labels = np.minimum(rows.labels(width), found.shape[1] - 1)
        labels = np.where([held is None for held in rows.measured], found.shape[1] - 1, labels)
        scores.append(score_classes(estimator, rows.kind, width, labels, found, judged_on))
    return scores


def importance(model: ClassModel, rows: ClassRows, seed: int) -> dict[str, float]:
    """By feature: the share of classes that is right no longer once the feature's values are exchanged among the rows.

    For the first division into classes. Features of a sequence are left as they are: what they sum to is exchanged.
    """
    labels = np.minimum(rows.labels(model.widths[0]), model.network.heads[0] - 1)
    x, drawn = _matrix(rows), np.random.default_rng(seed)

    def right(values: NDArray[np.float64]) -> float:
        return float(np.mean(_answers(model.network, rows, values)[0].argmax(axis=1) == labels))

    before, found = right(x), {}
    for place, name in enumerate(VECTOR_NAMES):
        mixed = x.copy()
        mixed[:, place] = drawn.permutation(mixed[:, place])
        found[name] = before - right(mixed)
    return found


def fit_classes(
    rows: ClassRows,
    widths: Sequence[int],
    estimator: str,
    seed: int,
    learnt: Sequence[int] | None = None,
    context: int = 0,
) -> ClassModel:
    """The classes are those of all rows, whichever of them are learnt from."""
    own = rows if learnt is None else rows.take(learnt)
    heads = [rows.classes(width) for width in widths]
    for width, classes in zip(widths, heads, strict=True):
        if classes < 2:
            raise BadInput(
                f"all {len(rows.features)} networks of the kind {rows.kind} are in one class of {width // _MIB} MiB; "
                "there is nothing to learn from a single class."
            )
    which = slice(None) if learnt is None else list(learnt)
    labels = [rows.labels(width)[which] for width in widths]
    x = _matrix(own)
    settings = settings_for(estimator, seed)
    network: MlpEnsemble | SequenceEnsemble
    if estimator == "gpumemnet-mlp":
        network = fit_mlp_ensemble(x, labels, heads, settings)
    else:
        network = fit_sequence_ensemble(_sequences(own), x, labels, heads, settings)
    kinds = tuple(sorted({kind for features in own.features for kind in features.kinds}))
    domain = Domain(kinds, tuple(map(float, x.min(axis=0))), tuple(map(float, x.max(axis=0))))
    return ClassModel(network, tuple(widths), domain, context)


def score_classes(
    estimator: str, kind: str, width: int, labels: NDArray[np.int64], found: NDArray[np.float64], judged_on: str
) -> ClassScore:
    chosen = found.argmax(axis=1)
    confusion = np.zeros((found.shape[1],) * 2, dtype=np.int64)
    np.add.at(confusion, (labels, chosen), 1)
    covered = [
        low <= label * width < high
        for label, (low, high) in zip(
            labels, (Classes(width, tuple(map(float, row))).edges(_COVERAGE) for row in found), strict=True
        )
    ]
    return ClassScore(
        estimator=estimator,
        kind=kind,
        width=width,
        rows=len(labels),
        accuracy=float(np.mean(chosen == labels)),
        within_one=float(np.mean(np.abs(chosen - labels) <= 1)),
        under=float(np.mean(chosen < labels)),
        covered=float(np.mean(covered)),
        confusion=tuple(tuple(int(count) for count in line) for line in confusion),
        judged_on=judged_on,
    )


def _answers(
    network: MlpEnsemble | SequenceEnsemble, rows: ClassRows, values: NDArray[np.float64] | None = None
) -> list[NDArray[np.float64]]:
    x = _matrix(rows) if values is None else values
    if isinstance(network, MlpEnsemble):
        return [np.asarray(of_width, dtype=np.float64) for of_width in network.probabilities(x)]
    sequences = [sequence[: network.longest] for sequence in _sequences(rows)]
    parts = [
        network.probabilities(sequences[start : start + 256], x[start : start + 256]) for start in range(0, len(x), 256)
    ]
    return [np.concatenate(of_width).astype(np.float64) for of_width in zip(*parts, strict=True)]


def _folds(rows: int, folds: int, seed: int) -> Iterator[NDArray[np.int64]]:
    if rows < 2 * folds:
        raise BadInput(f"{rows} rows are too few to keep {folds} parts of them out in turn.")
    order = np.random.default_rng(seed).permutation(rows)
    yield from np.array_split(order, folds)


def _matrix(rows: ClassRows) -> NDArray[np.float64]:
    return np.array([feature_vector(features) for features in rows.features], dtype=np.float64)


def _sequences(rows: ClassRows) -> list[NDArray[np.float64]]:
    return [np.array(token_vectors(features), dtype=np.float64) for features in rows.features]
