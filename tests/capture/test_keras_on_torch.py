"""Keras models that compute with torch: Keras' own steps on the virtual GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

import oomcast
from oomcast.errors import BadInput

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="Keras is not installed")

MiB = 1 << 20
BATCH, FEATURES, WIDTH, CLASSES = 4096, 512, 2048, 10
WEIGHTS = (FEATURES * WIDTH + WIDTH + WIDTH * CLASSES + CLASSES) * 4
JOB = f"""
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np

def model():
    layers = keras.layers
    net = keras.Sequential([layers.Input(({FEATURES},)), layers.Dense({WIDTH}, activation="relu"), layers.Dropout(0.1),
                            layers.Dense({CLASSES}, activation="softmax")])
    net.compile("adam", "sparse_categorical_crossentropy")
    return net

def batch(batch_size):
    return np.zeros((batch_size, {FEATURES}), "float32"), np.zeros((batch_size,), "int32")
"""


@pytest.fixture(autouse=True)
def no_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERAS_BACKEND", raising=False)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def estimate(path: Path, **options: Any) -> oomcast.Estimate:
    options = {"batch_size": BATCH, **options}
    return oomcast.estimate(path, device="a100-40gb", use_calibration=False, **options)


def test_a_job_holds_what_fit_holds_in_a_script(job: Path, tmp_path: Path) -> None:
    found = estimate(job)
    script = tmp_path / "train.py"
    script.write_text(f"{JOB}\nx, y = batch({BATCH * 3})\nmodel().fit(x, y, batch_size={BATCH}, verbose=0)\n")
    fitted = oomcast.run([str(script)], device="a100-40gb")

    assert found.provenance["environment"].startswith("torch-")
    assert found.peak_allocated == pytest.approx(fitted.peak_allocated, rel=0.02)
    assert WEIGHTS <= found.breakdown["parameter"] <= WEIGHTS + MiB / 8
    assert 2 * WEIGHTS <= found.breakdown["optimizer_state"] <= 2 * WEIGHTS + MiB / 8
    assert {"forward", "backward", "optimizer"} <= set(found.highest_by_phase)


@pytest.mark.parametrize("phase", ["inference", "eval"])
def test_what_does_not_train_holds_no_optimizer_and_no_gradients(job: Path, phase: str) -> None:
    found = estimate(job, phase=phase)

    assert found.breakdown.get("optimizer_state", 0) == found.breakdown.get("gradient", 0) == 0
    assert found.peak_allocated < estimate(job).peak_allocated
    assert "backward" not in found.highest_by_phase
    assert any("predict" in sentence for sentence in found.assumptions) == (phase == "inference")


def test_the_optimizer_that_is_asked_for_is_keras_own(job: Path) -> None:
    assert estimate(job, optimizer="sgd").breakdown.get("optimizer_state", 0) < MiB / 8
    with pytest.raises(BadInput, match="Keras"):
        estimate(job, optimizer="lion-8bit")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "amp-bf16"}, "set_dtype_policy"),
        ({"accumulation": 2}, "gradient_accumulation_steps"),
        ({"set_to_none": False}, "--keep-gradients is not followed"),
        ({"compile": "model"}, "--compile is not followed"),
    ],
)
def test_options_of_torchs_own_loop_are_refused(job: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        estimate(job, **options)


def test_parameters_on_the_meta_device_work_with_tensors_there() -> None:
    """Keras finds its outputs' shapes so."""
    with oomcast.virtual_gpu("t4"):
        weight = torch.nn.Parameter(torch.empty(64, 32, device="meta"))
        made = torch.ones(8, 64, device="meta") @ weight
        assert made.device.type == "meta"
        assert made.shape == (8, 32)
        assert torch.cuda.memory_allocated() == 0
