"""Keras models that are not trained: `predict` and `evaluate`, by XLA's plan and by TensorFlow's own executor."""

from __future__ import annotations

from pathlib import Path

import pytest

import oomcast
from oomcast.capture.tensorflow import run
from oomcast.errors import BadInput
from oomcast.spec import Spec
from oomcast.trace import Category, Phase, Trace

BATCH, FEATURES, WIDTH, CLASSES = 256, 64, 512, 10
WEIGHTS = (FEATURES * WIDTH + WIDTH + WIDTH * WIDTH + WIDTH + WIDTH * CLASSES + CLASSES) * 4
JOB = f"""
import keras
import numpy as np


def model():
    layers = keras.layers
    net = keras.Sequential([
        layers.Input(({FEATURES},)), layers.Dense({WIDTH}, activation="relu"), layers.Dropout(0.1),
        layers.Dense({WIDTH}, activation="relu"), layers.Dense({CLASSES}, activation="softmax"),
    ])
    # COMPILE
    return net


def batch(batch_size):
    return np.zeros((batch_size, {FEATURES}), "float32"), np.zeros((batch_size,), "int32")
"""
BY_TENSORFLOW = "net.compile('adam', 'sparse_categorical_crossentropy', jit_compile=False)"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def trace_of(path: Path, phase: str) -> Trace:
    return run.capture_here(Spec.read(str(path), device="a100-40gb", batch_size=BATCH, phase=phase))


def held(trace: Trace, category: Category) -> int:
    return sum(made.nbytes for made in trace.allocations if made.category is category)


@pytest.mark.parametrize("compiles", ["", BY_TENSORFLOW], ids=["keras' default", "without XLA"])
@pytest.mark.parametrize("phase", ["inference", "eval"])
def test_what_does_not_train_holds_weights_and_what_is_in_use(job: Path, compiles: str, phase: str) -> None:
    job.write_text(JOB.replace("# COMPILE", compiles))
    trace = trace_of(job, phase)
    answer = oomcast.estimate(job, batch_size=BATCH, device="a100-40gb", phase=phase, use_calibration=False)
    trained = oomcast.estimate(job, batch_size=BATCH, device="a100-40gb", use_calibration=False)

    assert held(trace, Category.PARAMETER) == WEIGHTS
    assert held(trace, Category.OPTIMIZER_STATE) == held(trace, Category.GRADIENT) == 0
    assert held(trace, Category.ACTIVATION) == 0
    assert {mark.phase for mark in trace.marks} == {Phase.BUILD, Phase.INPUT, Phase.EVALUATION}
    assert answer.peak_allocated < trained.peak_allocated - 3 * WEIGHTS + 2 * WEIGHTS
    assert any("model.predict keeps" in sentence for sentence in trace.assumptions) == (phase == "inference")


def test_the_last_output_is_there_while_the_next_is_made(job: Path) -> None:
    """As in `answers = net.predict_on_batch(x)`, in a loop."""
    job.write_text(JOB.replace("# COMPILE", BY_TENSORFLOW).replace(f"layers.Dense({CLASSES}", "layers.Dense(65536"))
    two = oomcast.estimate(job, batch_size=BATCH, device="a100-40gb", phase="inference", use_calibration=False, steps=2)
    one = oomcast.estimate(job, batch_size=BATCH, device="a100-40gb", phase="inference", use_calibration=False, steps=1)

    assert two.peak_allocated - one.peak_allocated == pytest.approx(BATCH * 65536 * 4, rel=0.02)


def test_a_model_that_was_never_compiled_predicts(job: Path) -> None:
    job.write_text(JOB.replace('np.zeros((batch_size,), "int32")', "None").replace(", None", ""))

    assert held(trace_of(job, "inference"), Category.PARAMETER) == WEIGHTS
    with pytest.raises(BadInput, match="--phase generate is not followed"):
        trace_of(job, "generate")


def test_weights_are_described_and_not_made(job: Path) -> None:
    """16 TiB of them, more than any machine has; only code that needs their values gets real ones."""
    large = JOB.replace(f"layers.Dense({WIDTH}", "layers.Dense(1 << 21")
    job.write_text(large.replace("# COMPILE", BY_TENSORFLOW))
    trace = trace_of(job, "inference")

    assert not any("real weights" in sentence for sentence in trace.assumptions)
    assert held(trace, Category.PARAMETER) > 1 << 44
