"""The memory plan beside MXNet's own, and whole steps beside what MXNet allocates for them."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet.gluon import nn

from lab.checks.mxnet_check import figures_of_step
from oomcast.capture.mxnet.graph import Graph, Node
from oomcast.capture.mxnet.operators import ignored_inputs
from oomcast.capture.mxnet.plan import make_plan, read_counts, with_sums_in_place
from oomcast.capture.mxnet.read import forms_of, planned_bytes, read_graph
from oomcast.capture.tensors import Tensor
from oomcast.units import MiB

pytestmark = pytest.mark.filterwarnings("ignore")

LARGE = 1 << 26
"""Elements of a value: 256 MiB each, of which nothing is ever allocated."""


def planned(symbol: Any, **shapes: tuple[int, ...]) -> tuple[int, int]:
    """The pool of an executor: as oomcast plans it, and as MXNet does."""
    forms = forms_of(symbol, {name: (shape, "float32") for name, shape in shapes.items()}, "a test")
    graph = read_graph(symbol, forms, hinted=True)
    counts = read_counts(graph.nodes, (*graph.outputs, *graph.gradients.values()))
    for node in graph.nodes:
        counts.subtract(node.inputs[number] for number in ignored_inputs(node))
    elsewhere = {*graph.gradients.values(), *graph.variables().values()}
    return make_plan(graph, graph.nodes, counts, elsewhere).planned, planned_bytes(symbol, forms)


@pytest.mark.parametrize("name", ["resnet18_v1", "mobilenetv2_0.25", "squeezenet1.1", "densenet121", "inceptionv3"])
def test_networks_are_planned_as_mxnet_plans_them(name: str) -> None:
    symbol = mx.gluon.model_zoo.vision.get_model(name)(mx.sym.var("data"))
    size = 299 if name == "inceptionv3" else 224
    own, theirs = planned(symbol, data=(512, 3, size, size))

    assert own // MiB == theirs // MiB > 1000


UNARY = (mx.sym.relu, mx.sym.exp, mx.sym.sigmoid, mx.sym.square, mx.sym.BlockGrad, mx.sym.identity, mx.sym.softmax)
BINARY = (mx.sym.elemwise_add, mx.sym.elemwise_mul, mx.sym.broadcast_sub, mx.sym.maximum)


@st.composite
def symbols(draw: st.DrawFn) -> Any:
    """Chains with branches, values of several sizes among them."""
    values = {1: [mx.sym.var("data")]}
    for _ in range(draw(st.integers(1, 14))):
        size = draw(st.sampled_from(sorted(values)))
        one, other = (values[size][draw(st.integers(0, len(values[size]) - 1))] for _ in range(2))
        kind = draw(st.sampled_from(["unary", "unary", "binary", "binary", "halve", "double", "sum"]))
        if kind == "unary":
            made = draw(st.sampled_from(UNARY))(one)
        elif kind == "binary":
            made = draw(st.sampled_from(BINARY))(one, other)
        elif kind == "halve" and size < 4:
            size, made = size * 2, mx.sym.slice_axis(one, axis=0, begin=0, end=LARGE // 1024 // (size * 2))
        elif kind == "double" and size > 1:
            size, made = size // 2, mx.sym.concat(one, other, dim=0)
        else:
            made = mx.sym.add_n(one, other, one)
        values.setdefault(size, []).append(made)
    ends = [mx.sym.sum(value) for of_size in values.values() for value in of_size[-3:]]
    return mx.sym.MakeLoss(mx.sym.add_n(*ends))


@settings(max_examples=40, deadline=None)
@given(symbols())
def test_random_graphs_are_planned_as_mxnet_plans_them(symbol: Any) -> None:
    own, theirs = planned(symbol, data=(LARGE // 1024, 1024))

    assert own // MiB == theirs // MiB


def test_long_sums_of_gradients_are_added_up_in_place() -> None:
    data = mx.sym.var("data")
    symbol = mx.sym.MakeLoss(mx.sym.add_n(*(mx.sym.sum(mx.sym.exp(data * factor)) for factor in range(2, 12))))
    forms = forms_of(symbol, {"data": ((LARGE // 1024, 1024), "float32")}, "a test")
    graph = read_graph(symbol, forms, hinted=True)
    nodes = list(graph.nodes)
    plan = make_plan(graph, nodes, read_counts(nodes, (*graph.outputs, *graph.gradients.values())), ())

    changed = with_sums_in_place(graph, nodes, plan)
    sums = [node for node in nodes if node.type == "_grad_add"]

    assert len(sums) == 9
    assert all(plan.place[node.inputs[1]] != plan.place[node.outputs[0]] for node in sums)
    assert all(changed.place[node.inputs[1]] == changed.place[node.outputs[0]] for node in sums)


def test_memory_is_taken_that_is_at_most_sixteen_times_as_large() -> None:
    def total(second: int) -> int:
        shapes = {0: (), 1: (1024,), 2: (1,), 3: (second,)}
        tensors = {value: Tensor(shape, "float32", 4) for value, shape in shapes.items()}
        nodes = tuple(
            Node(kind, kind, inputs, (value,), {}, ())
            for value, (kind, inputs) in enumerate([("", ()), ("one", (0,)), ("two", (1,)), ("three", (2,))])
        )
        graph = Graph(nodes, tensors, (3,), {}, 4)
        return make_plan(graph, nodes, read_counts(nodes, (3,)), {0, 2}).planned // 4

    assert total(64) == 1024  # it lies in the first's memory
    assert total(63) == 1024 + 63
    assert total(16 * 1024) == 16 * 1024  # the first's memory grows
    assert total(16 * 1024 + 16) == 1024 + 16 * 1024 + 16


class Residual(mx.gluon.HybridBlock):  # type: ignore[misc]
    def __init__(self, width: int, share: bool) -> None:
        super().__init__()
        with self.name_scope():
            self.first = nn.Conv2D(width, 3, padding=1, use_bias=False, in_channels=width)
            self.second = self.first if share else nn.Conv2D(width, 3, padding=1, in_channels=width)
            self.norm = nn.BatchNorm()

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        y = self.norm(self.second(F.relu(self.first(x)) * 2))
        return x + y.reshape((0, 0, -1)).reshape_like(x)


LAYERS = {
    "conv": lambda width: nn.Conv2D(width, 3, padding=1),
    "norm": lambda width: nn.BatchNorm(),
    "relu": lambda width: nn.Activation("relu"),
    "swish": lambda width: nn.Swish(),
    "leaky": lambda width: nn.LeakyReLU(0.1),
    "pool": lambda width: nn.MaxPool2D(2, 1, 1),
    "mean": lambda width: nn.AvgPool2D(3, 1, 1),
    "dropout": lambda width: nn.Dropout(0.2),
    "instance": lambda width: nn.InstanceNorm(),
}


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=6),
    st.integers(0, 2),
    st.sampled_from(["hybridized", "imperative", "static"]),
    st.sampled_from(["adam", "sgd-momentum", "adagrad"]),
)
def test_steps_hold_what_mxnet_allocates(layers: list[str], residuals: int, engine: str, optimizer: str) -> None:
    def build() -> Any:
        net = nn.HybridSequential()
        net.add(nn.Conv2D(8, 3, padding=1))
        for name in layers:
            net.add(LAYERS[name](8))
        for number in range(residuals):
            net.add(nn.Conv2D(8, 1), Residual(8, share=number == 1))
        net.add(nn.GlobalAvgPool2D(), nn.Dense(10))
        if engine != "imperative":
            net.hybridize(static_alloc=engine == "static")
        return net

    batch = (numpy.zeros((32, 3, 24, 24), "float32"), numpy.zeros((32,), "float32"))
    figures = figures_of_step(build, batch, optimizer=optimizer)

    assert figures["estimated"] == pytest.approx(figures["measured"], rel=0.001)


@pytest.mark.parametrize("engine", ["hybridized", "imperative"])
@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_hold_what_mxnet_allocates(layer: str, engine: str) -> None:
    def build() -> Any:
        net = nn.HybridSequential()
        net.add(nn.Embedding(100, 32), getattr(mx.gluon.rnn, layer)(64, 2, layout="NTC", input_size=32))
        net.add(nn.Dense(100, flatten=False))
        if engine == "hybridized":
            net.hybridize()
        return net

    figures = figures_of_step(build, (numpy.zeros((16, 20), "int32"), numpy.zeros((16, 20), "float32")))

    assert figures["estimated"] == pytest.approx(figures["measured"], rel=0.001)


@pytest.mark.parametrize("name", ["resnet18_v1", "mobilenet0.25", "resnet18_v2"])
def test_executors_hold_what_mxnet_allocates(name: str) -> None:
    def build() -> Any:
        net = mx.gluon.model_zoo.vision.get_model(name, classes=10)
        return mx.sym.SoftmaxOutput(net(mx.sym.var("data")), name="softmax")

    figures = figures_of_step(build, (numpy.zeros((4, 3, 64, 64), "float32"), numpy.zeros((4,), "float32")))

    assert figures["estimated"] == pytest.approx(figures["measured"], rel=0.001)
