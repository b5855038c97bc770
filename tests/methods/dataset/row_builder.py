"""Rows made by hand, for tests of what is done with them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from oomcast.methods.gpumemnet import Layer, LayerFeatures, SimulatorFeatures
from oomcast.methods.gpumemnet.dataset import Label, Network, Row
from oomcast.methods.gpumemnet.dataset.labelling import Labeller
from oomcast.methods.gpumemnet.dataset.rows import flatten, row_id

SMALL = Network("mlp", "uniform", "relu", True, 0.1, depth=2, width=8, input_size=4, output_size=3, batch_size=16)
LABEL = Label("simulator", "a100-40gb", "torch-2.8-cu128", "adam", "fp32", 1 << 20, 2 << 20, 500 << 20, "fits")
LAYERS = (Layer("linear", 8, 40), Layer("batch_norm", 8, 16), Layer("activation", 8, 0), Layer("linear", 3, 27))
SIMULATOR = SimulatorFeatures(**{name: 0.1 + index for index, name in enumerate(SimulatorFeatures.names())})


def network(**changes: Any) -> Network:
    return replace(SMALL, **changes)


def row(label: Label = LABEL, simulator: SimulatorFeatures | None = SIMULATOR, **changes: Any) -> Row:
    made = network(**changes)
    features = LayerFeatures(LAYERS, made.batch_size, 83, 27, "relu")
    return Row(row_id(made), made, label, features, simulator)


class QuickLabeller(Labeller):
    """Labels without torch, by the network's width."""

    def __call__(self, given: Any) -> tuple[str, dict[str, Any]]:
        drawn, _ = given
        time.sleep(0.05)
        features = LayerFeatures(LAYERS, drawn.batch_size, 83, 27, drawn.activation)
        label = replace(LABEL, device=self.device, device_total=drawn.width << 20)
        return row_id(drawn), flatten(Row(row_id(drawn), drawn, label, features, SIMULATOR))
