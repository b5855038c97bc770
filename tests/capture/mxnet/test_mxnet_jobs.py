"""MXNet jobs from file to Estimate: Gluon blocks, Symbols, and what is wrong with some of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mxnet as mx
import numpy
import pytest
from mxnet.gluon import nn

import oomcast
from oomcast.capture.mxnet.run import capture_here
from oomcast.errors import BadInput, JobFailed, UnreadableFile
from oomcast.spec import Workload
from oomcast.trace import Category, Trace, peak_of, verify
from oomcast.units import GiB, KiB, MiB

pytestmark = pytest.mark.filterwarnings("ignore")

JOB = """
import mxnet as mx
from mxnet.gluon import nn

def model():
    net = nn.HybridSequential()
    net.add(nn.Dense(512, activation="relu"), nn.Dense(512, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier(), ctx=mx.gpu())
    {hybridize}
    return net

def batch(batch_size):
    return mx.nd.zeros((batch_size, 64), ctx=mx.gpu()), mx.nd.zeros((batch_size,), ctx=mx.gpu())
"""
WEIGHTS = (64 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10) * 4


def written(folder: Path, text: str) -> Path:
    path = folder / "job.py"
    path.write_text(text)
    return path


def estimate(path: Path, batch_size: int = 256, **options: Any) -> oomcast.Estimate:
    return oomcast.estimate(path, batch_size=batch_size, device="v100-16gb", use_calibration=False, **options)


def job(net: Any, batch: Any, **functions: Any) -> Any:
    """An object with a job's functions."""
    plain = {"model": staticmethod(lambda: net()), "batch": staticmethod(lambda batch_size: batch)}
    return type("Job", (), {**plain, **{name: staticmethod(found) for name, found in functions.items()}})


def trace_of(net: Any, batch: Any, *, options: dict[str, Any] | None = None, **functions: Any) -> Trace:
    trace = capture_here(Workload.create(job(net, batch, **functions), framework="mxnet", **(options or {})))
    verify(trace)
    return trace


def total(trace: Trace, category: Category) -> int:
    return sum(allocation.nbytes for allocation in trace.allocations if allocation.category is category)


def dense(*widths: int, hybridized: bool = True) -> Any:
    net = nn.HybridSequential()
    for width in widths:
        net.add(nn.Dense(width))
    if hybridized:
        net.hybridize()
    return net


BATCH = ((32, 16), (32,))


def test_a_job_file_becomes_an_estimate(tmp_path: Path) -> None:
    found = estimate(written(tmp_path, JOB.format(hybridize="net.hybridize()")))

    assert found.breakdown["parameter"] == pytest.approx(WEIGHTS, abs=32 * KiB)  # pages of 4 KiB
    assert found.breakdown["gradient"] == pytest.approx(WEIGHTS, abs=32 * KiB)
    assert found.breakdown["optimizer_state"] == pytest.approx(2 * WEIGHTS, abs=64 * KiB)
    assert found.provenance["environment"].startswith("mxnet")
    assert any("hybridized" in sentence for sentence in found.assumptions)


@pytest.mark.parametrize(
    ("hybridize", "sentence"),
    [
        ("pass", "not hybridized"),
        ("net.hybridize()", "is hybridized: MXNet plans"),
        ("net.hybridize(static_alloc=True, static_shape=True)", "static_alloc"),
    ],
)
def test_how_a_block_runs_is_what_the_job_says(tmp_path: Path, hybridize: str, sentence: str) -> None:
    assert any(sentence in told for told in estimate(written(tmp_path, JOB.format(hybridize=hybridize))).assumptions)


def test_the_pool_is_mxnets_and_takes_its_settings(tmp_path: Path) -> None:
    path = written(tmp_path, JOB.format(hybridize="net.hybridize()"))
    naive, rounded = estimate(path), estimate(path, alloc_conf="pool_type:round")

    assert rounded.peak_allocated > naive.peak_allocated
    with pytest.raises(BadInput, match="expandable_segments"):
        estimate(path, alloc_conf="expandable_segments:true")


def test_weights_are_never_allocated() -> None:
    layers = [40_000] * 8
    trace = trace_of(lambda: dense(*layers), ((1, 40_000), (1, 40_000)), options={"optimizer": "sgd"})

    assert peak_of(trace) > 2 * 8 * 40_000 * 40_000 * 4 > 90 * GiB
    with pytest.raises(BadInput, match="less than 2,147,483,648"):
        trace_of(lambda: dense(50_000), ((1, 50_000), (1, 50_000)))


def test_what_optimizers_keep_is_asked_of_them() -> None:
    sizes = {
        name: total(trace_of(lambda: dense(8), BATCH, options={"optimizer": name}), Category.OPTIMIZER_STATE)
        for name in ("sgd", "sgd-momentum", "adam", "rmsprop", "adagrad")
    }
    weights = (16 * 8 + 8) * 4

    assert sizes == {
        "sgd": 0, "sgd-momentum": weights, "adam": 2 * weights, "rmsprop": weights, "adagrad": weights
    }  # fmt: skip
    with pytest.raises(BadInput, match="MXNet has no optimizer adamw"):
        trace_of(lambda: dense(8), BATCH, options={"optimizer": "adamw"})


@pytest.mark.parametrize("hybridized", [True, False])
def test_the_jobs_own_loss_and_trainer_are_used(hybridized: bool) -> None:
    def loss(model: Any, batch: Any) -> Any:
        x, y = batch
        return mx.gluon.loss.HuberLoss()(model(x), y)

    def optimizer(params: Any) -> Any:
        return mx.gluon.Trainer(params, "ftml", {"learning_rate": 0.1})

    net = dense(8, hybridized=hybridized)
    trace = trace_of(lambda: net, ((32, 16), (32, 8)), loss=loss, optimizer=optimizer)

    assert total(trace, Category.OPTIMIZER_STATE) == 3 * (16 * 8 + 8) * 4
    assert any("huberloss" in allocation.module for allocation in trace.allocations)


class Two(mx.gluon.HybridBlock):  # type: ignore[misc]
    """Two inputs, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.inner = nn.Dense(8, in_units=16)

    def hybrid_forward(self, F: Any, one: Any, other: Any) -> Any:
        return self.inner(F.relu(one) + other), [F.tanh(self.inner(other))]


@pytest.mark.parametrize("hybridized", [True, False])
def test_a_batch_may_have_any_form_for_the_jobs_own_loss(hybridized: bool) -> None:
    def net() -> Any:
        found = Two()
        if hybridized:
            found.hybridize()
        return found

    def loss(model: Any, batch: Any) -> Any:
        first, (second,) = model(batch["one"], batch["rest"][0])
        return mx.sym.broadcast_add(mx.gluon.loss.L2Loss()(first, second), mx.sym.sum(batch["rest"][1]))

    trace = trace_of(net, {"one": (32, 16), "rest": [(32, 16), (32, 8)]}, loss=loss)

    assert total(trace, Category.PARAMETER) == (16 * 8 + 8) * 4
    assert total(trace, Category.INPUT) == 3 * (16 + 16 + 8) * 32 * 4


def test_a_model_may_be_called_twice_unless_it_is_hybridized() -> None:
    def loss(model: Any, batch: Any) -> Any:
        return mx.gluon.loss.L2Loss()(model(batch[0]), model(batch[1]))

    batch = ((32, 16), (32, 16))
    trace = trace_of(lambda: dense(8, 8, 8, hybridized=False), batch, loss=loss)

    assert sum(a.operator == "FullyConnected" for a in trace.allocations) == 3 * 2 * 3  # steps, calls, layers
    with pytest.raises(BadInput, match="calls a hybridized model twice"):
        trace_of(lambda: dense(8, 8, 8), batch, loss=loss)
    with pytest.raises(BadInput, match="with other things than batch"):
        trace_of(lambda: dense(8, 8, 8), batch, loss=lambda model, batch: model(batch[0] / 2))
    with pytest.raises(BadInput, match="never calls the model"):
        trace_of(lambda: dense(8), batch, loss=lambda model, batch: batch[0])


def test_the_labels_say_which_loss_is_meant() -> None:
    def operators(*batch: Any) -> set[str]:
        return {allocation.operator for allocation in trace_of(lambda: dense(8), batch).allocations}

    assert "log_softmax" in operators((32, 16), (32,))
    assert "log_softmax" in operators((32, 16), numpy.zeros((32, 1), "int32"))
    assert "square" in operators((32, 16), (32, 8))


def test_frozen_weights_have_no_gradient() -> None:
    def net() -> Any:
        found = dense(64, 8)
        found[0].collect_params().setattr("grad_req", "null")
        return found

    trace = trace_of(net, BATCH)

    assert total(trace, Category.GRADIENT) == (64 * 8 + 8) * 4
    assert total(trace, Category.BUFFER) == (16 * 64 + 64) * 4


def test_code_that_needs_weights_gets_real_ones() -> None:
    def net() -> Any:
        found = dense(8)
        found.initialize()
        found(mx.nd.zeros((1, 16)))
        return found

    trace = trace_of(net, BATCH)

    assert any("real weights" in sentence for sentence in trace.assumptions)
    assert peak_of(trace) == peak_of(trace_of(lambda: dense(8), BATCH))


def test_micro_batches_share_the_gradients() -> None:
    once, twice = (trace_of(lambda: dense(8), BATCH, options={"accumulation": n}) for n in (1, 2))

    assert peak_of(once) == peak_of(twice)
    assert len(twice.events) > len(once.events)


def symbol() -> Any:
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=256, name="one")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.relu(x), num_hidden=10, name="two"), name="softmax")


def test_a_symbol_is_bound_as_a_module_does(tmp_path: Path) -> None:
    trace = trace_of(symbol, BATCH)
    path = tmp_path / "net-symbol.json"
    symbol().save(str(path))

    assert total(trace, Category.PARAMETER) == (16 * 256 + 256 + 256 * 10 + 10) * 4
    assert any("mx.mod.Module" in sentence for sentence in trace.assumptions)
    assert peak_of(trace_of(lambda: str(path), BATCH)) == peak_of(trace)
    assert peak_of(trace_of(symbol, {"data": (32, 16), "softmax_label": (32,)})) == peak_of(trace)
    with pytest.raises(BadInput, match="a Symbol ends in its own loss"):
        trace_of(symbol, BATCH, loss=lambda model, batch: model)
    with pytest.raises(BadInput, match="no argument image"):
        trace_of(symbol, {"image": (32, 16)})


@pytest.mark.parametrize("content", ["no JSON", '{"nodes": [{"op": "Convolution3", "name": "a", "inputs": []}]}'])
def test_a_saved_symbol_that_cannot_be_read_is_told(tmp_path: Path, content: str) -> None:
    path = tmp_path / "net-symbol.json"
    path.write_text(content)

    with pytest.raises(UnreadableFile, match=r"not a Symbol that MXNet 1\.9\.1 can read"):
        trace_of(lambda: str(path), BATCH)


class Loop(mx.gluon.HybridBlock):  # type: ignore[misc]
    def hybrid_forward(self, F: Any, x: Any) -> Any:
        _, found = F.contrib.while_loop(
            cond=lambda value: F.sum(value) > 0, func=lambda value: (value, [value - 1]), loop_vars=[x],
            max_iterations=5,
        )  # fmt: skip
        return found[0]


class Masked(mx.gluon.HybridBlock):  # type: ignore[misc]
    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.contrib.boolean_mask(x, F.sum(x, axis=1) > 0)


class Plain(mx.gluon.Block):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return mx.nd.relu(x)


def then_dense(block: Any) -> Any:
    net = nn.Sequential()
    net.add(block, nn.Dense(10))
    return net


@pytest.mark.parametrize(
    ("net", "batch", "message"),
    [
        (lambda: then_dense(Loop()), BATCH, "while_loop, which runs an unknown number of times"),
        (lambda: then_dense(Masked()), BATCH, "does not follow from the batch's shapes"),
        (lambda: then_dense(Plain()), BATCH, "make it a HybridBlock"),
        (lambda: dense(8), (32, 16), "returned no labels"),
        (lambda: dense(8), ((32, -1), (32,)), "leaves a dimension open"),
        (lambda: dense(8), (None, None), "without a shape"),
        (lambda: 3, BATCH, "return a gluon.Block, a Symbol, or the path"),
        (lambda: nn.Activation("relu"), BATCH, "nothing is trained"),
    ],
)
def test_bad_jobs_get_a_sentence(net: Any, batch: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        trace_of(net, batch)


def test_what_mxnet_rejects_is_told_in_its_words(tmp_path: Path) -> None:
    text = JOB.format(hybridize="net.hybridize()").replace(
        "nn.Dense(512, activation", "nn.Dense(512, in_units=7, activation", 1
    )

    with pytest.raises(BadInput, match=r"MXNet rejects .*in_units|MXNet rejects .*nconsistent"):
        estimate(written(tmp_path, text))


def test_a_job_that_raises_shows_its_own_lines(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="raised ZeroDivisionError"):
        estimate(written(tmp_path, JOB.format(hybridize="1 / 0")))


@mx.operator.register("twice")
class TwiceProp(mx.operator.CustomOpProp):  # type: ignore[misc]
    pass


def test_custom_operators_are_followed_by_their_outputs_and_told() -> None:
    class Custom(mx.gluon.HybridBlock):  # type: ignore[misc]
        def hybrid_forward(self, F: Any, x: Any) -> Any:
            return F.Custom(x, op_type="twice")

    assert trace_of(lambda: then_dense(Custom()), BATCH).unsupported == {"custom operator twice": 1}


@pytest.mark.parametrize("option", [{"checkpointing": True}, {"precision": "amp-fp16"}])
def test_options_without_meaning_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="not followed for MXNet"):
        trace_of(lambda: dense(8), BATCH, options=option)


def test_half_precision_is_what_the_job_casts() -> None:
    def net() -> Any:
        found = dense(1024, 10)
        found.cast("float16")
        return found

    whole = trace_of(lambda: dense(1024, 10), (numpy.zeros((512, 64), "float32"), (512,)))
    half = trace_of(net, (numpy.zeros((512, 64), "float16"), (512,)))

    assert total(half, Category.PARAMETER) * 2 == total(whole, Category.PARAMETER)
    assert peak_of(half) < 0.6 * peak_of(whole)


def test_convolutions_are_written_down_for_cudnn() -> None:
    def net() -> Any:
        found = nn.HybridSequential()
        found.add(
            nn.Conv2D(8, 3, padding=1), nn.Conv2D(8, 3, groups=2, strides=2), nn.Conv2DTranspose(8, 2), nn.Dense(2)
        )
        found.hybridize()
        return found

    trace = trace_of(net, ((4, 4, 16, 16), (4,)))
    kinds = [(call.operator, call.operands[0].shape, call.operands[2].shape) for call in trace.kernels]

    assert ("conv_fprop", (4, 4, 16, 16), (4, 8, 16, 16)) in kinds
    assert ("conv_dgrad", (4, 8, 16, 16), (4, 8, 7, 7)) in kinds
    assert ("conv_dgrad", (4, 4, 16, 16), (4, 8, 16, 16)) not in kinds  # nobody wants the image's gradient
    assert ("conv_dgrad", (4, 8, 8, 8), (4, 8, 7, 7)) in kinds  # the transposed one, forward
    assert dict(next(call for call in trace.kernels if call.operands[2].shape[2] == 7).attributes)["groups"] == 2


def test_a_recurrent_layer_keeps_cudnns_reserve() -> None:
    def net() -> Any:
        found = nn.HybridSequential()
        found.add(mx.gluon.rnn.LSTM(64, 2, layout="NTC", input_size=32), nn.Dense(10))
        found.hybridize()
        return found

    kept = [a for a in trace_of(net, ((8, 20, 32), (8,))).allocations if a.operator == "RNN"]

    assert max(allocation.nbytes for allocation in kept) == 2 * 20 * 8 * 64 * 6 * 4 < MiB
