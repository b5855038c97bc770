"""A graph network in the manner of DNNPerf, over our Trace: memory as one number, learnt from labelled graphs.

DNNPerf (Gao et al., ICSE-SEIP 2023) encodes a model's computation graph, with features of operators and of the tensors
between them, by rounds in which nodes attend to their edges, and reads one figure off the whole. What differs here:

- A Trace lists memory, not arguments. A node is a storage that an operator made in the first forward and backward pass.
  An edge leads from a storage to the operator that was the last to read it (its free tells), or to the next in order.
- The features are what a Trace knows: kind, phase, bytes, parameters of the module. No arithmetic is counted.
- It is small: some ten thousand weights, hundreds of graphs. DNNPerf learnt from thousands of measured runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oomcast.methods.gpumemnet.features import KINDS, kind_of_operator, parameters_by_module
from oomcast.trace import EventKind, Phase, Trace

__all__ = ["Graph", "GraphRegression", "graph_of"]

_ORDER, _READ = 0, 1
_ROUNDS, _WIDTH = 3, 32
_EPOCHS, _BATCH, _RATE = 120, 16, 3e-3


@dataclass(frozen=True)
class Graph:
    """Plain numbers, for JSON: a line of features for each node and each edge, and for the whole."""

    nodes: list[list[float]]
    edges: list[tuple[int, int]]
    edge_features: list[list[float]]
    whole: list[float]


def graph_of(trace: Trace) -> Graph:
    """The first training step of a Trace, its optimizer left out: its state does not depend on the graph."""
    start, end = _first_step(trace)
    modules = parameters_by_module(trace)
    batch_size = int(trace.workload.get("batch_size", 1))
    nodes: list[list[float]] = []
    edges: list[tuple[int, int]] = []
    kinds: list[list[float]] = []
    place: dict[int, int] = {}
    for kind, index in trace.events[start:end]:
        if kind == EventKind.ALLOCATE:
            made = trace.allocations[index]
            of_kind = _kind(made.operator)
            place[index] = len(nodes)
            nodes.append(
                [
                    *(float(of_kind == name) for name in KINDS),
                    float(of_kind not in KINDS),
                    float(made.phase is Phase.BACKWARD),
                    _log(made.nbytes),
                    _log(math.prod(made.shape) / batch_size),
                    _log(modules.get(made.module, 0)),
                ]
            )
            if len(nodes) > 1:
                edges.append((len(nodes) - 2, len(nodes) - 1))
                kinds.append([1.0, 0.0, nodes[-2][-3]])
        elif kind == EventKind.FREE and index in place and place[index] < len(nodes) - 1:
            edges.append((place[index], len(nodes) - 1))
            kinds.append([0.0, 1.0, _log(trace.allocations[index].nbytes)])
    made_bytes = sum(trace.allocations[index].nbytes for index in place)
    return Graph(nodes, edges, kinds, [_log(batch_size), _log(sum(modules.values())), _log(made_bytes)])


def _kind(operator: str) -> str:
    """A gradient's operator is of the kind of what it is the gradient of."""
    found = kind_of_operator(operator)
    return found if found in KINDS else kind_of_operator(operator.replace("_backward", ""))


def _first_step(trace: Trace) -> tuple[int, int]:
    """Event numbers: from the forward pass that a backward pass follows to the end of that."""
    phases = [mark.phase for mark in trace.marks]
    backward = phases.index(Phase.BACKWARD)
    forward = max(number for number in range(backward) if phases[number] is Phase.FORWARD)
    after = trace.marks[backward + 1].position if backward + 1 < len(phases) else len(trace.events)
    return trace.marks[forward].position, after


def _log(value: float) -> float:
    return math.log2(1 + value)


class GraphRegression:
    """`fit` and `predict` of bytes."""

    def __init__(self, seed: int = 0, epochs: int = _EPOCHS) -> None:
        self.seed, self.epochs = seed, epochs

    def fit(self, graphs: Sequence[Graph], measured: Sequence[int]) -> GraphRegression:
        torch.manual_seed(self.seed)
        self._scales = [_Scale(torch.tensor(rows)) for rows in _columns(graphs)]
        y = torch.tensor([math.log2(value) for value in measured])
        self._middle, self._spread = float(y.mean()), max(float(y.std()), 1e-3)
        self._network = _Network(*(len(scale.mean) for scale in self._scales))
        optimizer = torch.optim.AdamW(self._network.parameters(), lr=_RATE, weight_decay=1e-4)
        steps = self.epochs * math.ceil(len(graphs) / _BATCH)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps)
        for _ in range(self.epochs):
            for part in torch.randperm(len(graphs)).split(_BATCH):
                chosen = part.tolist()
                told = self._network(*self._batch([graphs[number] for number in chosen]))
                loss = nn.functional.smooth_l1_loss(told, (y[chosen] - self._middle) / self._spread, beta=0.1)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self._network.parameters(), 1.0)
                optimizer.step()
                schedule.step()
        return self

    def predict(self, graphs: Sequence[Graph]) -> list[float]:
        self._network.eval()
        with torch.no_grad():
            found = [float(self._network(*self._batch([graph]))) for graph in graphs]
        return [float(2 ** (one * self._spread + self._middle)) for one in found]

    def _batch(self, graphs: Sequence[Graph]) -> tuple[Tensor, ...]:
        """Many graphs as one, with the number of its graph for each node."""
        nodes, edges, whole = (
            scale(torch.tensor(rows)) for scale, rows in zip(self._scales, _columns(graphs), strict=True)
        )
        starts = [0]
        for graph in graphs[:-1]:
            starts.append(starts[-1] + len(graph.nodes))
        pairs = [(a + start, b + start) for graph, start in zip(graphs, starts, strict=True) for a, b in graph.edges]
        owner = torch.repeat_interleave(torch.tensor([len(graph.nodes) for graph in graphs]))
        return nodes, torch.tensor(pairs).T, edges, owner, whole


def _columns(graphs: Sequence[Graph]) -> tuple[list[list[float]], list[list[float]], list[list[float]]]:
    return (
        [row for graph in graphs for row in graph.nodes],
        [row for graph in graphs for row in graph.edge_features],
        [graph.whole for graph in graphs],
    )


class _Scale:
    def __init__(self, rows: Tensor) -> None:
        self.mean, self.spread = rows.mean(0), rows.std(0).clamp(min=1e-3)

    def __call__(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.spread


class _Round(nn.Module):
    """Edges hear of their ends, then each node attends to the edges around it, those that leave it too."""

    def __init__(self) -> None:
        super().__init__()
        self.of_edge = nn.Sequential(nn.Linear(3 * _WIDTH, _WIDTH), nn.ReLU())
        self.score = nn.Sequential(nn.Linear(2 * _WIDTH, 1), nn.LeakyReLU(0.2))
        self.of_node = nn.Sequential(nn.Linear(3 * _WIDTH, _WIDTH), nn.ReLU())

    def forward(self, nodes: Tensor, ends: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        source, target = ends
        edges = edges + self.of_edge(torch.cat([nodes[source], edges, nodes[target]], 1))
        heard = [self._attend(nodes, place, edges) for place in (target, source)]
        return nodes + self.of_node(torch.cat([nodes, *heard], 1)), edges

    def _attend(self, nodes: Tensor, place: Tensor, edges: Tensor) -> Tensor:
        weights = _softmax(self.score(torch.cat([nodes[place], edges], 1))[:, 0], place, len(nodes))
        return torch.zeros_like(nodes).index_add(0, place, weights[:, None] * edges)


class _Network(nn.Module):
    def __init__(self, nodes: int, edges: int, whole: int) -> None:
        super().__init__()
        self.nodes, self.edges = nn.Linear(nodes, _WIDTH), nn.Linear(edges, _WIDTH)
        self.rounds = nn.ModuleList(_Round() for _ in range(_ROUNDS))
        self.score = nn.Linear(_WIDTH, 1)
        self.last = nn.Sequential(nn.Linear(2 * _WIDTH + whole, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 1))

    def forward(self, nodes: Any, ends: Any, edges: Any, owner: Any, whole: Any) -> Any:
        nodes, edges = self.nodes(nodes), self.edges(edges)
        for step in self.rounds:
            nodes, edges = step(nodes, ends, edges)
        empty = torch.zeros(len(whole), _WIDTH)
        weights = _softmax(self.score(nodes)[:, 0], owner, len(whole))
        attended = empty.index_add(0, owner, weights[:, None] * nodes)
        mean = empty.index_add(0, owner, nodes) / torch.bincount(owner, minlength=len(whole))[:, None]
        return self.last(torch.cat([attended, mean, whole], 1))[:, 0]


def _softmax(scores: Tensor, group: Tensor, groups: int) -> Tensor:
    """Within each group."""
    most = torch.full((groups,), -math.inf).scatter_reduce(0, group, scores.detach(), "amax")
    strength = (scores - most[group]).exp()
    return strength / torch.zeros(groups).index_add(0, group, strength)[group]
