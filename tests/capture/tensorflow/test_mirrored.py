"""MirroredStrategy: one replica of a Keras model on several GPUs, from TensorFlow's own graph for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import oomcast
from oomcast.capture import capture
from oomcast.errors import BadInput
from oomcast.spec import Spec
from oomcast.trace import Category, Trace, peak_of

BATCH, FEATURES, WIDTH, CLASSES = 16, 1024, 2048, 10
SIZES = [FEATURES * WIDTH * 4, WIDTH * 4, WIDTH * CLASSES * 4, CLASSES * 4]
WEIGHTS = sum(SIZES)
JOB = f"""
import keras
import numpy as np
import tensorflow as tf


def model():
    layers = keras.layers
    with tf.distribute.MirroredStrategy().scope():
        net = keras.Sequential([
            layers.Input(({FEATURES},)), layers.Dense({WIDTH}, activation="relu"), layers.Dense({CLASSES}, "softmax")
        ])
        net.compile("adam", "sparse_categorical_crossentropy")
    return net


def batch(batch_size):
    return np.zeros((batch_size, {FEATURES}), "float32"), np.zeros((batch_size,), "int32")
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def trace_of(path: Path, device: str, **options: object) -> Trace:
    return capture(Spec.read(str(path), device=device, batch_size=BATCH, **options))  # type: ignore[arg-type]


def held(trace: Trace, category: Category) -> int:
    return sum(made.nbytes for made in trace.allocations if made.category is category)


def test_a_replica_holds_its_variables_once_and_its_gradients_packed(job: Path) -> None:
    one, two, four = (trace_of(job, device) for device in ("a100-40gb", "2xa100-40gb", "4xa100-40gb"))

    assert held(one, Category.PARAMETER) == held(two, Category.PARAMETER) == held(four, Category.PARAMETER) == WEIGHTS
    assert held(two, Category.OPTIMIZER_STATE) == pytest.approx(2 * WEIGHTS, abs=64)
    packed = [made.nbytes for made in two.allocations if made.operator == "ConcatV2" and made.step == 1]
    assert packed == [WEIGHTS]
    assert not any(made.operator == "CollectiveReduceV2" for made in two.allocations)  # it sums where they lie
    unpacked = [made.nbytes for made in two.allocations if made.operator == "SplitV" and made.step == 1]
    assert sorted(unpacked) == sorted(SIZES)  # the last is no multiple of 64 bytes: all are copied
    assert peak_of(four) == pytest.approx(peak_of(two), abs=4096)


def test_packing_is_the_peak_where_the_optimizer_holds_little(job: Path) -> None:
    """The gradients and their copy beside the weights; on one GPU each is applied, and gone, as it comes."""
    one, two = (peak_of(trace_of(job, device, optimizer="sgd")) for device in ("a100-40gb", "2xa100-40gb"))

    assert two == pytest.approx(3 * WEIGHTS, rel=0.05)
    assert one < 2.2 * WEIGHTS


def test_the_answer_is_what_every_gpu_holds_with_nccls_buffers(job: Path) -> None:
    answer = oomcast.estimate(job, batch_size=BATCH, device="4xa100-40gb", use_calibration=False)

    assert [(rank.role, rank.count) for rank in answer.ranks] == [("every GPU", 4)]
    assert answer.breakdown["communication"] > 0
    assert any("One replica of MirroredStrategy" in sentence for sentence in answer.assumptions)


def test_on_one_gpu_there_is_one_replica(job: Path) -> None:
    mirrored = trace_of(job, "a100-40gb")
    job.write_text(JOB.replace("with tf.distribute.MirroredStrategy().scope():", "if True:"))
    job.write_text(job.read_text().replace('crossentropy")', 'crossentropy", jit_compile=False)'))

    assert peak_of(mirrored) == pytest.approx(peak_of(trace_of(job, "a100-40gb")), rel=0.001)


def test_inference_is_followed_too(job: Path) -> None:
    trace = trace_of(job, "2xa100-40gb", phase="inference")

    assert held(trace, Category.PARAMETER) == WEIGHTS
    assert held(trace, Category.OPTIMIZER_STATE) == 0


@pytest.mark.parametrize(
    ("change", "device", "message"),
    [
        (("with tf.distribute.MirroredStrategy().scope():", "if True:"), "2xa100-40gb", "trains on 1 of the 2 GPUs"),
        (("MirroredStrategy()", 'OneDeviceStrategy("CPU:0")'), "a100-40gb", "MirroredStrategy is followed"),
        (("", ""), "2x2xa100-40gb", "several nodes are not followed"),
    ],
)
def test_what_is_not_followed_is_told(job: Path, change: tuple[str, str], device: str, message: str) -> None:
    job.write_text(JOB.replace(*change))

    with pytest.raises(BadInput, match=message):
        trace_of(job, device)


def test_a_layout_of_torchs_is_refused(job: Path) -> None:
    with pytest.raises(BadInput, match="by its strategy"):
        oomcast.estimate(job, batch_size=BATCH, device="2xa100-40gb", parallel="ddp")
