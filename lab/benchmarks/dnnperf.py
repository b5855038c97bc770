"""`python -m lab bench dnnperf DIR`: a graph network in the manner of DNNPerf beside other learners, on the same rows.

All learn from networks that oomcast's own builder draws, labelled by the simulator, and are judged on GPUMemNet's
measured networks (its files in DIR), none of which they have seen. `lab.training.graph_network` says what differs from
the paper, which publishes a mean error of 13.7 % on GPU memory for its own measured models. Since the labels are the
simulator's, no learner here can be better than that is; it stands in the table as the bound.

Captures are kept in --cache, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from oomcast.capture.torch.run import capture_here
from oomcast.estimation import estimate_trace, target_of
from oomcast.methods.gpumemnet import Layer, LayerFeatures, layer_features
from oomcast.methods.gpumemnet.classes import classes_of
from oomcast.methods.gpumemnet.dataset import Settings
from oomcast.methods.gpumemnet.dataset.labelling import warm_up
from oomcast.methods.gpumemnet.dataset.network import NetworkJob
from oomcast.methods.gpumemnet.dataset.rows import row_id
from oomcast.methods.gpumemnet.dataset.sampling import draw_networks
from oomcast.methods.gpumemnet.estimators import GPUMEMNET_MLP
from oomcast.methods.gpumemnet.features import layer_features_of_layers
from oomcast.methods.gpumemnet.training.classes import ClassRows, fit_classes
from oomcast.methods.gpumemnet.training.train import WIDTHS
from oomcast.provenance import TRACE_ROOMS, source_digest
from oomcast.spec import Spec
from oomcast.units import MiB

from ..accuracy import read_sets, sample
from ..accuracy.gpumemnet_rows import GPU, STACK
from ..training.graph_network import Graph, GraphRegression, graph_of
from .report import Bar, Outcome, console, print_outcome
from .trees import tree_features

__all__ = ["Captured", "judged", "learners"]

KINDS = {"mlp": ("gpumemnet_mlp_step1", "gpumemnet_mlp_step2"), "cnn": ("gpumemnet_cnn",)}
_DRAWN = {"mlp": {"architectures": ("pyramid", "uniform", "bottleneck", "gradual"), "most_bytes": 5 << 30}, "cnn": {}}
"""As for the classifiers of docs/howto/data-sets.md: what GPUMemNet's own generators can make, and more."""
PUBLISHED = 0.137
_TREES = 300
_Item = TypeVar("_Item")
_FORM = 1
"""Of the graphs that are kept: another one with every change of `graph_of`."""


@dataclass(frozen=True)
class Captured:
    """One network: what learners see, what the simulator says, and what was measured where it was."""

    graph: Graph
    features: LayerFeatures
    simulated: int
    measured: int | None = None


def learners(kind: str, rows: Sequence[Captured], seed: int = 0) -> dict[str, Callable[[Captured], float]]:
    """Each fitted to the simulator's figure of the rows."""
    from sklearn.ensemble import ExtraTreesRegressor

    truths = [row.simulated for row in rows]
    graphs = GraphRegression(seed).fit([row.graph for row in rows], truths)
    trees = ExtraTreesRegressor(_TREES, random_state=seed).fit([tree_features(r.features) for r in rows], truths)
    width = WIDTHS[kind][0] * MiB
    own = ClassRows(kind, tuple(row.features for row in rows), tuple(truths), max(truths))
    model = fit_classes(own, [width], GPUMEMNET_MLP, seed)
    return {
        "simulator (the labels)": lambda row: float(row.simulated),
        "graph network (DNNPerf)": lambda row: graphs.predict([row.graph])[0],
        "extra trees, four features": lambda row: float(trees.predict([tree_features(row.features)])[0]),
        "gpumemnet-mlp, upper edge": lambda row: float((classes_of(model, row.features)[0].chosen + 1) * width),
    }


def judged(kind: str, rows: Sequence[Captured], told: Callable[[Captured], float], edge: bool) -> tuple[str, ...]:
    """Rows, mean, median and p90 of the relative error, the share too low, the share in the right class."""
    width = WIDTHS[kind][0] * MiB
    pairs = [(told(row), row.measured) for row in rows if row.measured is not None]
    errors = sorted(abs(found / truth - 1) for found, truth in pairs)
    low = sum(found < truth for found, truth in pairs) / len(pairs)
    right = np.mean([(found - edge) // width == truth // width for found, truth in pairs])
    shares = (statistics.fmean(errors), statistics.median(errors), errors[round(0.9 * (len(errors) - 1))], low)
    return (str(len(pairs)), *(f"{share:.1%}" for share in shares), f"{right:.3f}")


def _captured(spec: Spec, measured: int | None, kept: Path) -> Captured:
    if kept.is_file():
        return _read(json.loads(kept.read_text(encoding="utf-8")), measured)
    trace = capture_here(spec)
    found = Captured(graph_of(trace), layer_features(trace), estimate_trace(trace, target_of(spec)).device_total)
    kept.write_text(json.dumps(dataclasses.asdict(found)), encoding="utf-8")
    return dataclasses.replace(found, measured=measured)


def _read(plain: dict[str, Any], measured: int | None) -> Captured:
    told = plain["features"]
    layers = [Layer(**layer) for layer in told["layers"]]
    features = layer_features_of_layers(
        layers, {told["activation_function"]: 1}, told["batch_size"], told["parameters"]
    )
    graph = Graph(**{**plain["graph"], "edges": [tuple(pair) for pair in plain["graph"]["edges"]]})
    return Captured(graph, features, plain["simulated"], measured)


def _drawn(kind: str, rows: int, cache: Path) -> list[Captured]:
    settings = Settings.create(rows, device=GPU, environment=STACK, kinds=[kind], **_DRAWN[kind])  # type: ignore[arg-type]
    found = []
    for network in _told(f"{kind}, drawn", draw_networks(settings.strata, rows, settings.most_bytes)):
        spec = Spec.read(NetworkJob(network), device=GPU, environment=STACK, use_calibration=False, optimizer="adam",
                         batch_size=network.batch_size, steps=2)  # fmt: skip
        found.append(_captured(spec, None, cache / f"{row_id(network)}.json"))
    return found


def _measured(kind: str, folder: Path, rows: int, cache: Path) -> list[Captured]:
    cases = [case for data in read_sets(folder, KINDS[kind]) for case in data.cases if case.ran]
    found = []
    for case in _told(f"{kind}, measured", sample(cases, rows)):
        found.append(_captured(case.spec, case.measured, cache / f"{case.name.replace(' ', '-')}.json"))
    return found


def _told(what: str, items: Sequence[_Item]) -> Iterator[_Item]:
    """The items one by one, with how far it is."""
    with console.status(what) as status:
        for number, item in enumerate(items, 1):
            status.update(f"{what}: {number} of {len(items)}")
            yield item


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench dnnperf", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="with GPUMemNet's files")
    parser.add_argument("--drawn", type=int, default=250, metavar="N", help="networks to learn from, of each kind")
    parser.add_argument("--measured", type=int, default=120, metavar="N", help="networks to judge on, of each kind")
    parser.add_argument("--cache", type=Path, default=Path("dnnperf-graphs"), metavar="FOLDER", help="of captures")
    given = parser.parse_args()
    cache = given.cache / f"{source_digest(*TRACE_ROOMS, 'oomcast.estimation')}-{_FORM}"
    cache.mkdir(parents=True, exist_ok=True)
    warm_up()
    rows, bars = [], []
    for kind in KINDS:
        learnt, judges = _drawn(kind, given.drawn, cache), _measured(kind, given.folder, given.measured, cache)
        for name, told in learners(kind, learnt).items():
            figures = judged(kind, judges, told, edge="edge" in name)
            rows.append((kind, str(len(learnt)), name, *figures))
            if "DNNPerf" in name:
                bars.append(Bar(f"{kind}: mean error, published {PUBLISHED:.1%} on other models", figures[1], None))
    columns = (
        "networks",
        "learnt from",
        "learner",
        "judged on",
        "mean error",
        "median",
        "p90",
        "too low",
        "class right",
    )
    print_outcome(Outcome("Learnt from simulated networks, judged on GPUMemNet's measured ones", columns, rows, bars))
    return 0


if __name__ == "__main__":
    sys.exit(main())
