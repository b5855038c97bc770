"""XLA's buffer assignment: which values share memory, and how the rest is packed into one block for temporaries."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from .fuse import Instruction
from .graph import Form, Graph, Value

__all__ = ["Assignment", "Temporary", "assign"]

_ALIGNMENT = 64
_SMALLEST_PACKED = 1024


@dataclass(slots=True)
class Temporary:
    """A block of the arena: values that take it over from one another count as one."""

    value: Value
    """The first of them."""
    nbytes: int
    first: int
    """Position of the instruction that makes it."""
    last: int
    """Position of its last reader."""


@dataclass(frozen=True, slots=True)
class Assignment:
    outputs: int
    """Bytes of results that need memory of their own."""
    own_results: frozenset[Value]
    """Those results, as the graph has them."""
    temporaries: tuple[Temporary, ...]
    arena: int
    """Bytes of the block that holds all temporaries."""
    scratch: dict[int, int]
    """By position: bytes that an instruction needs only while it runs, a part of the arena."""


@dataclass(slots=True)
class _Buffer:
    value: Value
    form: Form
    first: int
    last: int
    lives_out: bool
    instruction: Instruction | None


def assign(graph: Graph, order: Sequence[Instruction], *, donated: Sequence[int] = ()) -> Assignment:
    """`donated` are the arguments, by number, whose memory results may take."""
    buffers = _buffers(graph, order)
    by_value = {buffer.value: buffer for buffer in buffers}
    roots = _aliases(order)
    given = _pair_donated(graph, donated, by_value, roots)
    allocations: list[tuple[int, list[_Buffer]]] = []
    own: set[Value] = set()
    loose: list[_Buffer] = []
    for buffer in sorted(buffers, key=lambda b: (-b.form.nbytes, not b.lives_out, b.first)):
        size = buffer.form.nbytes
        if buffer.value in given:
            allocations.append((size, [given[buffer.value], buffer]))
            continue
        home = _home(buffer, allocations)
        if home is not None:
            home.append(buffer)
        elif buffer.lives_out:
            allocations.append((size, [buffer]))
            own.add(buffer.value)
        else:
            loose.append(buffer)
    scratch = {
        position: graph.nodes[instruction.node].scratch
        for position, instruction in enumerate(order)
        if graph.nodes[instruction.node].scratch
    }
    temporaries = _joined(loose)
    results = frozenset(value for value in graph.results if given.get(_root(roots, value)) is None)
    outputs = sum(by_value[value].form.nbytes for value in own)
    return Assignment(outputs, results, tuple(temporaries), _pack(temporaries, scratch), scratch)


def _buffers(graph: Graph, order: Sequence[Instruction]) -> list[_Buffer]:
    """Every value that an instruction puts into memory, with its life."""
    roots = _aliases(order)
    arguments = set(graph.arguments)
    found: dict[Value, _Buffer] = {}
    for position, instruction in enumerate(order):
        for value in instruction.operands:
            buffer = found.get(_root(roots, value))
            if buffer is not None:
                buffer.last = position
        node = graph.nodes[instruction.node]
        if instruction.is_alias or node.op in ("argument", "constant"):
            continue
        for output, form in enumerate(node.outputs):
            value = (instruction.node, output)
            if form.nbytes and value not in arguments:
                found[value] = _Buffer(value, form, position, position, False, instruction)
    for value in graph.results:
        buffer = found.get(_root(roots, value))
        if buffer is not None:
            buffer.last, buffer.lives_out = len(order), True
    return list(found.values())


def _aliases(order: Sequence[Instruction]) -> dict[Value, Value]:
    return {(instruction.node, 0): instruction.operands[0] for instruction in order if instruction.is_alias}


def _root(aliases: dict[Value, Value], value: Value) -> Value:
    while value in aliases:
        value = aliases[value]
    return value


def _pair_donated(
    graph: Graph, donated: Sequence[int], by_value: dict[Value, _Buffer], aliases: dict[Value, Value]
) -> dict[Value, _Buffer]:
    """Results in the memory of donated arguments of the same form, first come, first served."""
    free: dict[tuple[tuple[int, ...], str], list[Value]] = {}
    for number in donated:
        value = graph.arguments[number]
        form = graph.form(value)
        free.setdefault((form.shape, form.dtype), []).append(value)
    pairs: dict[Value, _Buffer] = {}
    for result in graph.results:
        buffer = by_value.get(_root(aliases, result))
        places = free.get((graph.form(result).shape, graph.form(result).dtype))
        if buffer is not None and places and buffer.value not in pairs:
            argument = places.pop(0)
            pairs[buffer.value] = _Buffer(argument, buffer.form, -1, buffer.first, True, None)
    return pairs


def _home(buffer: _Buffer, allocations: list[tuple[int, list[_Buffer]]]) -> list[_Buffer] | None:
    """An allocation that is there already and free for all of the buffer's life; the smallest comes first."""
    for size, inside in reversed(allocations):
        if buffer.lives_out and size != buffer.form.nbytes:
            continue
        if not any(_interfere(buffer, other) for other in inside):
            return inside
    return None


def _interfere(one: _Buffer, other: _Buffer) -> bool:
    early, late = (one, other) if one.first <= other.first else (other, one)
    if late.first > early.last:
        return False
    return not (late.first == early.last and early is not late and _takes_over(early, late))


def _takes_over(early: _Buffer, late: _Buffer) -> bool:
    """Whether the instruction that makes `late` may write it over `early`, which it is the last to read."""
    instruction = late.instruction
    if instruction is None or early.value not in instruction.operands:
        return False
    same = early.form.shape == late.form.shape and early.form.itemsize == late.form.itemsize
    return same and early.value in instruction.overwrites


def _joined(buffers: list[_Buffer]) -> list[Temporary]:
    made: dict[Value, Temporary] = {}
    for buffer in sorted(buffers, key=lambda b: b.first):
        taken = next(
            (
                made[value]
                for value in (buffer.instruction.operands if buffer.instruction else ())
                if value in made
                and made[value].last == buffer.first
                and value in (buffer.instruction.overwrites if buffer.instruction else ())
                and made[value].nbytes == buffer.form.nbytes
            ),
            None,
        )
        if taken is not None:
            taken.last = buffer.last
            made[buffer.value] = taken
        else:
            made[buffer.value] = Temporary(buffer.value, buffer.form.nbytes, buffer.first, buffer.last)
    return list({id(temporary): temporary for temporary in made.values()}.values())


def _pack(temporaries: Sequence[Temporary], scratch: dict[int, int]) -> int:
    """The largest first, each at the lowest place that is free for all of its life and fits best."""
    lives = [(t.nbytes, t.first, t.last) for t in temporaries]
    lives += [(nbytes, position, position) for position, nbytes in scratch.items()]
    small = sum(nbytes for nbytes, _, _ in lives if nbytes < _SMALLEST_PACKED)
    large = sorted((life for life in lives if life[0] >= _SMALLEST_PACKED), key=lambda life: (-life[0], life[1]))
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    height = 0
    for nbytes, first, last in large:
        size = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        start, best, best_gap = 0, None, None
        for offset, end, other_first, other_last in placed:
            if other_first > last or other_last < first:
                continue
            gap = offset - start
            if gap >= size and (best_gap is None or gap < best_gap):
                best, best_gap = start, gap
            start = max(start, end)
        place = start if best is None else best
        insort(placed, (place, place + size, first, last))
        height = max(height, place + size)
    return height + small
