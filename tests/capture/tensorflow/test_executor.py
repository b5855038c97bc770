"""The executor on small functions: who shares a buffer with whom, and when each one dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from oomcast.capture.tensorflow.executor import Executor
from oomcast.capture.tensorflow.graph import compile_graph
from oomcast.capture.tensorflow.memory import Memory, Value
from oomcast.capture.tensorflow.operators import Operators, Variable
from oomcast.errors import BadInput
from oomcast.simulate import BfcSettings, simulate
from oomcast.trace import Category, EventKind, Trace, verify
from oomcast.units import KiB

N = 64 * KiB // 4  # floats of a tensor of 64 KiB

pytestmark = pytest.mark.filterwarnings("ignore")


def run(function: Callable[..., Any], *specs: Any, on_gpu: bool = True, variable: Any = None) -> Trace:
    with tf.Graph().as_default():
        state = tf.Variable(tf.zeros(variable)) if variable is not None else None
        given = (lambda *xs: function(state, *xs)) if state is not None else function
        graph = tf.function(given).get_concrete_function(*specs).graph
    memory = Memory()
    executor = Executor(memory, Operators(), on_gpu=on_gpu)
    arguments = []
    for tensor in graph.inputs:
        if tensor.dtype == tf.resource:
            value = Value(tuple(variable), "float32", 4)
            value.buffer = memory.new(value.shape, "float32", 4, "variable", "", Category.PARAMETER)
            memory.hold(value)
            arguments.append(Value((), "resource", 0, payload=Variable("v", value, Category.PARAMETER)))
            continue
        value = Value(tuple(tensor.shape), tensor.dtype.name, tensor.dtype.size)
        if not executor.on_host(value.dtype, value.shape):
            value.buffer = memory.new(value.shape, value.dtype, value.itemsize, "input", "", Category.INPUT)
        memory.hold(value)
        memory.hold(value)  # the caller keeps its batch
        arguments.append(value)
    for result in executor.run(compile_graph(graph), arguments):
        memory.drop(result)
    trace = memory.trace()
    verify(trace)
    return trace


def made(trace: Trace, at_least: int = 32 * KiB) -> list[str]:
    return [
        trace.allocations[index].operator
        for kind, index in trace.events
        if kind is EventKind.ALLOCATE and trace.allocations[index].nbytes >= at_least
    ]


def test_elementwise_operators_write_where_their_input_lay() -> None:
    trace = run(lambda x: tf.exp(tf.nn.relu(tf.nn.bias_add(tf.matmul(x, x), x[0]))), tf.TensorSpec((128, 128)))

    assert made(trace) == ["input", "MatMul"]


def test_but_not_while_another_reads_it() -> None:
    def function(x: Any) -> Any:
        product = tf.matmul(x, x)
        return tf.exp(product) + tf.sqrt(product)

    trace = run(function, tf.TensorSpec((128, 128)))

    # Whichever of the two comes first allocates; the other then has the product for itself.
    assert sorted(made(trace)) == ["Exp", "MatMul", "input"]


def test_reshaping_is_free_and_everything_dies() -> None:
    trace = run(lambda x: tf.reshape(tf.transpose(tf.reshape(x, (128, 128))), (-1,)), tf.TensorSpec((N,)))

    assert made(trace) == ["input", "Transpose"]
    assert sum(kind is EventKind.FREE for kind, _ in trace.events) >= 1


def test_a_variable_changes_in_place_unless_it_is_still_read() -> None:
    def in_place(state: Any, x: Any) -> None:
        state.assign_add(x)

    def still_read(state: Any, x: Any) -> Any:
        before = state.read_value()
        changed = state.assign_add(x, read_value=False)
        with tf.control_dependencies([changed]):
            return tf.exp(before)

    spec = tf.TensorSpec((N,))
    assert made(run(in_place, spec, variable=(N,))) == ["input", "variable"]
    assert "AssignAddVariableOp" in made(run(still_read, spec, variable=(N,)))


def test_int32_lies_on_the_host_of_a_gpu() -> None:
    spec = tf.TensorSpec((N,), tf.int32)

    assert made(run(lambda x: x + 1, spec)) == []
    assert made(run(lambda x: x + 1, spec, on_gpu=False)) == ["input", "AddV2"]


def test_a_loop_keeps_what_it_stacks() -> None:
    def function(x: Any) -> Any:
        def body(index: Any, rows: Any) -> Any:
            return index + 1, rows.write(index, x * 2.0)

        rows = tf.TensorArray(tf.float32, 8, element_shape=(N,))
        _, rows = tf.while_loop(lambda index, _: index < 8, body, (0, rows))
        return rows.stack()

    trace = run(function, tf.TensorSpec((N,)))
    timeline = simulate(trace, settings=BfcSettings())

    assert made(trace).count("Mul") == 8
    assert "TensorListStack" in made(trace)
    assert timeline.peak_requested >= (8 + 8 + 1) * 64 * KiB


def test_a_loop_of_unknown_length_is_bad_input() -> None:
    def function(x: Any) -> Any:
        return tf.while_loop(lambda y: tf.reduce_sum(y) < 10.0, lambda y: (y * 2.0,), (x,))

    with pytest.raises(BadInput, match="trip count"):
        run(function, tf.TensorSpec((N,)))


def test_a_size_that_depends_on_values_is_bad_input() -> None:
    with pytest.raises(BadInput, match="only known when it runs"):
        run(lambda x: tf.boolean_mask(x, x > 0), tf.TensorSpec((N,)))


def test_what_is_computed_twice_alike_is_there_once() -> None:
    """Grappler's: the same node of the same inputs, whatever its name; random numbers are never the same."""

    def twice(x: Any) -> Any:
        return tf.reverse(tf.sin(x), [0]) * tf.reverse(tf.sin(x), [0])

    def in_another_way(x: Any) -> Any:
        return tf.reverse(tf.sin(x), [0]) * tf.reverse(tf.cos(x), [0])

    def at_random(x: Any) -> Any:
        return tf.reverse(tf.random.uniform(x.shape), [0]) * tf.reverse(tf.random.uniform(x.shape), [0])

    spec = tf.TensorSpec((N,))
    assert made(run(twice, spec)) == ["input", "Sin", "ReverseV2", "Mul"]
    assert made(run(in_another_way, spec)).count("ReverseV2") == 2
    assert made(run(at_random, spec)).count("RandomUniform") == 2


def test_products_are_the_same_in_either_order() -> None:
    def twice(x: Any, y: Any) -> Any:
        return tf.reverse(x * y, [0]) + tf.reverse(y * x, [0])

    def otherwise(x: Any, y: Any) -> Any:
        return tf.reverse(x - y, [0]) + tf.reverse(y - x, [0])

    specs = tf.TensorSpec((N,)), tf.TensorSpec((N,))
    assert made(run(twice, *specs)).count("Mul") == 1
    assert made(run(otherwise, *specs)).count("Sub") == 2
