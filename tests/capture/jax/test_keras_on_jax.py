"""Keras models that compute with JAX: their step is Keras' own, and XLA's plan of it the figure."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import oomcast
from oomcast.errors import BadInput
from oomcast.units import MiB

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="Keras is not installed")

BATCH, FEATURES, WIDTH, CLASSES = 256, 64, 512, 10
WEIGHTS = (FEATURES * WIDTH + WIDTH + WIDTH * CLASSES + CLASSES) * 4
SETS = 'import os\nos.environ["KERAS_BACKEND"] = "jax"\n'
MODEL = f"""
import keras
import numpy as np

def model():
    layers = keras.layers
    net = keras.Sequential([layers.Input(({FEATURES},)), layers.Dense({WIDTH}, activation="relu"),
                            layers.Dropout(0.1), layers.Dense({CLASSES}, activation="softmax")])
    net.compile("adam", "sparse_categorical_crossentropy")
    return net

def batch(batch_size):
    return np.zeros((batch_size, {FEATURES}), "float32"), np.zeros((batch_size,), "int32")
"""
SUBCLASS = f"""
import keras
import numpy as np

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.last = keras.layers.Dense({WIDTH}, "relu"), keras.layers.Dense({CLASSES}, "softmax")
        self.drop = keras.layers.Dropout(0.1)

    def call(self, x, training=False):
        return self.last(self.drop(self.first(x), training=training))

def model():
    net = Net()
    net.compile("adam", "sparse_categorical_crossentropy")
    return net
""" + MODEL[MODEL.index("\ndef batch") :]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(SETS + MODEL)
    return path


@pytest.fixture(autouse=True)
def no_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERAS_BACKEND", raising=False)


def estimate(path: Path, **options: Any) -> oomcast.Estimate:
    options = {"alloc_conf": "allow_growth:true", "batch_size": BATCH, **options}
    return oomcast.estimate(path, device="a100-40gb", use_calibration=False, **options)


@pytest.mark.parametrize("text", [MODEL, SUBCLASS], ids=["sequential", "subclassed without build"])
def test_a_step_donates_its_state_and_holds_it_once(job: Path, text: str) -> None:
    job.write_text(SETS + text)
    found = estimate(job)

    assert WEIGHTS <= found.breakdown["parameter"] <= WEIGHTS + MiB / 4
    assert 2 * WEIGHTS <= found.breakdown["optimizer_state"] <= 2 * WEIGHTS + MiB / 4
    assert found.provenance["environment"].startswith("jax-")
    assert "keras" in found.provenance["versions"]


def test_the_variable_says_it_where_the_file_says_nothing(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_file = estimate(job)
    job.write_text(MODEL)
    monkeypatch.setenv("KERAS_BACKEND", "jax")

    assert estimate(job).peak_allocated == by_file.peak_allocated


def test_it_holds_what_xla_says_of_keras_own_function(job: Path) -> None:
    """The function that `fit` compiles, beside the job's, by XLA's public figures alone."""
    pytest.importorskip("jax_plugins.xla_cuda12", reason="XLA's compiler for GPUs is not installed")
    program = f"""
{SETS}{MODEL}
import jax
from oomcast.capture.xla import only_describe
only_describe()
from oomcast.capture.jax.ask_xla import ask_xla
from oomcast.capture.jax.step import batch_form, job_step
from oomcast.capture.job_files import JobFunctions
from oomcast.capture.xla.target import mesh_devices
from oomcast.devices import find_gpu
from oomcast.spec import Workload

gpu = find_gpu("a100-40gb")
(device,) = mesh_devices(gpu, 1)
here = jax.sharding.SingleDeviceSharding(device)
place = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here)

with jax.default_device(jax.devices("cpu")[0]):
    net = model()
    net.optimizer.build(net.trainable_variables)
    net._symbolic_build(data_batch=batch({BATCH}))
state = [net.trainable_variables, net.non_trainable_variables, net.optimizer.variables, net.metrics_variables]
state = tuple([place(v.value) for v in part] for part in state)
data = tuple(map(place, batch({BATCH})))
told = jax.jit(net.train_step, donate_argnums=0, keep_unused=True).lower(state, data).compile().memory_analysis()
expected = told.argument_size_in_bytes + told.output_size_in_bytes + told.temp_size_in_bytes - told.alias_size_in_bytes

workload = Workload.create({str(job)!r}, batch_size={BATCH})
functions = JobFunctions(model, lambda: batch({BATCH}), None, None)
schedule = ask_xla(job_step(functions, batch_form(batch({BATCH}), workload), workload), gpu).schedule
held = sum(slot.nbytes for slot in (*schedule.arguments, *schedule.own_results)) + schedule.arena
print(expected, held)
"""
    environment = {**os.environ, "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr[-2000:]
    expected, held = map(int, ran.stdout.split()[-2:])
    assert held == pytest.approx(expected, abs=256)


@pytest.mark.parametrize("phase", ["inference", "eval"])
def test_what_does_not_train_holds_no_optimizer(job: Path, phase: str) -> None:
    found = estimate(job, phase=phase)

    assert found.breakdown["parameter"] <= WEIGHTS + MiB / 4
    assert found.breakdown.get("optimizer_state", 0) == 0
    assert found.breakdown.get("gradient", 0) == 0
    assert found.peak_allocated < estimate(job).peak_allocated
    assert set(found.highest_by_phase) == {"build", "input", "evaluation"}
    assert any("predict" in sentence for sentence in found.assumptions) == (phase == "inference")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('crossentropy")', 'crossentropy", jit_compile=False)'), "jit_compile"),
        (("def batch(", "def loss(model, batch):\n    return 0.0\n\ndef batch("), "compile the model with that loss"),
        (("def batch(", "def shardings(params):\n    return params\n\ndef batch("), "keras.distribution.DataParallel"),
        (('activation="relu"', 'activation="nonesuch"'), "nonesuch"),
    ],
)
def test_what_is_not_followed_is_told(job: Path, change: tuple[str, str], message: str) -> None:
    job.write_text(SETS + MODEL.replace(*change))

    with pytest.raises(BadInput, match=message):
        estimate(job)
