"""Files that 0.1.0 wrote are still read, and say the same; one that cannot be says who wrote it and what to do.

The files of the folder were written by 0.1.0 itself, from made-up measurements.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oomcast
from oomcast.errors import UnreadableFile
from oomcast.estimation import estimator_names, find_estimator
from oomcast.estimation.calibration import read_calibration
from oomcast.methods.equations import read_equation
from oomcast.methods.measure import Store
from oomcast.methods.tbem import fit_campaign, read_campaign, read_gap, write_gap
from oomcast.trace import TRACE_VERSION, read_trace, trace_from_bytes
from oomcast.units import MiB

OLD = Path(__file__).parent / "files_of_0_1_0"
TEMPLATE = "template:mlp,width=32,depth=2,features=64"


def test_a_calibration_still_sets_the_constants() -> None:
    place = {"device": "rtx-3090", "environment": "torch-2.8-cu128"}
    answer = oomcast.estimate("zoo:resnet18", batch_size=8, calibration=OLD / "calibration.json", **place)
    assert answer.breakdown["context"] == 940 * MiB
    assert answer.device_total == 1400 * MiB


def test_a_trace_is_read() -> None:
    trace = read_trace(OLD / "trace.json.gz")
    assert trace.workload["job"] == "zoo:mlp"
    assert len(trace.events) == 287


@pytest.fixture
def gap(tmp_path: Path) -> Path:
    """The Gap of the campaign that 0.1.0 measured, fitted again from its store."""
    shutil.copy(OLD / "small.toml", tmp_path)
    place = tmp_path / "small.db"
    place.write_bytes(gzip.decompress((OLD / "small.db.gz").read_bytes()))
    with Store.open(place) as store:
        again = fit_campaign(read_campaign(tmp_path / "small.toml"), store)
    return write_gap(again, tmp_path / "gap.json")


def test_a_campaign_is_fitted_again_from_its_old_store(gap: Path) -> None:
    old = json.loads((OLD / "gap.json").read_text(encoding="utf-8"))
    again = read_gap(gap)
    assert [row.measured for row in again.rows] == [row["measured"] for row in old["rows"]]
    answer = oomcast.estimate(TEMPLATE, batch_size=8, device="cpu", estimator="tbem", campaign=gap)
    assert answer.device_total == pytest.approx(300 * MiB, rel=0.02)


def test_an_old_gap_belongs_to_other_static_figures_and_says_so() -> None:
    sentence = r"schema 1 \(written by oomcast 0.1.0\), this oomcast reads 4; fit the campaign again"
    with pytest.raises(UnreadableFile, match=sentence):
        read_gap(OLD / "gap.json")


def test_an_old_equation_answers() -> None:
    by_equation = oomcast.estimate(
        TEMPLATE.replace("depth=2", "depth=3"),
        batch_size=8,
        device="cpu",
        estimator="equation",
        equation=OLD / "equation.json",
    )
    assert by_equation.device_total == 300 * MiB + 4000 * 8 * 32


def test_an_old_equation_over_timelines_of_a_cpu_says_so(tmp_path: Path) -> None:
    content = json.loads((OLD / "equation.json").read_text(encoding="utf-8"))
    path = written(tmp_path, {**content, "features": "both"})
    with pytest.raises(UnreadableFile, match=r"fitted by oomcast 0.1.0 .*; fit the equation again"):
        read_equation(path)


def of_the_future(path: Path, folder: Path) -> Path:
    content = json.loads(path.read_text(encoding="utf-8"))
    return written(folder, {**content, "schema": content["schema"] + 1})


def written(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "future.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("file", "read", "sentence"),
    [
        ("calibration.json", read_calibration, "written by a newer oomcast .* update oomcast"),
        ("equation.json", read_equation, r"schema 2 \(written by.*\), this oomcast reads 1; fit the equation again"),
    ],
)
def test_a_file_of_the_future_says_what_to_do(
    file: str, read: Callable[[Path], object], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UnreadableFile, match=sentence):
        read(of_the_future(OLD / file, tmp_path))


def test_a_trace_of_the_future_says_what_to_do() -> None:
    content = json.loads(gzip.decompress((OLD / "trace.json.gz").read_bytes()))
    future = gzip.compress(json.dumps({**content, "version": TRACE_VERSION + 1}).encode())
    with pytest.raises(UnreadableFile, match=r"newer oomcast .* update oomcast, or capture the job again"):
        trace_from_bytes(future)


def test_estimators_that_learn_from_campaigns_have_the_simulators_context(gap: Path, tmp_path: Path) -> None:
    """The others take any trace: tests/estimation/test_one_context.py. Here are those that take a template alone."""
    learnt = {
        "tbem": (gap, "campaign", TEMPLATE),
        "equation": (OLD / "equation.json", "equation", TEMPLATE.replace("depth=2", "depth=3")),
    }
    takes_less = {name for name in estimator_names() if find_estimator(name).takes is not None}
    assert takes_less == set(learnt)
    contexts = {}
    for name, (file, option, job) in learnt.items():
        content = json.loads(file.read_text(encoding="utf-8"))
        content["device"], content["environment"]["gpu"] = "cuda", "NVIDIA GeForce RTX 3090"
        path = tmp_path / f"cuda-{file.name}"
        path.write_text(json.dumps(content), encoding="utf-8")
        answer = oomcast.estimate(job, batch_size=8, device="rtx-3090", estimator=name, **{option: path})
        contexts[name] = answer.breakdown["context"]
    simulated = oomcast.estimate("zoo:mlp", batch_size=8, device="rtx-3090", use_calibration=False)
    assert set(contexts.values()) == {simulated.breakdown["context"]}, contexts
