"""From rows to trained estimators: `oomcast dataset train`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....devices import find_gpu
from ....errors import BadInput
from ..artifact import Artifact, ClassModel, ResidualModel
from ..estimators import GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER
from ..residual import CLASS_WIDTHS
from .classes import ClassRows, ClassScore, fit_classes, importance, judge_classes
from .residual import LEARNERS, Summary, fit_residual, keep_rows_out, least_groups, summarise
from .rows import LEAST_ROWS, RUNS, LearningRow, SimulatedRow, context_of

__all__ = [
    "WIDTHS",
    "Training",
    "class_widths",
    "render_scores",
    "render_summaries",
    "render_training",
    "train_estimators",
]

MIB = 1 << 20
WIDTHS: Mapping[str, tuple[int, ...]] = {"mlp": (1000, 2000), "cnn": (8000, 2000, 1000), "transformer": (8000, 2000)}
"""MiB of a class, by the networks' kind; the first is what the estimate is made from. GPUMemNet's GB are 1000 MiB."""
ESTIMATORS = (GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER)
_CPU = "cpu"
_ONE_OF_EACH = ("device", "environment", "optimizer", "precision")
_TOLD_FEATURES = 5
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Training:
    """What was learnt, and how well on rows that were kept out."""

    artifact: Artifact
    classes: tuple[ClassScore, ...]
    summaries: tuple[Summary, ...]
    """Of the residual over the simulator, where there were measured runs."""
    importance: Mapping[str, Mapping[str, float]]
    """By the networks' kind, what a feature is worth to gpumemnet-mlp: the share of classes that is lost without it."""
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "trained": dict(self.artifact.trained),
            "classes": [score.as_dict() for score in self.classes],
            "learned": [summary.as_dict() for summary in self.summaries],
            "importance": {kind: dict(values) for kind, values in self.importance.items()},
            "notes": list(self.notes),
        }


def train_estimators(
    rows: Sequence[LearningRow],
    *,
    widths: Sequence[int] | None = None,
    folds: int = 4,
    seed: int = 0,
    estimators: Sequence[str] = ESTIMATORS,
    on_progress: Progress = lambda what, done, total: None,
) -> Training:
    """GPUMemNet's classifiers for every kind of networks with enough rows; from measured runs the residual too.

    `widths`: MiB of a class, the first one makes the estimate. Rows must be of one device, environment, optimizer and
    precision: the features do not tell these apart.
    """
    _check_alike(rows)
    if folds < 2:
        raise BadInput(f"at least 2 folds are needed, not {folds}.")
    data, notes = _class_rows(rows)
    measured = [found for found in (row.simulated() for row in rows) if found is not None]
    scores: list[ClassScore] = []
    models: dict[str, dict[str, ClassModel]] = {estimator: {} for estimator in estimators}
    worth: dict[str, Mapping[str, float]] = {}
    done, total = 0, len(estimators) * len(data) * (folds + 1)

    def step() -> None:
        nonlocal done
        done += 1
        on_progress("networks", done, total)

    for kind, own in data.items():
        chosen = class_widths(own, widths or WIDTHS[kind], notes)
        context = context_of([row for row in rows if row.kind == kind])
        for estimator in estimators:
            scores += judge_classes(own, chosen, estimator, folds, seed, step)
            models[estimator][kind] = fit_classes(own, chosen, estimator, seed, context=context)
            step()
        if GPUMEMNET_MLP in models:
            worth[kind] = importance(models[GPUMEMNET_MLP][kind], own, seed)
    residual, summaries = _residual(measured, folds, seed, notes, on_progress)
    artifact = Artifact(models, residual, _trained(rows, list(data), len(measured) if residual else 0, seed))
    return Training(artifact, tuple(scores), tuple(summaries), worth, tuple(notes))


def class_widths(rows: ClassRows, widths: Sequence[int], notes: list[str]) -> list[int]:
    """Bytes of those classes that tell rows apart; classes without a member are noted."""
    found = [width * MIB for width in widths if rows.classes(width * MIB) > 1]
    if not found:
        raise BadInput(
            f"all {len(rows.features)} networks of the kind {rows.kind} are in one class of {max(widths)} MiB: there "
            "is nothing to learn; narrower classes (--class-width) tell them apart."
        )
    for width in found:
        missing = sorted(set(range(rows.classes(width))) - set(rows.labels(width).tolist()))
        if missing:
            notes.append(f"{rows.kind}, {width // MIB} MiB: no network in class {', '.join(map(str, missing))}.")
    return found


def _check_alike(rows: Sequence[LearningRow]) -> None:
    for name in _ONE_OF_EACH:
        seen = sorted({str(getattr(row, name)) for row in rows})
        if len(seen) > 1:
            more = ", or choose one by --device" if name == "device" else ""
            raise BadInput(
                f"these rows are of {len(seen)} {name}s ({', '.join(seen)}), which their features do not tell apart: "
                f"train an artifact for each{more}."
            )


def _class_rows(rows: Sequence[LearningRow]) -> tuple[dict[str, ClassRows], list[str]]:
    by_kind: dict[str, list[LearningRow]] = {}
    for row in rows:
        by_kind.setdefault(row.kind, []).append(row)
    enough = {kind: own for kind, own in sorted(by_kind.items()) if len(own) >= LEAST_ROWS}
    counts = ", ".join(f"{len(own)} {kind}" for kind, own in sorted(by_kind.items()))
    if not enough:
        raise BadInput(
            f"too few rows of one kind of networks to learn from ({counts or 'none'}): at least {LEAST_ROWS} are "
            "needed; oomcast dataset build FILE --rows 200 --kinds KIND makes more."
        )
    notes = [
        f"{len(own)} networks of the kind {kind} are too few to learn from, at least {LEAST_ROWS} are needed."
        for kind, own in sorted(by_kind.items())
        if kind not in enough
    ]
    device = rows[0].device
    usable = max((row.held or 0 for row in rows), default=0) if device == _CPU else find_gpu(device).usable_memory
    return {
        kind: ClassRows(kind, tuple(row.layers for row in own), tuple(row.held for row in own), usable)
        for kind, own in enough.items()
    }, notes


def _residual(
    rows: Sequence[SimulatedRow], folds: int, seed: int, notes: list[str], on_progress: Progress
) -> tuple[ResidualModel | None, list[Summary]]:
    if not rows:
        notes.append("No measured run on a GPU: nothing is learnt for the estimator learned, which corrects by them.")
        return None, []
    known = sum(row.measured is not None for row in rows)
    if known < least_groups():
        notes.append(
            f"{known} measured runs on a GPU are too few for the estimator learned: it takes {least_groups()}."
        )
        return None, []
    shipped = next(iter(LEARNERS))
    kept = keep_rows_out(rows, folds, seed, [shipped], lambda: on_progress("residual", 1, 1))
    model, _ = fit_residual(rows, kept, seed)
    fits, widths = [row.fits for row in rows], [width // MIB for width in CLASS_WIDTHS]
    plain = [float(row.simulated) for row in rows]
    corrected = [row.simulated * float(factor) for row, factor in zip(rows, np.exp(kept.medians[shipped]), strict=True)]
    return model, [
        *summarise("simulator", rows, plain, fits, widths, "nothing is learnt"),
        *summarise("learned", rows, corrected, fits, widths, f"{folds} folds of rows"),
    ]


def _trained(rows: Sequence[LearningRow], kinds: Sequence[str], measured: int, seed: int) -> dict[str, Any]:
    """What the estimators know: written into the artifact, asked at every estimate."""
    first = rows[0]
    alike = {
        "devices": [first.device],
        "environments": [first.environment],
        "optimizers": [first.optimizer],
        "precisions": [first.precision],
    }
    told: dict[str, Any] = {
        kind: {
            "rows": sum(row.kind == kind for row in rows),
            "measured": sum(row.kind == kind and row.source == RUNS for row in rows),
            **alike,
        }
        for kind in kinds
    }
    if measured:
        told["residual"] = {"rows": measured, **alike}
    if first.device == _CPU:
        told["memory"] = max(row.memory for row in rows) or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    names = [[row.name, row.held] for row in rows]
    digest = hashlib.blake2b(json.dumps([told, names, seed], sort_keys=True).encode(), digest_size=4).hexdigest()
    return told | {"id": f"own-{len(rows)}-{measured}-{digest}"}


def render_training(training: Training) -> str:
    lines = list(render_scores(training.classes))
    for kind, values in training.importance.items():
        best = sorted(values.items(), key=lambda item: -item[1])[:_TOLD_FEATURES]
        lines.append(
            f"What gpumemnet-mlp looks at most ({kind}; share of classes lost without it): "
            + ", ".join(f"{name} {share:.2f}" for name, share in best)
        )
    return "\n".join([*lines, *render_summaries(training.summaries), *training.notes])


def render_scores(scores: Sequence[ClassScore]) -> list[str]:
    heads = (
        f"{'MiB':>5} {'rows':>6} {'right':>6} {'prec.':>6} {'recall':>6} {'F1':>6} {'±1':>6} {'low':>6} {'in 95 %':>8}"
    )
    lines = [
        "Classes, each row by a model that had not seen it (precision, recall and F1 weighed by the classes' members):",
        f"  {'estimator':22} {'networks':12} {heads}  judged on",
    ]
    for score in scores:
        values = (score.accuracy, score.precision, score.recall, score.f1, score.within_one, score.under)
        lines.append(
            f"  {score.estimator:22} {score.kind:12} {score.width // MIB:5d} {score.rows:6d} "
            f"{' '.join(f'{value:6.3f}' for value in values)} {score.covered:8.3f}  {score.judged_on}"
        )
    return lines


def render_summaries(summaries: Sequence[Summary]) -> list[str]:
    """By data set, the estimators beneath each other."""
    widths = sorted({width for summary in summaries for width in summary.classes})
    heads = " ".join(f"{f'{width} MiB':>9}" for width in widths)
    lines = []
    for data in sorted({summary.data for summary in summaries}):
        own = [summary for summary in summaries if summary.data == data]
        lines += ["", f"{data}, {own[0].rows} rows:"]
        lines.append(f"  {'estimator':26} {'MRE':>7} {'p90':>7} {'under':>6} {heads}  judged on")
        for summary in own:
            classes = " ".join(f"{summary.classes[width]:9.3f}" for width in widths)
            lines.append(
                f"  {summary.estimator:26} {summary.mre:7.2%} {summary.p90:7.1%} {summary.under:6.0%} {classes}  "
                f"{summary.judged_on}"
            )
    return lines
