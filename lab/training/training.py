"""From the files of measured runs to the trained estimators, their scores and pictures."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oomcast.devices import context_bytes, find_gpu, find_stack
from oomcast.errors import BadInput
from oomcast.methods.gpumemnet import Artifact, read_artifact, write_artifact
from oomcast.methods.gpumemnet.artifact import ClassModel, ResidualModel
from oomcast.methods.gpumemnet.classes import classes_of
from oomcast.methods.gpumemnet.estimators import GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER
from oomcast.methods.gpumemnet.features import feature_vector
from oomcast.methods.gpumemnet.training.classes import ClassRows, ClassScore, fit_classes, judge_classes, judge_fitted
from oomcast.methods.gpumemnet.training.residual import (
    LEARNERS,
    Summary,
    fit_residual,
    keep_groups_out,
    keep_rows_out,
    summarise,
)
from oomcast.methods.gpumemnet.training.rows import SimulatedRow
from oomcast.methods.gpumemnet.training.train import WIDTHS, class_widths, render_scores, render_summaries

from ..accuracy import default_folder
from ..accuracy.gpumemnet_rows import GPU, STACK
from .pictures import confusion_picture, points_picture, principal_components, t_sne
from .rows import REAL, MeasuredRow, read_measured, simulate_cases, simulate_rows
from .transformers import draw_transformers

__all__ = ["ARTIFACT_NAME", "TrainingReport", "judge_artifact", "judge_class_models", "render", "train"]

ARTIFACT_NAME = "learned.bin"
_SUMMARY_WIDTHS = (1000, 2000, 8000)
_ESTIMATORS = (GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER)
_PICTURE_ROWS = 1500
_ROWS = 120
"""Runs of each file to capture: they take most of the time."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class TrainingReport:
    """What was reached on rows that were kept out, and where everything is."""

    artifact: Path
    bytes: int
    seconds: float
    classes: tuple[ClassScore, ...]
    summaries: tuple[Summary, ...]
    """By estimator and data set."""
    interval: Mapping[str, Any]
    pictures: tuple[Path, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        plain = asdict(self) | {"classes": [one.as_dict() for one in self.classes]}
        return plain | {"artifact": self.artifact.name, "pictures": [path.name for path in self.pictures]}


def train(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    rows: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    seed: int = 0,
    folds: int = 4,
    transformers: int = 60,
    processes: int = 1,
    accept_stale: bool = False,
    on_progress: Progress = lambda name, done, total: None,
) -> TrainingReport:
    """Train every learned estimator from the files in `folder`; write artifact, report and pictures to `out`.

    At most `rows` runs of each file (120 if not said) are captured for the simulator's features. Captures are kept in
    `cache`. `transformers` are drawn and labelled by the simulator, since GPUMemNet's file of them is small.
    """
    source, place = Path(folder), Path(out)
    kept = default_folder() if cache is None else Path(cache)
    if not source.is_dir():
        raise BadInput(f"there is no folder {str(source)!r} with measurements.")
    if rows is not None and rows < 1:
        raise BadInput(f"the number of rows must be at least 1, not {rows}.")
    if folds < 2:
        raise BadInput(f"at least 2 folds are needed, not {folds}.")
    started = time.perf_counter()
    place.mkdir(parents=True, exist_ok=True)
    measured = read_measured(source)
    simulated = simulate_rows(
        source, rows or _ROWS, kept, processes=processes, accept_stale=accept_stale, on_row=on_progress
    )
    drawn = simulate_cases(
        draw_transformers(transformers, seed), kept, processes=processes, accept_stale=accept_stale, on_row=on_progress
    )
    data = _class_rows(measured, simulated, drawn)
    scores, models, notes = _classes(data, simulated, folds, seed, on_progress)
    residual, summaries, told = _residual(simulated, folds, seed, on_progress)
    summaries += judge_class_models(models, simulated, _SUMMARY_WIDTHS)
    artifact = Artifact(models, residual, _trained(data, simulated, seed))
    path = write_artifact(artifact, place / ARTIFACT_NAME)
    pictures = _pictures(place, data, scores, seed, on_progress)
    report = TrainingReport(
        artifact=path,
        bytes=path.stat().st_size,
        seconds=round(time.perf_counter() - started, 1),
        classes=tuple(scores),
        summaries=tuple(summaries),
        interval=told,
        pictures=tuple(pictures),
        notes=tuple(notes),
    )
    (place / "report.json").write_text(json.dumps(report.as_dict(), indent=1), encoding="utf-8")
    return report


def render(report: TrainingReport) -> str:
    told = report.interval
    lines = [
        *render_scores(report.classes),
        *render_summaries(report.summaries),
        "",
        f"One-sided 95 % bound of learned, groups left out: {told['not_exceeded_by_group']:.1%} of {told['groups']} "
        f"groups, {told['not_exceeded_by_row']:.1%} of {told['rows']} rows; mean headroom {told['mean_headroom']:.1%}.",
        *report.notes,
        f"{report.artifact}: {report.bytes / 2**10:.0f} KiB, {len(report.pictures)} pictures beside it; "
        f"{report.seconds:.0f} s.",
    ]
    return "\n".join(lines)


def _class_rows(
    measured: Sequence[MeasuredRow], simulated: Sequence[SimulatedRow], drawn: Sequence[SimulatedRow]
) -> dict[str, ClassRows]:
    """MLPs and CNNs as measured; Transformers as the simulator labels them."""
    device = find_gpu(GPU).usable_memory
    found = {}
    for kind in ("mlp", "cnn"):
        own = [row for row in measured if row.kind == kind]
        if own:
            found[kind] = ClassRows(kind, tuple(r.features for r in own), tuple(r.measured for r in own), device)
    if drawn:
        labels = tuple(row.simulated if row.fits else None for row in drawn)
        found["transformer"] = ClassRows("transformer", tuple(row.layers for row in drawn), labels, device)
    return found


def _classes(
    data: Mapping[str, ClassRows], simulated: Sequence[SimulatedRow], folds: int, seed: int, on_progress: Progress
) -> tuple[list[ClassScore], dict[str, dict[str, ClassModel]], list[str]]:
    scores: list[ClassScore] = []
    notes: list[str] = []
    models: dict[str, dict[str, ClassModel]] = {estimator: {} for estimator in _ESTIMATORS}
    total = len(_ESTIMATORS) * len(data) * (folds + 1)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        on_progress("networks", done, total)

    for kind, rows in data.items():
        widths = class_widths(rows, WIDTHS[kind], notes)
        for estimator in _ESTIMATORS:
            scores += judge_classes(rows, widths, estimator, folds, seed, step)
            model = fit_classes(rows, widths, estimator, seed, context=_context(kind))
            models[estimator][kind] = model
            real = [row for row in simulated if row.data == "gpumemnet_transformer"]
            if kind == "transformer" and real:
                own = ClassRows(kind, tuple(r.layers for r in real), tuple(r.measured for r in real), rows.device)
                scores += judge_fitted(model, own, estimator, f"the {len(real)} measured, none of them learnt from")
            step()
    return scores, models, notes


def _residual(
    simulated: Sequence[SimulatedRow], folds: int, seed: int, on_progress: Progress
) -> tuple[ResidualModel, list[Summary], dict[str, Any]]:
    names = list(LEARNERS)
    shipped, group_folds = names[0], max(2 * folds, 7)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        on_progress("residuals", done, folds + group_folds)

    by_group = keep_groups_out(simulated, group_folds, seed, names, step)
    by_row = keep_rows_out(simulated, folds, seed, [shipped], step)
    model, told = fit_residual(simulated, by_group, seed)
    fits = [row.fits for row in simulated]
    plain = [float(row.simulated) for row in simulated]
    left_out = "architectures and families left out"
    summaries = summarise("simulator", simulated, plain, fits, _SUMMARY_WIDTHS, "nothing is learnt")
    for name, medians in by_group.medians.items():
        estimator = "learned" if name == shipped else f"residual by {name}"
        estimates = (np.array(plain) * np.exp(medians)).tolist()
        summaries += summarise(estimator, simulated, estimates, fits, _SUMMARY_WIDTHS, left_out)
    estimates = (np.array(plain) * np.exp(by_row.medians[shipped])).tolist()
    summaries += summarise("learned", simulated, estimates, fits, _SUMMARY_WIDTHS, f"{folds} folds of rows")
    return model, summaries, told


def _trained(data: Mapping[str, ClassRows], simulated: Sequence[SimulatedRow], seed: int) -> dict[str, Any]:
    """What the estimators know: written into the artifact, asked at every estimate."""
    known = [row for row in simulated if row.measured is not None]
    told: dict[str, Any] = {
        kind: {"rows": len(rows.features), "devices": [GPU], "optimizers": ["adam"], "precisions": ["fp32"]}
        for kind, rows in data.items()
    }
    told["residual"] = {
        "rows": len(known),
        "devices": sorted({row.device for row in known}),
        "optimizers": sorted({str(row.optimizer) for row in known}),
        "precisions": sorted({row.precision for row in known}),
    }
    digest = hashlib.blake2b(json.dumps([told, seed], sort_keys=True).encode(), digest_size=4).hexdigest()
    return told | {"id": f"learned-{sum(len(rows.features) for rows in data.values())}-{len(known)}-{digest}"}


def _context(kind: str) -> int:
    return context_bytes(find_gpu(GPU), find_stack(STACK), convolutions=kind == "cnn")


def _pictures(
    place: Path, data: Mapping[str, ClassRows], scores: Sequence[ClassScore], seed: int, on_progress: Progress
) -> list[Path]:
    drawn: dict[str, str] = {}
    for score in scores:
        title = f"{score.estimator}, {score.kind} networks, classes of {score.width >> 20} MiB: {score.accuracy:.3f}"
        names = [str(number) for number in range(len(score.confusion))]
        if len(names) <= 12:
            end = "" if "folds" in score.judged_on else "-measured"
            name = f"confusion-{score.estimator}-{score.kind}-{score.width >> 20}{end}.svg"
            drawn[name] = confusion_picture(title, names, score.confusion)
    for number, (kind, rows) in enumerate(data.items(), 1):
        width = WIDTHS[kind][0] << 20
        chosen = np.random.default_rng(seed).permutation(len(rows.features))[:_PICTURE_ROWS]
        x = np.array([feature_vector(rows.features[i]) for i in chosen])
        labels = [int(rows.labels(width)[i]) for i in chosen]
        names = [f"class {n} of {width >> 20} MiB" for n in range(rows.classes(width))]
        places, share = principal_components(x)
        drawn[f"pca-{kind}.svg"] = points_picture(
            f"{kind} networks, PCA ({share:.0%} of variance)", places, labels, names
        )
        drawn[f"tsne-{kind}.svg"] = points_picture(f"{kind} networks, t-SNE", t_sne(x, seed), labels, names)
        on_progress("pictures", number, len(data))
    for name, text in drawn.items():
        (place / name).write_text(text, encoding="utf-8")
    return [place / name for name in drawn]


def judge_artifact(path: Path, folder: Path) -> list[ClassScore]:
    """Classifiers that learnt elsewhere, on GPUMemNet's measured networks: all rows, none of them learnt from."""
    artifact, device = read_artifact(path), find_gpu(GPU).usable_memory
    measured = read_measured(folder)
    scores = []
    for estimator, models in artifact.classes.items():
        for kind, model in models.items():
            own = [row for row in measured if row.kind == kind]
            if own:
                rows = ClassRows(kind, tuple(r.features for r in own), tuple(r.measured for r in own), device)
                scores += judge_fitted(model, rows, estimator, f"GPUMemNet's rows, by {artifact.id}")
    return scores


def judge_class_models(
    models: Mapping[str, Mapping[str, ClassModel]], rows: Sequence[SimulatedRow], widths: Sequence[int]
) -> list[Summary]:
    """On named models, none of which they learnt from."""
    found = []
    for estimator, by_kind in models.items():
        own = [row for row in rows if row.data in REAL and row.kind in by_kind]
        chosen = [classes_of(by_kind[row.kind], row.layers)[0] for row in own]
        edges = [
            float((one.chosen + 1) * one.width + _shift(by_kind[row.kind], row))
            for one, row in zip(chosen, own, strict=True)
        ]
        fits = [one.above(row.usable) <= 0.5 for one, row in zip(chosen, own, strict=True)]
        found += summarise(estimator, own, edges, fits, widths, "named models, none learnt from")
    return found


def _shift(model: ClassModel, row: SimulatedRow) -> int:
    """The context of the run's own machine in place of the one that was learnt with."""
    return round(row.features.context * row.simulated) - model.context
