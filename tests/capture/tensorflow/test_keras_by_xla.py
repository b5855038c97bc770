"""Keras' step as XLA compiles it for a GPU, asked of XLA's own compiler; `make test-tensorflow` says where that is."""

from __future__ import annotations

import math
from pathlib import Path

import keras
import numpy as np
import pytest

import oomcast
from oomcast.capture.tensorflow import run
from oomcast.capture.tensorflow.by_xla import ask_xla
from oomcast.capture.tensorflow.step import trace_step
from oomcast.capture.xla.other_frameworks import ask_compiler
from oomcast.capture.xla.plan import NotAsked
from oomcast.capture.xla.schedule import play
from oomcast.spec import Spec
from oomcast.trace import Category, Phase, peak_of

BATCH, WIDTH, HIDDEN, CLASSES = 4096, 256, 2048, 10
JOB = f"""
import keras
import numpy as np


def model():
    layers = keras.layers
    return keras.Sequential([
        layers.Input(({WIDTH},)), layers.Dense({HIDDEN}, activation="silu"),
        layers.Dense({HIDDEN}, activation="silu"), layers.Dense({CLASSES}, activation="softmax"),
    ])


def batch(batch_size):
    return np.zeros((batch_size, {WIDTH}), "float32"), np.zeros((batch_size,), "int32")
"""
BY_XLA, BY_TENSORFLOW = "XLA itself", "what was followed is TensorFlow's own executor"


def compiler_is_there() -> bool:
    """Any answer but that it is not installed, or does not start."""
    told = ask_compiler(b"no program", "a100-40gb")
    return not isinstance(told, NotAsked) or "refused the step" in told.reason


needs_compiler = pytest.mark.skipif(not compiler_is_there(), reason="XLA's compiler for GPUs is not installed")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def compiling(*options: str) -> str:
    """The job, whose model() compiles the model itself."""
    arguments = ", ".join(("'adam'", "'sparse_categorical_crossentropy'", *options))
    named = JOB.replace("    return keras.Sequential", "    net = keras.Sequential")
    return named.replace("    ])\n", f"    ])\n    net.compile({arguments})\n    return net\n")


def estimate(path: Path, **options: object) -> oomcast.Estimate:
    return oomcast.estimate(path, batch_size=BATCH, device="a100-40gb", use_calibration=False, **options)  # type: ignore[arg-type]


def said(answer: oomcast.Estimate, what: str) -> bool:
    return any(what in sentence for sentence in answer.assumptions)


@needs_compiler
def test_the_trace_holds_what_the_compiler_allocates() -> None:
    """Arguments, results and temporaries add up to XLA's own sums, with the variables under their names."""
    model = keras.Sequential(
        [
            keras.layers.Input((16, 16, 3)),
            keras.layers.Conv2D(32, 3, activation="silu"),
            keras.layers.BatchNormalization(),
            keras.layers.Conv2D(64, 3, groups=2),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(CLASSES, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    step = trace_step(model, (np.zeros((8, 16, 16, 3), "float32"), np.zeros((8,), "int32")), by_xla=True)
    planned = ask_xla(step, "a100-40gb")
    assert not isinstance(planned, NotAsked), planned.reason
    schedule, told = planned
    weights = sum(math.prod(weight.shape) * 4 for weight in model.trainable_variables)

    by_category = dict.fromkeys(Category, 0)
    for slot in schedule.arguments:
        by_category[slot.category] += slot.nbytes
    assert by_category[Category.PARAMETER] == weights
    assert by_category[Category.OPTIMIZER_STATE] >= 2 * weights
    assert by_category[Category.INPUT] == 8 * 16 * 16 * 3 * 4 + 8 * 4
    assert sum(by_category.values()) == told.arguments
    assert schedule.arena >= told.temporaries > 8 * 14 * 14 * 32 * 4
    trace = play(schedule, steps=3).trace({}, {})
    assert peak_of(trace) >= told.arguments + told.temporaries
    assert peak_of(trace) == pytest.approx(told.arguments + told.temporaries + told.results - told.aliased, abs=4096)
    phases = {instruction.place.phase for instruction in schedule.instructions}
    assert phases == {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER}


@needs_compiler
def test_keras_default_is_planned_by_xla_and_a_model_that_forbids_it_is_not(job: Path) -> None:
    by_xla = estimate(job, optimizer="adam")
    job.write_text(
        JOB.replace("    return keras.Sequential", "    net = keras.Sequential").replace(
            "    ])\n",
            "    ])\n    net.compile('adam', 'sparse_categorical_crossentropy', jit_compile=False)\n    return net\n",
        )
    )
    by_tensorflow = estimate(job)

    assert said(by_xla, BY_XLA)
    assert not said(by_xla, BY_TENSORFLOW)
    assert not said(by_tensorflow, BY_XLA)
    assert not said(by_tensorflow, BY_TENSORFLOW)  # it is what runs, no assumption
    hidden = BATCH * HIDDEN * 4
    assert by_xla.peak_allocated <= by_tensorflow.peak_allocated - hidden  # silu and its gradient are fused
    assert any(tensor.module.startswith("sequential") for tensor in by_xla.top_tensors)


def test_a_model_that_the_job_compiled_as_keras_does_by_itself_is_xlas(job: Path) -> None:
    """Keras looks for a GPU when it decides; there is none on this machine, and one where the job will run."""
    job.write_text(compiling())
    answer = estimate(job)

    assert said(answer, BY_XLA) or said(answer, BY_TENSORFLOW)


def test_without_the_compiler_it_says_so_and_what_was_followed(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "compiler_may_be_there", lambda: False)
    trace = run.capture_here(Spec.read(str(job), device="a100-40gb", batch_size=BATCH))

    (told,) = [sentence for sentence in trace.assumptions if BY_TENSORFLOW in sentence]
    assert "pip install 'oomcast[jax-gpu]'" in told


def test_weights_that_are_too_large_for_this_machine_are_not_made(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "compiler_may_be_there", lambda: True)
    monkeypatch.setattr(run, "_MOST_WEIGHTS", 1000)
    trace = run.capture_here(Spec.read(str(job), device="a100-40gb", batch_size=BATCH))

    assert any("would have to be made on this machine" in sentence for sentence in trace.assumptions)


@needs_compiler
def test_a_step_that_xla_cannot_compile_is_followed_as_tensorflow_runs_it(job: Path) -> None:
    dilated = "tf.nn.dilation2d(x, tf.zeros((3, 3, 1)), (1, 1, 1, 1), 'SAME', 'NHWC', (1, 1, 1, 1))"
    last = f'layers.Dense({CLASSES}, activation="softmax")'
    between = f"layers.Reshape((-1, 64, 1)), layers.Lambda(lambda x: {dilated}), layers.Flatten()"
    text = JOB.replace("import numpy as np", "import numpy as np\nimport tensorflow as tf")
    job.write_text(text.replace(last, f"{between}, {last}"))
    answer = estimate(job)

    assert said(answer, BY_TENSORFLOW)
    assert not said(answer, BY_XLA)
