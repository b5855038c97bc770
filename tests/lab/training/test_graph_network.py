"""The graph network over Traces: its graphs are a Trace's own, and it learns what depends on them."""

from __future__ import annotations

import statistics

import pytest

from lab.training.graph_network import Graph, GraphRegression, graph_of
from oomcast.trace import Allocation, Category, Event, EventKind, Mark, Phase, Trace

BATCH = 4


def chain(*widths: int) -> Trace:
    """Linear layers; the backward pass makes a gradient for each and gives back what its layer had put out."""
    parameters = [_made("aten.empty", f"{i}.weight", width, Category.PARAMETER) for i, width in enumerate(widths)]
    outputs = [_made("aten.addmm", str(i), width) for i, width in enumerate(widths)]
    gradients = [_made("aten.mm", str(i), width, phase=Phase.BACKWARD) for i, width in enumerate(widths)][::-1]
    made = [*parameters, *outputs, *gradients]
    count = len(widths)
    events = [Event(EventKind.ALLOCATE, number) for number in range(2 * count)]
    for place in range(count):
        events += [Event(EventKind.ALLOCATE, 2 * count + place), Event(EventKind.FREE, 2 * count - 1 - place)]
    marks = (Mark(0, Phase.BUILD, -1), Mark(count, Phase.FORWARD, 0), Mark(2 * count, Phase.BACKWARD, 0))
    return Trace(tuple(made), tuple(events), marks=marks, workload={"batch_size": BATCH})


def _made(
    operator: str, module: str, width: int, category: Category = Category.ACTIVATION, phase: Phase = Phase.FORWARD
) -> Allocation:
    return Allocation(4 * BATCH * width, category, phase, 0, operator, module, "", (BATCH, width), "float32")


def test_a_storage_is_joined_to_the_operator_that_read_it_last() -> None:
    graph = graph_of(chain(8, 16, 32))
    assert len(graph.nodes) == 6, "what is built is no node, but a feature of its module"
    in_order = [(number, number + 1) for number in range(5)]
    last_read = [(2, 3), (1, 4), (0, 5)]
    assert sorted(graph.edges) == sorted(in_order + last_read)
    assert len(graph.edge_features) == len(graph.edges)


def test_memory_is_learnt_from_graphs() -> None:
    graphs, truths = [], []
    for seed in range(48):
        widths = [1 << (2 + (seed * 7 + layer * 5) % 9) for layer in range(2 + seed % 5)]
        graphs.append(graph_of(chain(*widths)))
        truths.append(1_000_000 + 400 * sum(widths))
    fitted = GraphRegression(epochs=80).fit(graphs[:40], truths[:40])
    errors = [abs(told / truth - 1) for told, truth in zip(fitted.predict(graphs[40:]), truths[40:], strict=True)]
    middle = statistics.median(truths[:40])
    assert statistics.fmean(errors) < 0.3 * statistics.fmean(abs(middle / truth - 1) for truth in truths[40:])
    again = GraphRegression(epochs=80).fit(graphs[:40], truths[:40])
    assert again.predict(graphs[40:]) == pytest.approx(fitted.predict(graphs[40:])), "the same seed, the same answer"
    assert isinstance(graphs[0], Graph)
