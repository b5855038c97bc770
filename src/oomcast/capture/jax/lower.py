"""From a jaxpr to the instructions that XLA compiles: calls inlined, equal parts shared, composite ones expanded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
from jax.extend import core

from ..xla.schedule import Place
from .graph import Form, Graph, Node, Scopes, Value
from .primitives import (
    ALIASES,
    CHEAP,
    EXPENSIVE,
    KNOWN_OPAQUE,
    MOVES,
    REDUCTIONS,
    TREE_WINDOW,
    lower_convolution,
    lower_dot,
    simplify,
)

__all__ = ["Builder", "Need", "lower"]


class Need(NamedTuple):
    """Bytes that a body needs beside what it is given."""

    temporaries: int
    results: int


InnerNeed = Callable[[Graph], Need]


def lower(closed: Any, *, on_gpu: bool, need_of: InnerNeed) -> tuple[Graph, Counter[str]]:
    """The graph of a closed jaxpr, and what in it is not modelled; `need_of` tells what a loop's body needs."""
    builder = Builder(on_gpu=on_gpu, need_of=need_of)
    jaxpr = closed.jaxpr
    for variable in jaxpr.invars:
        builder.graph.arguments.append(builder.argument(variable.aval))
    inputs = dict(zip(jaxpr.invars, builder.graph.arguments, strict=True))
    inputs.update((variable, builder.constant(variable.aval)) for variable in jaxpr.constvars)
    builder.graph.results = builder.run(jaxpr, inputs)
    return without_dead(simplify(builder.graph)), builder.unsupported


@dataclass
class Builder:
    on_gpu: bool
    need_of: InnerNeed
    graph: Graph = field(default_factory=Graph)
    unsupported: Counter[str] = field(default_factory=Counter)
    _known: dict[Hashable, int] = field(default_factory=dict)
    _scopes: Scopes = field(default_factory=Scopes)
    _place: Place | None = None

    # The making of nodes

    def argument(self, aval: Any) -> Value:
        return self._append(Node("argument", (), (form_of(aval),), self._scopes.outside))

    def constant(self, aval: Any) -> Value:
        return self._append(Node("constant", (), (form_of(aval),), self._scopes.outside))

    def literal(self, value: Any, form: Form) -> Value:
        return self.make("constant", (), form, detail=str(value))

    def make(
        self,
        op: str,
        inputs: Sequence[Value],
        form: Form,
        *,
        detail: Hashable = None,
        expensive: bool = False,
        updates: tuple[tuple[int, int], ...] = (),
    ) -> Value:
        """An instruction with one output; one that is there already is used again."""
        key = (op, tuple(inputs), form, detail)
        if key not in self._known:
            node = Node(op, tuple(inputs), (form,), self._here, detail, expensive, 0, updates)
            self._known[key] = self._append(node)[0]
        return (self._known[key], 0)

    def opaque(self, op: str, inputs: Sequence[Value], forms: Sequence[Form], **facts: Any) -> list[Value]:
        """An instruction that is never shared, fused or split."""
        number, _ = self._append(Node(op, tuple(inputs), tuple(forms), self._here, **facts))
        return [(number, output) for output in range(len(forms))]

    def reshape(self, value: Value, shape: tuple[int, ...]) -> Value:
        form = self.graph.form(value)
        node = self.graph.nodes[value[0]]
        if node.op == "reshape":
            return self.reshape(node.inputs[0], shape)
        return value if form.shape == shape else self.make("reshape", (value,), form._replace(shape=shape))

    def transpose(self, value: Value, order: tuple[int, ...]) -> Value:
        form = self.graph.form(value)
        shape = tuple(form.shape[axis] for axis in order)
        moved = [axis for axis in order if form.shape[axis] != 1]
        if moved == sorted(moved):
            return self.reshape(value, shape)
        node = self.graph.nodes[value[0]]
        if node.op == "transpose":
            inner = node.detail
            assert isinstance(inner, tuple)
            return self.transpose(node.inputs[0], tuple(inner[axis] for axis in order))
        return self.make("transpose", (value,), form._replace(shape=shape), detail=order)

    def broadcast(self, value: Value, shape: tuple[int, ...], axes: tuple[int, ...]) -> Value:
        form = self.graph.form(value)
        grown = form._replace(shape=shape)
        if grown.elements == form.elements:
            return self.reshape(value, shape)
        node = self.graph.nodes[value[0]]
        if node.op == "broadcast" and isinstance(node.detail, tuple):
            return self.broadcast(node.inputs[0], shape, tuple(axes[axis] for axis in node.detail))
        return self.make("broadcast", (value,), grown, detail=axes)

    def reduce(self, value: Value, axes: tuple[int, ...], form: Form, detail: Hashable) -> Value:
        """On a CPU long reductions are done in two steps, of which the first is no part of a fusion."""
        before = self.graph.form(value)
        if all(before.shape[axis] == 1 for axis in axes):
            return self.reshape(value, form.shape)
        if not self.on_gpu and any(before.shape[axis] > TREE_WINDOW for axis in axes):
            shape = tuple(
                -(-extent // TREE_WINDOW) if axis in axes else extent for axis, extent in enumerate(before.shape)
            )
            value = self.make("reduce_window", (value,), before._replace(shape=shape), detail=(detail, axes))
        return self.make("reduce", (value,), form, detail=(detail, axes), expensive=True)

    def is_constant(self, value: Value) -> bool:
        node = self.graph.nodes[value[0]]
        if node.op in ("broadcast", "reshape", "convert_element_type"):
            return self.is_constant(node.inputs[0])
        return node.op == "constant"

    def _append(self, node: Node) -> Value:
        self.graph.nodes.append(node)
        return (len(self.graph.nodes) - 1, 0)

    @property
    def _here(self) -> Place:
        return self._place or self._scopes.outside

    # The reading of a jaxpr

    def run(self, jaxpr: Any, known: dict[Any, Value]) -> list[Value]:
        """The values of a jaxpr's results; `known` has those of its inputs and constants."""
        values = dict(known)

        def value_of(atom: Any) -> Value:
            return self.literal(atom.val, form_of(atom.aval)) if isinstance(atom, core.Literal) else values[atom]

        for equation in jaxpr.eqns:
            outer = self._place
            self._place = self._scopes.place_of(equation, outer)
            inputs = [value_of(atom) for atom in equation.invars]
            for variable, value in zip(equation.outvars, self._equation(equation, inputs), strict=True):
                values[variable] = value
            self._place = outer
        return [value_of(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, inputs: list[Value]) -> list[Value]:
        name, parameters = equation.primitive.name, equation.params
        forms = [form_of(variable.aval) for variable in equation.outvars]
        inner = _called(name, parameters)
        if inner is not None:
            return self._call(name, inner, parameters, inputs)
        if name in CHEAP or name in EXPENSIVE:
            return [self._elementwise(name, inputs, forms[0], parameters)]
        special: Callable[..., list[Value]] | None = getattr(self, f"_lower_{name.replace('-', '_')}", None)
        if special is not None:
            return special(inputs, forms, parameters)
        if name in ALIASES:
            return [self.reshape(inputs[0], forms[0].shape)]
        if name in REDUCTIONS:
            return [self.reduce(inputs[0], tuple(parameters["axes"]), forms[0], name)]
        if name in MOVES:
            detail = tuple((key, str(value)) for key, value in sorted(parameters.items()) if key != "sharding")
            return [self.make(MOVES[name], inputs, forms[0], detail=(name, detail), updates=self._updates(MOVES[name]))]
        if name not in KNOWN_OPAQUE:
            self.unsupported[name] += 1
        return self.opaque(name, inputs, forms)

    def _updates(self, op: str) -> tuple[tuple[int, int], ...]:
        """XLA's CPU compiler copies what it scatters into."""
        return ((0, 0),) if op == "dynamic_update_slice" or (op == "scatter" and self.on_gpu) else ()

    def _call(self, name: str, inner: Any, parameters: Any, inputs: list[Value]) -> list[Value]:
        if name in ("checkpoint", "remat2", "remat") and parameters.get("differentiated") and parameters["prevent_cse"]:
            inputs = self._barrier(inputs)  # what is computed again must not be found to be there already
        jaxpr = inner.jaxpr if hasattr(inner, "consts") else inner
        given = inputs[len(inputs) - len(jaxpr.invars) :]
        known = dict(zip(jaxpr.invars, given, strict=True))
        known.update((variable, self.constant(variable.aval)) for variable in jaxpr.constvars)
        return self.run(jaxpr, known)

    def _elementwise(self, name: str, inputs: list[Value], form: Form, parameters: Any) -> Value:
        if name == "convert_element_type" and self.graph.form(inputs[0]) == form:
            return inputs[0]
        wide = []
        for value in inputs:
            given = self.graph.form(value)
            scalar = not given.shape and form.shape
            wide.append(self.broadcast(value, form.shape, ()) if scalar else value)
        cheap_division = name == "div" and self.is_constant(wide[1])
        detail = tuple((key, str(parameters[key])) for key in sorted(parameters) if key not in ("sharding", "accuracy"))
        return self.make(
            name, wide, form, detail=detail, expensive=name in EXPENSIVE and not cheap_division and bool(form.shape)
        )

    def _barrier(self, inputs: Sequence[Value]) -> list[Value]:
        return [self.opaque("barrier", (value,), (self.graph.form(value),))[0] for value in inputs]

    def _lower_optimization_barrier(self, inputs: list[Value], forms: list[Form], parameters: Any) -> list[Value]:
        return self._barrier(inputs)

    def _lower_broadcast_in_dim(self, inputs: list[Value], forms: list[Form], parameters: Any) -> list[Value]:
        return [self.broadcast(inputs[0], forms[0].shape, tuple(parameters["broadcast_dimensions"]))]

    def _lower_transpose(self, inputs: list[Value], forms: list[Form], parameters: Any) -> list[Value]:
        return [self.transpose(inputs[0], tuple(parameters["permutation"]))]

    def _lower_split(self, inputs: list[Value], forms: list[Form], parameters: Any) -> list[Value]:
        axis = parameters["axis"]
        return [self.make("slice", inputs, form, detail=(axis, number)) for number, form in enumerate(forms)]

    def _lower_iota(self, inputs: list[Value], forms: list[Form], parameters: Any) -> list[Value]:
        return [self.make("iota", (), forms[0], detail=parameters["dimension"])]

    def _lower_dot_general(self, inputs: list[Value], forms: list[Form], parameters: Any) -> list[Value]:
        return [lower_dot(self, inputs, forms[0], parameters["dimension_numbers"])]

    def _lower_conv_general_dilated(self, inputs: list[Value], forms: list[Form], parameters: Any) -> list[Value]:
        return [lower_convolution(self, inputs, forms[0], parameters)]

    def _lower_select_and_scatter_add(self, inputs: list[Value], forms: list[Form], parameters: Any) -> list[Value]:
        """XLA's expander: the positions of the chosen elements are found anew, then the sources are added there."""
        source, operand = inputs
        whole, small = self.graph.form(operand), self.graph.form(source)
        rank = len(whole.shape)
        places = Form(whole.shape, "int32", 4)
        iotas = [self.make("iota", (), places, detail=axis) for axis in range(rank)]
        found = [small, *(Form(small.shape, "int32", 4) for _ in range(rank))]
        chosen = self.opaque("reduce_window", (operand, *iotas), found)
        columns = [self.reshape(value, (small.elements, 1)) for value in chosen[1:]]
        indices = self.make("concatenate", columns, Form((small.elements, rank), "int32", 4), detail="indices")
        flat = (small.elements, *(1,) * rank)
        if self.on_gpu:
            update = self.reshape(source, flat)
        else:
            update = self.opaque("copy", (source,), (small._replace(shape=flat),))[0]
        zero = self.broadcast(self.literal(0, whole._replace(shape=())), whole.shape, ())
        return [self.make("scatter", (zero, indices, update), whole, detail="select", updates=self._updates("scatter"))]

    def _lower_random_bits(self, inputs: list[Value], forms: list[Form], parameters: Any) -> list[Value]:
        """Threefry hashes a counter for every element into two words, in place; their exclusive or is the result."""
        word = forms[0]._replace(dtype="uint32", itemsize=4)
        words = self.opaque("threefry", inputs, (word, word), scratch=2 * word.nbytes)
        return [self.make("xor", words, forms[0], detail="bits")]

    # Control flow: a body's own peak is scratch of the whole

    def _inner_need(self, closed: Any) -> Need:
        graph, unsupported = lower(closed, on_gpu=self.on_gpu, need_of=self.need_of)
        self.unsupported.update(unsupported)
        return self.need_of(graph)

    def _lower_scan(self, inputs: list[Value], forms: list[Form], parameters: Any) -> list[Value]:
        constants, carries = parameters["num_consts"], parameters["num_carry"]
        scratch = sum(self._inner_need(parameters["jaxpr"]))
        return self._loop("scan", inputs, forms, range(constants, constants + carries), scratch)

    def _lower_while(self, inputs: list[Value], forms: list[Form], parameters: Any) -> list[Value]:
        first = parameters["cond_nconsts"] + parameters["body_nconsts"]
        scratch = sum(self._inner_need(parameters["body_jaxpr"]))
        return self._loop("while", inputs, forms, range(first, len(inputs)), scratch)

    def _loop(self, name: str, inputs: list[Value], forms: list[Form], carried: range, scratch: int) -> list[Value]:
        updates = tuple((position, output) for output, position in enumerate(carried))
        return self.opaque(name, inputs, forms, scratch=scratch, updates=updates)

    def _lower_cond(self, inputs: list[Value], forms: list[Form], parameters: Any) -> list[Value]:
        """Whichever branch runs, its results lie where those of the whole are."""
        scratch = max(self._inner_need(branch).temporaries for branch in parameters["branches"])
        return self.opaque("cond", inputs, forms, scratch=scratch)


def form_of(aval: Any) -> Form:
    dtype = aval.dtype
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended):  # a key: two words of 32 bits
        return Form((*aval.shape, 2), "uint32", 4)
    return Form(tuple(int(extent) for extent in aval.shape), str(dtype), dtype.itemsize)


def _called(name: str, parameters: Any) -> Any:
    """The jaxpr that an equation only calls."""
    if name in ("scan", "while", "cond"):
        return None
    for key in ("call_jaxpr", "jaxpr", "fun_jaxpr"):
        inner = parameters.get(key)
        if inner is not None and (hasattr(inner, "eqns") or hasattr(inner, "jaxpr")):
            return inner
    return None


def without_dead(graph: Graph) -> Graph:
    """Only what a result needs, and all arguments."""
    wanted = {value[0] for value in (*graph.results, *graph.arguments)}
    for number in range(len(graph.nodes) - 1, -1, -1):
        if number in wanted:
            wanted.update(value[0] for value in graph.nodes[number].inputs)
    order = sorted(wanted)
    new = {old: number for number, old in enumerate(order)}

    def moved(values: Sequence[Value]) -> list[Value]:
        return [(new[number], output) for number, output in values]

    nodes = [graph.nodes[old] for old in order]
    for node in nodes:
        node.inputs = tuple(moved(node.inputs))
    return Graph(nodes, moved(graph.arguments), moved(graph.results))
