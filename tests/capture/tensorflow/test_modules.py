"""A `tf.Module`: what it holds, beside the same layers as a Keras model, and what is asked of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import oomcast
from oomcast.capture.tensorflow import run
from oomcast.errors import BadInput
from oomcast.spec import Spec
from oomcast.trace import Category, Trace, peak_of

BATCH, FEATURES, WIDTH, CLASSES = 4096, 256, 1024, 10
WEIGHTS = (FEATURES * WIDTH + WIDTH + WIDTH * CLASSES + CLASSES) * 4
JOB = f"""
import numpy as np
import tensorflow as tf


class Net(tf.Module):
    def __init__(self):
        super().__init__()
        self.built = False

    def __call__(self, x):
        if not self.built:
            self.first = tf.Variable(tf.random.normal((x.shape[-1], {WIDTH})), name="first")
            self.bias = tf.Variable(tf.zeros({WIDTH}), name="bias")
            self.last = tf.Variable(tf.random.normal(({WIDTH}, {CLASSES})), name="last")
            self.shift = tf.Variable(tf.zeros({CLASSES}), name="shift")
            self.built = True
        return tf.nn.bias_add(tf.nn.relu(tf.nn.bias_add(x @ self.first, self.bias)) @ self.last, self.shift)


def model():
    return Net()


def batch(batch_size):
    return np.zeros((batch_size, {FEATURES}), "float32"), np.zeros((batch_size,), "int32")
"""
KERAS = f"""
import keras
import numpy as np


def model():
    layers = keras.layers
    net = keras.Sequential([
        layers.Input(({FEATURES},)), layers.Dense({WIDTH}, activation="relu"), layers.Dense({CLASSES})
    ])
    net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return net
""" + JOB[JOB.index("\n\ndef batch") :]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def estimate(path: Path, **options: object) -> oomcast.Estimate:
    return oomcast.estimate(path, batch_size=BATCH, device="a100-40gb", use_calibration=False, **options)  # type: ignore[arg-type]


def trace_of(path: Path, **options: object) -> Trace:
    return run.capture_here(Spec.read(str(path), device="a100-40gb", batch_size=BATCH, **options))  # type: ignore[arg-type]


def held(trace: Trace, category: Category) -> int:
    return sum(made.nbytes for made in trace.allocations if made.category is category)


def test_it_holds_what_the_same_layers_hold_in_keras(job: Path) -> None:
    module, own = estimate(job, optimizer="adam"), trace_of(job, optimizer="adam")
    job.write_text(KERAS)
    layers = trace_of(job)

    assert peak_of(own) == pytest.approx(peak_of(layers), rel=0.005)
    assert held(own, Category.PARAMETER) == held(layers, Category.PARAMETER) == WEIGHTS
    assert held(own, Category.OPTIMIZER_STATE) == pytest.approx(2 * WEIGHTS, abs=64)
    assert {"forward", "backward", "optimizer"} <= set(module.highest_by_phase)
    assert any("tf.Module" in sentence for sentence in module.assumptions)
    assert not any("real weights" in sentence for sentence in module.assumptions)
    assert any(tensor.module.startswith("first") for tensor in module.top_tensors)


@pytest.mark.parametrize("phase", ["inference", "eval"])
def test_what_does_not_train_holds_weights_and_outputs(job: Path, phase: str) -> None:
    found = estimate(job, phase=phase)

    assert held(trace_of(job, phase=phase), Category.PARAMETER) == WEIGHTS
    assert found.breakdown.get("optimizer_state", 0) == found.breakdown.get("gradient", 0) == 0
    assert found.peak_allocated < estimate(job).peak_allocated


def test_its_own_loss_and_optimizer_are_taken(job: Path) -> None:
    own = "\n\ndef loss(model, batch):\n    return tf.reduce_sum(model(batch[0]))\n"
    own += "\n\ndef optimizer(params):\n    import keras\n    return keras.optimizers.SGD()\n"
    job.write_text(JOB + own)
    found = estimate(job)

    assert found.breakdown.get("optimizer_state", 0) < WEIGHTS / 8
    assert "backward" in found.highest_by_phase


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (("__call__", "forward"), {}, "has no __call__"),
        (("", ""), {"precision": "amp-fp16"}, "tf.Module, which says itself"),
        ((', np.zeros((batch_size,), "int32")', ""), {}, "returned no labels"),
    ],
)
def test_what_is_missing_is_told(job: Path, change: tuple[str, str], options: dict[str, object], message: str) -> None:
    job.write_text(JOB.replace(*change))

    with pytest.raises(BadInput, match=message):
        estimate(job, **options)
