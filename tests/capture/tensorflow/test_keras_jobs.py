"""Keras jobs from file to Estimate, and beside what TensorFlow really allocates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import oomcast
from oomcast.errors import BadInput, JobFailed
from oomcast.units import MiB

JOB = """
import keras
import numpy as np


def model():
    layers = keras.layers
    return keras.Sequential([
        layers.Input((64,)), layers.Dense(512, activation="relu"), layers.Dense(512, activation="relu"),
        layers.Dense(10, activation="softmax"),
    ])


def batch(batch_size):
    return np.zeros((batch_size, 64), "float32"), np.zeros((batch_size,), "int32")
"""
WEIGHTS = (64 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10) * 4


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def estimate(path: Path, **options: object) -> oomcast.Estimate:
    return oomcast.estimate(path, batch_size=256, device="a100-40gb", use_calibration=False, **options)  # type: ignore[arg-type]


def test_a_keras_job_is_estimated_on_tensorflows_pool(job: Path) -> None:
    found = estimate(job, optimizer="adam")

    assert WEIGHTS <= found.breakdown["parameter"] <= 1.5 * WEIGHTS + MiB
    assert 2 * WEIGHTS <= found.breakdown["optimizer_state"] <= 3 * WEIGHTS + MiB
    assert found.provenance["environment"].startswith("tensorflow-")
    assert found.peak_reserved in {2**k * MiB - 2 * MiB for k in range(1, 12)} | {found.peak_reserved // MiB * MiB}
    assert found.unsupported == {}
    assert any("XLA" in sentence for sentence in found.assumptions)


def test_more_samples_and_more_slots_hold_more(job: Path) -> None:
    small = estimate(job, optimizer="sgd")
    slots = estimate(job, optimizer="adam")

    assert small.peak_allocated < slots.peak_allocated
    with pytest.raises(BadInput, match="without a suffix"):
        estimate(job, optimizer="adam-fused")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('np.zeros((batch_size, 64), "float32")', "keras.KerasTensor((None, 64))"), "leaves a dimension open"),
        (('np.zeros((batch_size, 64), "float32")', "3"), "without a shape"),
        (("(batch_size, 64)", "(batch_size, 63)"), "rejects this configuration|raised"),
        (("    layers = keras.layers", "    return 3"), "return a keras.Model"),
        (("    layers = keras.layers", "    raise KeyError('weights')"), "raised KeyError"),
        (("    layers = keras.layers", "    return keras.models.load_model('old.keras')"), "old.keras"),
    ],
)
def test_bad_jobs_get_a_sentence(job: Path, change: tuple[str, str], message: str) -> None:
    job.write_text(JOB.replace(*change))

    with pytest.raises(BadInput, match=message):
        estimate(job)


def test_a_model_saved_by_another_version_is_told(job: Path, tmp_path: Path) -> None:
    import zipfile

    config = {"module": "keras.layers", "class_name": "LayerOfTomorrow", "config": {}, "registered_name": None}
    with zipfile.ZipFile(tmp_path / "new.keras", "w") as archive:
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("metadata.json", json.dumps({"keras_version": "9.0.0"}))
        archive.writestr("model.weights.h5", b"")
    saved = str(tmp_path / "new.keras")
    job.write_text(JOB.replace("    layers = keras.layers", f"    return keras.models.load_model({saved!r})"))

    with pytest.raises(JobFailed, match="another version"):
        estimate(job)


def test_the_framework_that_is_named_must_be_the_models(job: Path) -> None:
    job.write_text(JOB.replace("import keras\n", "import importlib\nkeras = importlib.import_module('keras')\n"))

    with pytest.raises(BadInput):
        estimate(job, framework="onnx")
    assert estimate(job, framework="keras").peak_allocated > 0


SUBCLASS = """
import keras
import numpy as np


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dense(512, activation="relu")
        self.second = keras.layers.Dense(512, activation="relu")
        self.last = keras.layers.Dense(10, activation="softmax")

    def call(self, x):
        # CHECK
        return self.last(self.second(self.first(x)))


def model():
    return Net()
""" + JOB[JOB.index("\n\ndef batch") :]


def test_a_subclassed_model_without_build_holds_what_the_same_layers_in_a_row_hold(job: Path) -> None:
    plain = estimate(job, optimizer="adam")
    job.write_text(SUBCLASS)
    subclassed = estimate(job, optimizer="adam")

    assert subclassed.peak_allocated == plain.peak_allocated
    assert subclassed.breakdown["optimizer_state"] == plain.breakdown["optimizer_state"]


def test_a_whole_data_set_stands_for_its_batches(job: Path) -> None:
    plain = estimate(job)
    start = JOB.index("    return np.zeros")
    arrays = JOB[start:].strip().removeprefix("return ").replace("batch_size", "1000")
    dataset = f"tf.data.Dataset.from_tensor_slices(({arrays})).batch(batch_size)"
    job.write_text(f"import tensorflow as tf\n{JOB[:start]}    return {dataset}\n")

    assert estimate(job).peak_allocated == plain.peak_allocated


def test_grouped_convolutions_tell_of_xla(job: Path) -> None:
    """Where XLA compiles nothing but them."""
    by_tensorflow = "    net.compile('adam', 'sparse_categorical_crossentropy', jit_compile=False)\n    return net\n"
    text = JOB.replace("    return keras.Sequential", "    net = keras.Sequential").replace(
        "    ])\n", f"    ])\n{by_tensorflow}"
    )
    text = text.replace("layers.Dense(10", "layers.Flatten(), layers.Dense(10")
    told = []
    for convolution in ("layers.Conv2D(8, 3)", "layers.Conv2D(8, 3, groups=2)"):
        images = f"layers.Input((64,)), layers.Reshape((4, 4, 4)), {convolution}"
        job.write_text(text.replace("layers.Input((64,))", images))
        told.append(any("compiled by XLA on its own" in sentence for sentence in estimate(job).assumptions))

    assert told == [False, True]


@pytest.mark.parametrize("eagerly", [False, True])
def test_an_error_in_a_layer_keeps_the_sentence_that_helps(job: Path, eagerly: bool) -> None:
    """Keras and AutoGraph put lines of their own before it."""
    check = "if x.shape[1] != 51: raise ValueError('I want 51 features')"
    job.write_text(SUBCLASS.replace("# CHECK", ("float(x[0, 0])\n        " if eagerly else "") + check))

    with pytest.raises(JobFailed, match="raised ValueError: I want 51 features"):
        estimate(job)


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_live_bytes_are_those_of_tensorflow_on_a_cpu(activation: str) -> None:
    program = (
        f"import json, keras, numpy\nACTIVATION = {activation!r}\n"
        "from lab.checks.tensorflow_check import figures_of_step\n"
        "def build():\n"
        "    layers = keras.layers\n"
        "    model = keras.Sequential([layers.Input((256,)), layers.Dense(512, activation='relu'),\n"
        "        layers.Dropout(0.1), layers.Dense(512, activation=ACTIVATION),\n"
        "        layers.Dense(512, activation=ACTIVATION), layers.Dense(10, activation='softmax')])\n"
        "    model.compile(optimizer='adam', loss='sparse_categorical_crossentropy', jit_compile=False)\n"
        "    return model\n"
        # Not where TensorFlow reads it without a copy, as chance would have it.
        "room = numpy.zeros(512 * 256 * 4 + 128, 'uint8')\n"
        "start = -room.ctypes.data % 64 + 16\n"
        "x = room[start : start + 512 * 256 * 4].view('float32').reshape(512, 256)\n"
        "batch = x, numpy.zeros((512,), 'int32')\n"
        "print(json.dumps(figures_of_step(build, batch)))\n"
    )
    environment = {**os.environ, "TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_ENABLE_ONEDNN_OPTS": "0"}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    figures = json.loads(ran.stdout.splitlines()[-1])

    assert figures["events"] > 100
    assert abs(figures["estimated"] / figures["measured"] - 1) < 0.001
