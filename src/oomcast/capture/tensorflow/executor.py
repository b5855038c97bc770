"""TensorFlow's executor without the kernels: which node runs when, what it allocates, when each buffer dies.

As in `executor.cc`: a node is ready when its last input or control signal arrived. On a GPU all kernels count as
inexpensive, since the processor only starts them, and the thread that finds nodes ready runs them in line, first come,
first served. Every edge holds a reference to its tensor. When a node has run, its inputs are released, then its outputs
go out on their edges.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from ...errors import BadInput
from ...trace import Category, Phase
from .graph import Graph, Node, OutputSpec, compile_graph
from .memory import Memory, Value
from .shapes import Shapes

__all__ = ["Executor", "Frame"]

_LONGEST_LOOP = 100_000


class Executor:
    """Runs functions, one node at a time; `operators` says what each kind of node does with memory."""

    def __init__(self, memory: Memory, operators: Any, *, on_gpu: bool = True) -> None:
        self.memory = memory
        self.on_gpu = on_gpu
        self.shapes = Shapes()
        self.unsupported: Counter[str] = Counter()
        self.assumptions: dict[str, None] = {}
        self._operators = operators
        self._to_release: list[Value] = []
        self._graphs: dict[str, Graph] = {}
        self._constants: dict[tuple[int, int], Value] = {}

    def run(self, graph: Graph, arguments: Sequence[Value], *, outermost: bool = False) -> list[Value]:
        """Run a function. It takes over one reference to each argument and gives one to each result."""
        frame = Frame(self, graph, outermost)
        return frame.run(arguments)

    def function(self, node: Node, attribute: str) -> Graph:
        """The function that an attribute of a node names."""
        name = node.operation.node_def.attr[attribute].func.name
        if name not in self._graphs:
            self._graphs[name] = compile_graph(node.operation.graph._get_function(name).graph)
        return self._graphs[name]

    def loop(self, node: Node, values: list[Value]) -> list[Value]:
        """A while loop whose condition follows from constants and shapes."""
        condition, body = self.function(node, "cond"), self.function(node, "body")
        for _ in range(_LONGEST_LOOP):
            for value in values:
                self.memory.hold(value)
            (verdict,) = self.run(condition, values)
            self.memory.drop(verdict)
            if verdict.known is None:
                raise BadInput(
                    f"the while loop {node.name} has a trip count that is only known when it runs; "
                    "give it a fixed length (a sequence of static length, maximum_iterations) to have it estimated."
                )
            if not bool(verdict.known):
                return values
            values = self.run(body, values)
        raise BadInput(
            f"the while loop {node.name} runs more than {_LONGEST_LOOP:,} times; it is not followed further."
        )

    def constant(self, node: Node, key: tuple[int, int]) -> Value:
        """A constant lives in its node, from the first run to the end."""
        if key not in self._constants:
            import tensorflow as tf

            known = tf.make_ndarray(node.operation.node_def.attr["value"].tensor)
            value = self.new(node, OutputSpec(tuple(known.shape), node.outputs[0].dtype, node.outputs[0].itemsize))
            value.known = known if known.size <= Shapes.LARGEST_KNOWN else None
            self.memory.hold(value)
            if value.buffer is not None and value.buffer.index >= 0:
                self.memory.relabel(value.buffer, Category.BUFFER)
            self._constants[key] = value
        kept = self._constants[key]
        return Value(kept.shape, kept.dtype, kept.itemsize, kept.buffer, kept.known)

    def new(self, node: Node, spec: OutputSpec, shape: tuple[int, ...] | None = None) -> Value:
        """A tensor in fresh memory."""
        shape = shape if shape is not None else spec.shape
        assert shape is not None
        value = Value(shape, spec.dtype, spec.itemsize)
        if spec.itemsize and not self.on_host(spec.dtype, shape):
            value.buffer = self.memory.new(shape, spec.dtype, spec.itemsize, node.type, node.module)
        return value

    def on_host(self, dtype: str, shape: tuple[int, ...]) -> bool:
        """On a GPU, TensorFlow keeps int32 tensors in host memory, for they are mostly shapes."""
        return self.on_gpu and dtype in ("int32", "string")

    def release_later(self, values: Sequence[Value]) -> None:
        """References that an operator gives up once its outputs are held by their readers."""
        self._to_release.extend(values)

    def release_now(self) -> None:
        waiting, self._to_release = self._to_release, []
        for value in waiting:
            self.memory.drop(value)

    def compute(self, node: Node, inputs: list[Value], key: tuple[int, int]) -> list[Value]:
        return self._operators.compute(self, node, inputs, key)  # type: ignore[no-any-return]


class Frame:
    """One run of one function."""

    def __init__(self, executor: Executor, graph: Graph, outermost: bool) -> None:
        self._executor = executor
        self._graph = graph
        self._outermost = outermost
        self._waits = [node.waits_for for node in graph.nodes]
        self._inputs: list[list[Value | None]] = [[None] * len(node.inputs) for node in graph.nodes]
        self._positions = _edge_positions(graph)
        self._results: dict[tuple[int, int], Value] = {}
        self._result_counts = Counter(graph.results)
        self._backward_left = len(graph.after_loss)
        self._line: deque[int] = deque()

    def run(self, arguments: Sequence[Value]) -> list[Value]:
        graph, memory = self._graph, self._executor.memory
        given = dict(zip(graph.arguments, arguments, strict=True))
        self._line.extend(number for number, wait in enumerate(self._waits) if wait == 0)
        ran = 0
        while self._line:
            number = self._line.popleft()
            node = graph.nodes[number]
            ran += 1
            if self._outermost:
                self._mark(number, node)
            if number in given:
                outputs = [given[number]]
                self._send(number, node, outputs)
                memory.drop(outputs[0])
                continue
            inputs = [value for value in self._inputs[number] if value is not None]
            outputs = self._executor.compute(node, inputs, (id(graph), number))
            for value in outputs:
                memory.hold(value)
            self._executor.release_now()
            for value in inputs:
                memory.drop(value)
            self._inputs[number] = []
            self._send(number, node, outputs)
            for value in outputs:
                memory.drop(value)
        assert ran == len(graph.nodes), "a node waits for one that never runs"
        return [self._results[result] for result in graph.results]

    def _send(self, number: int, node: Node, outputs: Sequence[Value]) -> None:
        memory = self._executor.memory
        for output, value in enumerate(outputs):
            for consumer, position in self._positions[number][output]:
                memory.hold(value)
                self._inputs[consumer][position] = value
                self._arrive(consumer)
            for _ in range(self._result_counts.get((number, output), 0)):
                memory.hold(value)
                self._results[number, output] = value
        for consumer in node.control_consumers:
            self._arrive(consumer)

    def _arrive(self, consumer: int) -> None:
        self._waits[consumer] -= 1
        if self._waits[consumer] == 0:
            self._line.append(consumer)

    def _mark(self, number: int, node: Node) -> None:
        """Phases overlap, since a gradient is applied as soon as it is there: backward ends with its last node."""
        memory = self._executor.memory
        memory.birth = node.phase
        if number in self._graph.after_loss:
            if memory.phase is Phase.FORWARD:
                memory.begin_backward()
            self._backward_left -= 1
        elif self._backward_left == 0 and memory.phase is Phase.BACKWARD and node.phase is Phase.OPTIMIZER:
            memory.enter(Phase.OPTIMIZER, memory.step)


def _edge_positions(graph: Graph) -> list[list[list[tuple[int, int]]]]:
    """By node and output: (consumer, which of its inputs)."""
    positions: list[list[list[tuple[int, int]]]] = [[[] for _ in node.outputs] for node in graph.nodes]
    for number, node in enumerate(graph.nodes):
        for position, (source, output) in enumerate(node.inputs):
            positions[source][output].append((number, position))
    return positions
