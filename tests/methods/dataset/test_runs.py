"""Labels from real runs: a file that needs torch alone, run by the campaign runner."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from row_builder import network

from oomcast.errors import BadInput, UnknownName
from oomcast.methods.gpumemnet.dataset import Settings, build_dataset, labelling
from oomcast.methods.gpumemnet.dataset.runs import case_of, measured_labels, runs_path
from oomcast.units import MiB

SETTINGS = Settings.create(2, device="cpu", labels="runs", kinds=["mlp"], architectures=["dense"], most_bytes=32 * MiB)


def test_the_file_of_a_run_defines_every_name_once() -> None:
    tree = ast.parse(case_of(network(), SETTINGS, "c").source)
    names = [node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    names += [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id != "__all__"
    ]
    assert len(names) == len(set(names))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(module is None or module.startswith("oomcast") for module in imported)


@pytest.mark.parametrize(
    "drawn",
    [
        network(architecture="residual"),
        network(kind="cnn", architecture="dense", input_size=8, channels=1, depth=4, width=16),
        network(kind="transformer", architecture="residual", heads=2, hidden=8, vocabulary=9),
    ],
)
def test_the_file_of_a_run_runs_without_oomcast(tmp_path: Path, drawn) -> None:
    file = tmp_path / "case.py"
    file.write_text(case_of(drawn, SETTINGS, "c").source + "\nimport sys\nassert 'oomcast' not in sys.modules\n")
    subprocess.run([sys.executable, str(file)], check=True, env={"OMP_NUM_THREADS": "1"})


def test_one_network_is_one_case() -> None:
    assert case_of(network(), SETTINGS, "a").key == case_of(network(), SETTINGS, "b").key
    assert case_of(network(), SETTINGS, "a").key != case_of(network(width=9), SETTINGS, "a").key


def test_a_build_from_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelling, "_load_framework", lambda: None)
    path = tmp_path / "data.csv"
    told = []
    built = build_dataset(path, SETTINGS, processes=1, on_progress=lambda *words: told.append(words))
    assert len(built.rows) == 2
    for row in built.rows:
        assert row.label.source == "runs"
        assert row.label.outcome == "fits"
        assert row.label.device_total is not None
        assert row.label.device_total > 100 * MiB  # torch itself
        assert row.label.peak_reserved is None
        assert row.features is not None
        assert row.simulator is None
    assert ("real runs", 2, 2) in told
    # The store has them: nothing runs again.
    told.clear()
    labels = measured_labels(
        [row.network for row in built.rows], SETTINGS, path, 1, False, 60.0, lambda *words: told.append(words)
    )
    assert labels == {row.id: row.label for row in built.rows}
    assert told == [("real runs", 2, 2)]
    assert runs_path(path).exists()


def test_without_the_campaign_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("oomcast.methods.measure.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "oomcast.methods.gpumemnet.dataset.runs")
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(
        BadInput, match=r"needs the package sqlalchemy; install it with: pip install 'oomcast\[campaign\]'"
    ):
        build_dataset(tmp_path / "data.csv", SETTINGS, processes=1)


def test_what_real_runs_cannot_do(tmp_path: Path) -> None:
    def refused(**changes: str) -> None:
        settings = Settings.create(1, device="cpu", labels="runs", **changes)
        measured_labels([], settings, tmp_path / "data.csv", 1, False, 10.0, lambda *_: None)

    with pytest.raises(UnknownName, match="optimizer for real runs"):
        refused(optimizer="adafactor")
    with pytest.raises(BadInput, match="made in fp32, not bf16"):
        refused(precision="bf16")
    with pytest.raises(BadInput, match="no environment to choose"):
        refused(environment="torch-2.8-cu128")
