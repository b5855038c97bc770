"""Training on made-up runs, small and quick: scores are honest, artifacts work, bad input is told."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from lab.accuracy import Case, Measure
from lab.training import rows as _train_rows
from lab.training.pictures import confusion_picture, points_picture, principal_components
from lab.training.rows import read_measured, simulate_cases, simulate_rows
from lab.training.training import _pictures, _residual, judge_class_models
from lab.training.transformers import draw_transformers
from oomcast.errors import BadInput
from oomcast.methods.gpumemnet import Layer, LayerFeatures, SimulatorFeatures
from oomcast.methods.gpumemnet.estimators import GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER
from oomcast.methods.gpumemnet.networks.trees import TreeSettings
from oomcast.methods.gpumemnet.training import classes as _train_classes
from oomcast.methods.gpumemnet.training import residual as _train_residual
from oomcast.methods.gpumemnet.training.classes import (
    ClassRows,
    fit_classes,
    judge_classes,
    judge_fitted,
    score_classes,
)
from oomcast.methods.gpumemnet.training.fitting import FitSettings
from oomcast.methods.gpumemnet.training.residual import fit_residual, keep_groups_out, keep_rows_out, summarise
from oomcast.methods.gpumemnet.training.rows import SimulatedRow
from oomcast.methods.gpumemnet.training.train import render_scores, render_summaries
from oomcast.spec import Workload

pytest.importorskip("sklearn")
MIB = 1 << 20
WIDTH = 1000 * MIB


def _network(width: int, depth: int, batch_size: int) -> LayerFeatures:
    layers = tuple(Layer("linear", width, width * width) for _ in range(depth))
    return LayerFeatures(layers, batch_size, depth * width**2, depth * width, "relu")


def _class_rows(count: int = 160, out_of_memory: bool = False) -> ClassRows:
    drawn = np.random.default_rng(0)
    features = tuple(
        _network(int(drawn.integers(100, 6000)), int(drawn.integers(1, 5)), int(drawn.integers(8, 64)))
        for _ in range(count)
    )
    measured: list[int | None] = [1400 * MIB + 20 * one.parameters for one in features]
    if out_of_memory:
        measured = [None if one is not None and one > 3900 * MIB else one for one in measured]
    return ClassRows("mlp", features, tuple(measured), 4000 * MIB)


def _simulated(count: int, group: str, bias: float, seed: int, data: str = "gpumemnet_cnn") -> list[SimulatedRow]:
    """Where the cache is large, the simulator is too high by `bias` of it."""
    drawn = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        total, cache = float(drawn.uniform(2, 30)) * 2**30, float(drawn.uniform(0, 0.5))
        values = dict.fromkeys(SimulatorFeatures.names(), 0.1) | {"device_total": total, "cache": cache, "bare": 0.8}
        ratio = math.exp(-bias * cache + 0.002 * float(drawn.normal()))
        rows.append(
            SimulatedRow(
                name=f"{group} {number}", data=data, group=group, kind="mlp", device="a100-40gb", usable=40 << 30,
                optimizer="adam", precision="fp32", measured=round(total * ratio), simulated=round(total),
                needed=round(total), fits=True, features=SimulatorFeatures(**values), layers=_network(100, 2, 8),
            )
        )  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def simulated() -> list[SimulatedRow]:
    return [row for number in range(40) for row in _simulated(6, f"group {number}", 0.3, number)]


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_train_residual, "_TREES", TreeSettings(trees=20))
    monkeypatch.setattr(
        _train_classes, "settings_for", lambda estimator, seed: FitSettings(members=1, epochs=25, seed=seed)
    )


def test_classes_end_where_the_device_does_and_hold_what_was_out_of_memory() -> None:
    rows = _class_rows(out_of_memory=True)
    assert rows.classes(WIDTH) == 5
    assert all((label == 4) == (one is None) for label, one in zip(rows.labels(WIDTH), rows.measured, strict=True))
    assert _class_rows().labels(8 * WIDTH).max() + 1 == _class_rows().classes(8 * WIDTH)


@pytest.mark.parametrize("estimator", [GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER])
def test_estimators_learn_classes_that_they_can_see(estimator: str) -> None:
    rows = _class_rows()
    folds: list[int] = []
    (score,) = judge_classes(rows, [WIDTH], estimator, 2, 0, lambda: folds.append(1))
    assert len(folds) == 2
    assert score.accuracy > 0.6
    assert score.rows == len(rows.features) == sum(map(sum, score.confusion))
    again = fit_classes(rows, [WIDTH], estimator, 0, context=7)
    assert (again.context, again.widths, again.domain.kinds) == (7, (WIDTH,), ("linear",))
    (fitted,) = judge_fitted(again, rows, estimator, "itself")
    assert fitted.accuracy > 0.7


def test_labels_without_a_meaning_are_not_learnt() -> None:
    """A row that is judged by a model that had seen it would be right more often than chance."""
    rows = _class_rows()
    drawn = np.random.default_rng(1).permutation(len(rows.features))
    shuffled = ClassRows("mlp", rows.features, tuple(rows.measured[i] for i in drawn), rows.device)
    (score,) = judge_classes(shuffled, [WIDTH], GPUMEMNET_MLP, 2, 0)
    chance = max(map(sum, score.confusion)) / score.rows
    assert score.accuracy < chance + 0.1


def test_one_class_alone_is_refused() -> None:
    rows = _class_rows()
    same = ClassRows("mlp", rows.features, (1500 * MIB,) * len(rows.features), 4000 * MIB)
    with pytest.raises(BadInput, match=r"in one class|single class"):
        fit_classes(same, [8 * WIDTH], GPUMEMNET_MLP, 0)
    with pytest.raises(BadInput, match="too few"):
        judge_classes(rows.take([0, 1, 2]), [WIDTH], GPUMEMNET_MLP, 2, 0)


def test_scores_count_what_is_too_low() -> None:
    labels, found = np.array([0, 1, 2]), np.array([[0.9, 0.1, 0.0], [0.8, 0.1, 0.1], [0.0, 0.1, 0.9]])
    score = score_classes("x", "mlp", WIDTH, labels, found, "")
    assert (score.accuracy, score.under, score.within_one) == pytest.approx((2 / 3, 1 / 3, 1.0))
    assert score.confusion == ((1, 0, 0), (1, 0, 0), (0, 0, 1))


def test_a_residual_that_groups_share_is_found(simulated: list[SimulatedRow]) -> None:
    kept = keep_groups_out(simulated, 3, 0, ["quantile trees", "linear"], lambda: None)
    plain = [float(row.simulated) for row in simulated]
    fits = [True] * len(plain)
    (before,) = summarise("simulator", simulated, plain, fits, (1000,), "")
    for name in kept.medians:
        estimates = (np.array(plain) * np.exp(kept.medians[name])).tolist()
        (after,) = summarise(name, simulated, estimates, fits, (1000,), "")
        assert after.mre < before.mre / 3
        assert after.classes[1000] > before.classes[1000]
    model, told = fit_residual(simulated, kept, 0)
    assert told["groups"] == 40
    middle, spread = model.answer(simulated[0].features)
    truth = simulated[0].measured
    assert truth is not None
    assert middle == pytest.approx(math.log(truth / simulated[0].simulated), abs=0.02)
    assert 0.01 <= spread <= model.wide_spread


def test_a_group_of_its_own_kind_is_judged_without_itself() -> None:
    """What only one group shows is not known when that group is left out, but is when only rows are."""
    rows = [row for number in range(4) for row in _simulated(30, f"alike {number}", 0.0, number)]
    rows += _simulated(60, "odd", 0.6, 9)
    odd = np.array([row.group == "odd" for row in rows])
    truth = np.array([math.log((row.measured or 1) / row.simulated) for row in rows])
    by_group = keep_groups_out(rows, 5, 0, ["quantile trees"], lambda: None).medians["quantile trees"]
    by_row = keep_rows_out(rows, 5, 0, ["quantile trees"], lambda: None).medians["quantile trees"]
    assert np.abs(by_group - truth)[odd].mean() > 0.9 * np.abs(truth)[odd].mean()
    assert np.abs(by_row - truth)[odd].mean() < np.abs(by_group - truth)[odd].mean()


def test_out_of_memory_is_the_class_above_the_device(simulated: list[SimulatedRow]) -> None:
    import dataclasses

    failed = [dataclasses.replace(row, measured=None, fits=False) for row in simulated[:10]]
    rows = [*simulated[10:20], *failed]
    plain = [float(row.simulated) for row in rows]
    (right,) = summarise("x", rows, plain, [row.fits for row in rows], (8000,), "")
    (wrong,) = summarise("x", rows, plain, [True] * len(rows), (8000,), "")
    assert right.classes[8000] > wrong.classes[8000]
    assert right.rows == 20


def test_few_groups_cannot_promise_an_interval() -> None:
    rows = [row for number in range(6) for row in _simulated(30, f"group {number}", 0.3, number)]
    kept = keep_groups_out(rows, 3, 0, ["quantile trees"], lambda: None)
    with pytest.raises(BadInput, match="runs of 6 architectures and families cannot promise"):
        fit_residual(rows, kept, 0)


def test_few_runs_are_refused(simulated: list[SimulatedRow]) -> None:
    with pytest.raises(BadInput, match="too few to learn from"):
        keep_groups_out(simulated[:20], 2, 0, ["linear"], lambda: None)


def test_the_whole_residual_part_and_its_text(simulated: list[SimulatedRow]) -> None:
    steps: list[tuple[str, int, int]] = []
    _, summaries, told = _residual(simulated, 2, 0, lambda *step: steps.append(step))
    assert {one.estimator for one in summaries} >= {"simulator", "learned", "residual by linear"}
    assert steps[-1][1] == steps[-1][2]
    assert 0.5 < told["not_exceeded_by_group"] <= 1
    text = "\n".join(render_summaries(summaries))
    assert "gpumemnet_cnn, 240 rows" in text


def test_pictures_and_text_show_every_class(tmp_path: Path) -> None:
    rows = _class_rows(60)
    scores = judge_classes(rows, [WIDTH], GPUMEMNET_MLP, 2, 0)
    drawn = _pictures(tmp_path, {"mlp": rows}, scores, 0, lambda *step: None)
    names = sorted(path.name for path in drawn)
    assert names == ["confusion-gpumemnet-mlp-mlp-1000.svg", "pca-mlp.svg", "tsne-mlp.svg"]
    assert (tmp_path / "pca-mlp.svg").read_text(encoding="utf-8").count("<circle") >= 60
    assert "gpumemnet-mlp" in "\n".join(render_scores(scores))


def test_components_keep_the_variance_and_words_are_escaped() -> None:
    line = np.arange(10.0)
    places, share = principal_components(np.stack([line, 2 * line, np.zeros(10)], axis=1))
    assert share == pytest.approx(1)
    assert abs(np.corrcoef(places[:, 0], line)[0, 1]) == pytest.approx(1)
    assert "&lt;b&gt;" in confusion_picture("<b>", ["0"], [[3]])
    assert points_picture("x", places, [0] * 10, ["all"]).count("<circle") == 11


def test_class_models_on_named_models(simulated: list[SimulatedRow]) -> None:
    import dataclasses

    rows = [dataclasses.replace(row, data="real_models") for row in simulated[:5]]
    model = fit_classes(_class_rows(80), [WIDTH], GPUMEMNET_MLP, 0)
    (found,) = judge_class_models({GPUMEMNET_MLP: {"mlp": model}}, [*rows, *simulated], (1000,))
    assert (found.data, found.rows) == ("real_models", 5)


def test_drawn_transformers_are_the_same_every_time_and_of_like_size() -> None:
    first, again = draw_transformers(20, 3), draw_transformers(20, 3)
    assert [one.workload.job.target for one in first] == [one.workload.job.target for one in again]
    assert draw_transformers(5, 3)[4].workload.job.target == first[4].workload.job.target
    jobs = [one.workload.job.target for one in first]
    assert all(job.width % job.heads == 0 and job.length * job.batch_size <= 1 << 16 for job in jobs)


def test_what_an_older_simulator_made_of_a_trace_is_never_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload.create("zoo:mlp", batch_size=4, steps=1)
    case = Case(
        "made", "made", "1", "mlp", workload, "a100-40gb", "torch-2.4-cu121", Measure.DEVICE_TOTAL, 2 << 30, True
    )
    (first,) = simulate_cases([case], tmp_path, processes=1)
    (kept,) = (tmp_path / "learned").iterdir()
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"simulated": 1}))
    (again,) = simulate_cases([case], tmp_path, processes=1, accept_stale=True)
    assert again.simulated == 1, "what this code computed is read, not made anew"
    monkeypatch.setattr(_train_rows, "source_digest", lambda *rooms: "another")
    (anew,) = simulate_cases([case], tmp_path, processes=1, accept_stale=True)
    assert anew.simulated == first.simulated > 1


def test_folders_without_files_and_other_layouts_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds none of gpumemnet_mlp_step1"):
        read_measured(tmp_path)
    with pytest.raises(BadInput, match="holds none of"):
        simulate_rows(tmp_path, 1, tmp_path)
    (tmp_path / "gpumemnet_cnn.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(BadInput, match="column"):
        read_measured(tmp_path)
