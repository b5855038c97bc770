"""`oomcast dataset train`: the loop from a file of rows to an estimate; what cannot be learnt from is told at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from equation_builder import write_store
from oomcast.cli import main
from oomcast.errors import BadInput
from oomcast.estimation import Calibration, MeasuredRun, write_calibration
from oomcast.methods.gpumemnet import Layer, LayerFeatures, SimulatorFeatures, read_artifact
from oomcast.methods.gpumemnet.dataset import Dataset, Label, Network, Row, write_dataset
from oomcast.methods.gpumemnet.dataset.rows import row_id
from oomcast.methods.gpumemnet.training import classes, read_learning_rows, train_estimators
from oomcast.methods.gpumemnet.training.classes import score_classes
from oomcast.methods.gpumemnet.training.fitting import FitSettings

pytest.importorskip("sklearn")
MIB = 1 << 20
CONTEXT = 400 * MIB
QUICK = ("--folds", "2")
JOB = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))

def batch(batch_size):
    return torch.randn(batch_size, 1024), torch.randn(batch_size, 1024)

def loss(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()
"""


@pytest.fixture(autouse=True)
def quick_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        classes, "settings_for", lambda estimator, seed: FitSettings(members=1, epochs=50, patience=15, seed=seed)
    )


def _row(width: int, depth: int, source: str = "simulator", device: str = "a100-40gb", error: float = 0.0) -> Row:
    """An MLP of one width: what it holds is the context and 20 bytes for a parameter, like Adam's step."""
    network = Network("mlp", "uniform", "relu", False, None, depth, width, width, 10, 32)
    layers = tuple(
        layer for _ in range(depth) for layer in (Layer("linear", width, width**2), Layer("activation", width, 0))
    )
    features = LayerFeatures(layers, 32, depth * width**2, 2 * depth * width, "relu")
    simulated = CONTEXT + 20 * features.parameters
    figures = dict.fromkeys(SimulatorFeatures.names(), 0.1) | {
        "device_total": float(simulated),
        "context": CONTEXT / simulated,
        "least": 1.0,
    }
    held = round(simulated * (1 + error))
    label = Label(source, device, "torch-2.8-cu128", "adam", "fp32", None, None, held, "fits")
    return Row(row_id(network), network, label, features, SimulatorFeatures(**figures))


def _rows(count: int, make: Callable[..., Row] = _row, **options: object) -> tuple[Row, ...]:
    drawn = np.random.default_rng(0)
    return tuple(make(int(drawn.integers(256, 3000)), int(drawn.integers(1, 6)), **options) for _ in range(count))


def _written(path: Path, rows: tuple[Row, ...]) -> Path:
    write_dataset(Dataset(rows, {"settings": {}, "failed": {}, "uniformity": {}}), path)
    return path


def test_what_was_built_is_learnt_from_and_estimates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, artifact, job = _written(tmp_path / "rows.parquet", _rows(100)), tmp_path / "mine.bin", tmp_path / "job.py"
    job.write_text(JOB, encoding="utf-8")
    assert main(["dataset", "train", str(data), "--output", str(artifact), *QUICK, "--class-width", "200MiB"]) == 0
    told = capsys.readouterr().out
    assert "gpumemnet-transformer" in told
    assert "No measured run" in told
    estimating = ["estimate", str(job), "--batch-size", "32", "--device", "a100-40gb", "--environment",
                  "torch-2.8-cu128", "--estimator", "gpumemnet-mlp", "--artifact", str(artifact), "--json"]  # fmt: skip
    assert main(estimating) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["provenance"]["trained"] == read_artifact(artifact).id
    # 2 MiB of parameters, 40 MiB in all: the class from 400 to 600 MiB
    assert found["provenance"]["classes"][0]["chosen"] == 2
    assert main([*estimating[:-3], "--artifact", str(data)]) == 2
    assert "no file of trained estimators" in capsys.readouterr().err
    learned = [word if word != "gpumemnet-mlp" else "learned" for word in estimating]
    assert main(learned) == 2
    assert "learnt from measured runs" in capsys.readouterr().err


def test_measured_runs_teach_the_residual_too(tmp_path: Path) -> None:
    data = _written(tmp_path / "runs.csv", _rows(80, source="runs", error=0.1))
    rows, left_out = read_learning_rows([data])
    assert not left_out
    training = train_estimators(rows, widths=[200], folds=2, estimators=["gpumemnet-mlp"])
    assert training.artifact.residual is not None
    before, after = training.summaries
    assert (before.estimator, after.estimator) == ("simulator", "learned")
    assert before.mre == pytest.approx(1 - 1 / 1.1, abs=0.005)
    assert after.mre < 0.01
    assert training.importance["mlp"]["GiB of parameters"] > training.importance["mlp"]["log batch size"]


def test_runs_of_a_campaign_on_a_cpu_answer_for_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = {"batch_size": (8, 64, 256), "width": (32, 64, 128, 192, 256), "depth": (1, 2, 4)}
    store = write_store(tmp_path / "runs.db", grid)
    artifact, job = tmp_path / "mine.bin", tmp_path / "job.py"
    job.write_text(JOB.replace("1024", "64"), encoding="utf-8")
    assert main(["dataset", "train", str(store), "--output", str(artifact), *QUICK, "--class-width", "50MiB"]) == 0
    assert "46 rows" in capsys.readouterr().out
    estimating = ["estimate", str(job), "--batch-size", "8", "--device", "cpu", "--estimator", "gpumemnet-mlp",
                  "--artifact", str(artifact), "--json"]  # fmt: skip
    assert main(estimating) == 0
    found = json.loads(capsys.readouterr().out)
    assert 300 * MIB < found["device_total"] <= 400 * MIB
    assert main([*estimating[:4], "--device", "cpu", "--estimator", "gpumemnet-mlp"]) == 2
    assert "not trained from runs on a CPU" in capsys.readouterr().err


def test_calibrations_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(JOB, encoding="utf-8")
    run = MeasuredRun("run", 700 * MIB, 200 * MIB, 100 * MIB, 200 * MIB, 100 * MIB, False,
                      workload={"job": "job.py", "batch_size": 32})  # fmt: skip
    gone = replace(run, workload={"job": "gone.py", "batch_size": 32}, date="2026-11-16")
    calibration = Calibration("a100-40gb", "torch-2.8-cu128").with_run(run).with_run(gone)
    write_calibration(calibration, tmp_path / "calibration.json")
    data = _written(tmp_path / "rows.csv", _rows(40, source="runs"))
    rows, left_out = read_learning_rows([data, tmp_path / "calibration.json"])
    assert len(rows) == 41
    assert rows[-1].held == 700 * MIB
    assert (rows[-1].kind, rows[-1].source) == ("mlp", "runs")
    assert rows[-1].layers.parameters == 2 * (1024**2 + 1024)
    assert len(left_out) == 1
    assert "gone.py" in left_out[0]


def test_few_rows_and_rows_that_do_not_belong_together_are_told(tmp_path: Path) -> None:
    few = _written(tmp_path / "few.csv", _rows(12))
    with pytest.raises(BadInput, match="12 rows are too few"):
        read_learning_rows([few])
    two = _written(tmp_path / "two.csv", _rows(40) + _rows(40, device="h100-80gb"))
    rows, _ = read_learning_rows([two])
    with pytest.raises(BadInput, match="2 devices"):
        train_estimators(rows)
    rows, _ = read_learning_rows([two], device="h100-80gb")
    assert {row.device for row in rows} == {"h100-80gb"}
    with pytest.raises(BadInput, match=r"in one class of 8000 MiB.*--class-width"):
        train_estimators(rows, widths=[8000])
    with pytest.raises(BadInput, match="nothing to learn from"):
        read_learning_rows([__file__])


def test_scores_are_those_of_the_confusion() -> None:
    """By hand: class 0 has 3 members, one of them put into 1; class 1 has one member, found."""
    found = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.1, 0.9]])
    score = score_classes("any", "mlp", 1000 * MIB, np.array([0, 0, 0, 1]), found, "itself")
    assert score.confusion == ((2, 1), (0, 1))
    assert score.accuracy == score.recall == 0.75
    assert score.precision == pytest.approx((3 * 1 + 1 * 0.5) / 4)
    assert score.f1 == pytest.approx((3 * 0.8 + 1 * 2 / 3) / 4)
