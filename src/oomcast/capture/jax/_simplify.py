"""Rewritings of XLA's algebraic simplifier that decide what lies in memory."""

from __future__ import annotations

from collections import Counter

from ._graph import Graph, Value

__all__ = ["simplify"]


def simplify(graph: Graph) -> Graph:
    """In place: what is added to zeros at some places, and then to a whole, is added to the whole at once."""
    readers = Counter(value[0] for node in graph.nodes for value in node.inputs)
    readers.update(value[0] for value in graph.results)
    for node in graph.nodes:
        if node.op not in ("add", "add_any"):
            continue
        for scattered, whole in (node.inputs, node.inputs[::-1]):
            made = graph.nodes[scattered[0]]
            if made.op == "scatter" and readers[scattered[0]] == 1 and _is_zero(graph, made.inputs[0]):
                node.op, node.inputs, node.updates = "scatter", (whole, *made.inputs[1:]), made.updates
                break
    return graph


def _is_zero(graph: Graph, value: Value) -> bool:
    node = graph.nodes[value[0]]
    if node.op in ("broadcast", "reshape", "convert_element_type"):
        return _is_zero(graph, node.inputs[0])
    return node.op == "constant" and node.detail in ("0", "0.0")
