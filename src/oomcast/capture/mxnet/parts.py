"""A graph's two passes as one of MXNet's engines runs them: when memory is taken, and when it is given back.

Memory is taken when it is first written, and given back when no value that lies in it will be read again; what
gradients read lives until they have read it. The engines differ in what lies together, and in what they keep:

- `cached_op`: a hybridized block. Memory is planned for each pass; with `static_alloc` it then stays for good.
- `executor`: a Symbol that is bound. One plan for both passes, outputs included; its memory stays, too.
- `imperative`: operators one by one. Every output has memory of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...trace import Category, TraceBuilder
from .graph import Graph, Node, convolutions
from .operators import ignored_inputs, state_bytes
from .plan import Plan, make_plan, read_counts, with_sums_in_place

__all__ = ["Part", "cached_op", "executor", "imperative"]

Key = tuple[str, int]
"""A piece of memory: which plan's, or which use, and its number there."""


@dataclass(frozen=True)
class _Layout:
    """Value → the memory it lies in, and how large that is. Values that are not in it have their memory elsewhere."""

    home: Mapping[int, Key]
    sizes: Mapping[Key, int]


@dataclass(frozen=True)
class _Ends:
    """What a graph has to do with the code around it."""

    results: Collection[int]
    """The gradients that are wanted of it."""
    held: Collection[int] = ()
    """Values that a variable of the user's holds until it is set anew."""
    handed_on: Collection[int] = ()
    """Results that another graph reads."""
    has_heads: bool = True
    """The gradients of the outputs are arrays that the backward pass begins with; else another graph hands them on."""


class Part:
    """One graph, run again and again; with `stays`, what it once took stays taken."""

    def __init__(
        self,
        graph: Graph,
        backward: Sequence[Node],
        layout: _Layout,
        ends: _Ends,
        *,
        on_gpu: bool,
        stays: bool,
        forward: Sequence[Node] | None = None,
    ) -> None:
        self._graph = graph
        self._forward = _operators(graph.nodes[: graph.forward]) if forward is None else forward
        self._backward = backward
        self._layout = layout
        self._on_gpu = on_gpu
        self._stays = stays
        self._held = frozenset(ends.held)
        self._handed_on = frozenset(ends.handed_on)
        self._saved = read_counts(_operators(graph.nodes[graph.forward :]))
        self._used = read_counts(backward, self._handed_on)
        made = {value for node in self._forward for value in node.outputs}
        self._kept = {layout.home[value] for value in made & set(self._saved) if value in layout.home}
        """Memory that something lies in which gradients read."""
        self._wanted = {*self._used, *ends.results}
        self._heads = _head_gradients(graph, backward) if ends.has_heads else []
        self._blocks: dict[Key, int | None] = {}
        self._holds: Counter[Key] = Counter()
        self._left: Counter[int] = Counter()
        self._variables: dict[int, int | None] = {}
        """The blocks of held values, as the user's variables have them."""

    def forward(self, record: TraceBuilder) -> None:
        self._holds = Counter(self._layout.home.values())
        self._left = read_counts(self._forward) + self._saved
        for node in self._forward:
            self._run(record, node)
            state = state_bytes(self._graph, node, on_gpu=self._on_gpu)
            if state:
                self._take(record, ("state", node.outputs[0]), state, Category.ACTIVATION, node, node.outputs[0])

    def backward(self, record: TraceBuilder) -> None:
        """Ends with what is handed on still there; `finish` gives it back."""
        self._left = Counter(self._used)
        for value in self._heads:
            tensor = self._graph.tensors[value]
            self._blocks["head", value] = record.allocate(
                tensor.nbytes, Category.TEMPORARY, "gradient of the output", "", "", tensor.shape, tensor.dtype
            )
        for node in self._backward:
            self._run(record, node)

    def finish(self, record: TraceBuilder) -> None:
        """The tape is cleared: all that the step made and that does not stay is given back."""
        for key in list(self._blocks):
            if not self._stays or key[0] == "head":
                self._give(record, key)

    def _run(self, record: TraceBuilder, node: Node) -> None:
        for value in node.outputs:
            key = self._layout.home.get(value)
            if key is not None:
                category = Category.ACTIVATION if key in self._kept else Category.TEMPORARY
                self._take(record, key, self._layout.sizes[key], category, node, value)
            elif value in self._held:
                self._replace(record, node, value)
        if self._on_gpu:
            for call in convolutions(self._graph, node, self._wanted):
                record.kernel(call)
        if not self._stays:
            for value in node.inputs:
                self._left[value] -= 1
            for value in dict.fromkeys((*node.inputs, *node.outputs)):
                if not self._left[value]:
                    self._drop(record, value)

    def _take(self, record: TraceBuilder, key: Key, nbytes: int, category: Category, node: Node, value: int) -> None:
        if key not in self._blocks:
            tensor = self._graph.tensors[value]
            self._blocks[key] = record.allocate(nbytes, category, node.type, node.name, "", tensor.shape, tensor.dtype)

    def _replace(self, record: TraceBuilder, node: Node, value: int) -> None:
        tensor = self._graph.tensors[value]
        new = record.allocate(tensor.nbytes, Category.ACTIVATION, node.type, node.name, "", tensor.shape, tensor.dtype)
        record.free(self._variables.get(value))
        self._variables[value] = new

    def _drop(self, record: TraceBuilder, value: int) -> None:
        """Nobody reads the value any more; its memory goes with the last of those that lie in it."""
        self._give(record, ("head", value))
        key = self._layout.home.get(value)
        if key is not None:
            self._holds[key] -= 1
            if self._holds[key] == 0:
                self._give(record, key)

    def _give(self, record: TraceBuilder, key: Key) -> None:
        if key in self._blocks:
            record.free(self._blocks.pop(key))


def cached_op(graph: Graph, wanted: Sequence[str], *, on_gpu: bool, static: bool) -> Part:
    """A hybridized block; its outputs and the gradients of its variables have arrays of their own."""
    backward = _operators(graph.backward_for(wanted))
    forward = _operators(graph.nodes[: graph.forward])
    saved = read_counts(_operators(graph.nodes[graph.forward :]))
    variables = set(graph.variables().values())
    results = {graph.gradients[name] for name in wanted}
    before = {value for node in graph.nodes[: graph.forward] for value in node.outputs}
    first = make_plan(graph, forward, read_counts(forward, graph.outputs) + saved, {*variables, *graph.outputs})
    second = make_plan(graph, backward, read_counts(backward, results), {*before, *variables, *results})
    if static:
        second = with_sums_in_place(graph, backward, second)
    layout = _joined(graph, {"forward": first, "backward": second})
    ends = _Ends(results, held=graph.outputs, has_heads=False)
    return Part(graph, backward, layout, ends, on_gpu=on_gpu, stays=static)


def executor(graph: Graph, wanted: Sequence[str], *, on_gpu: bool) -> Part:
    """A bound Symbol; the arrays of arguments and their gradients are given to it."""
    backward = _operators(graph.backward_for(wanted))
    nodes = [*_operators(graph.nodes[: graph.forward]), *backward]
    results = [graph.gradients[name] for name in wanted]
    counts = read_counts(nodes, (*graph.outputs, *results))
    for node in nodes:
        counts.subtract(node.inputs[number] for number in ignored_inputs(node))
    plan = make_plan(graph, nodes, counts, {*results, *graph.variables().values()})
    layout = _joined(graph, {"plan": with_sums_in_place(graph, nodes, plan)})
    return Part(graph, backward, layout, _Ends(results), on_gpu=on_gpu, stays=True)


def imperative(
    graph: Graph,
    wanted: Sequence[str],
    *,
    on_gpu: bool,
    held: Collection[int],
    hands_on: bool = False,
    order: Mapping[str, Sequence[int]] | None = None,
    views: Collection[str] = (),
) -> Part:
    """Operators one by one. `order`: by name, when the operators of that name are called; `views` share memory.

    With `hands_on`, the gradients have no arrays yet: another part reads them.
    """
    forward = _operators(graph.nodes[: graph.forward])
    if order is not None:
        forward = _in_order(forward, order)
    backward = _operators(graph.backward_for(wanted))
    results = {graph.gradients[name] for name in wanted}
    elsewhere = {*graph.variables().values(), *held, *(() if hands_on else results)}
    home: dict[int, Key] = {}
    for node in (*forward, *backward):
        if node.type == "Reshape" and node.name in views:
            home |= {node.outputs[0]: home[node.inputs[0]]} if node.inputs[0] in home else {}
            continue
        home |= {value: ("value", value) for value in node.outputs if value not in elsewhere}
    sizes: dict[Key, int] = {}
    for value, key in home.items():
        sizes[key] = max(sizes.get(key, 0), graph.tensors[value].nbytes)
    ends = _Ends(results, held, results if hands_on else ())
    return Part(graph, backward, _Layout(home, sizes), ends, on_gpu=on_gpu, stays=False, forward=forward)


def _operators(nodes: Iterable[Node]) -> list[Node]:
    return [node for node in nodes if node.type]


def _head_gradients(graph: Graph, backward: Sequence[Node]) -> list[int]:
    """Variables of the backward pass only: gradients of the outputs."""
    known = {value for node in graph.nodes[: graph.forward] for value in node.outputs}
    read = {value for node in backward for value in node.inputs}
    return sorted((read & set(graph.variables().values())) - known)


def _joined(graph: Graph, plans: Mapping[str, Plan]) -> _Layout:
    home = {value: (name, place) for name, plan in plans.items() for value, place in plan.place.items()}
    sizes = {(name, place): size for name, plan in plans.items() for place, size in plan.sizes(graph).items()}
    return _Layout(home, sizes)


def _in_order(nodes: Sequence[Node], order: Mapping[str, Sequence[int]]) -> list[Node]:
    """Nodes of one name are called in the order in which they stand; unknown ones stay behind the one before."""
    calls = {name: iter(places) for name, places in order.items()}
    last = -1
    keyed: list[tuple[int, int, Node]] = []
    for node in nodes:
        last = next(calls.get(node.name, iter(())), last)
        keyed.append((last, len(keyed), node))
    return [node for _, _, node in sorted(keyed, key=lambda entry: entry[:2])]
