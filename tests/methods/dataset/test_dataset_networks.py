"""Networks as data and in torch: the two agree for every kind, architecture and style."""

from __future__ import annotations

import pytest
import torch
from row_builder import network

from oomcast.methods.gpumemnet.dataset import ACTIVATION_NAMES, ARCHITECTURES, KINDS, Network
from oomcast.methods.gpumemnet.dataset.modules import build, example
from oomcast.methods.gpumemnet.dataset.network import cnn_plan, feed_forward, plain_widths, size_of

OWN = {
    "mlp": {"depth": 5, "width": 96, "input_size": 70},
    "cnn": {"depth": 9, "width": 16, "input_size": 24, "channels": 3},
    "transformer": {"depth": 5, "width": 64, "input_size": 7, "hidden": 128, "heads": 4, "vocabulary": 50},
}
STYLES = [("gelu", True, 0.2), ("identity", False, None)]


def made(kind: str, architecture: str, style: tuple[str, bool, float | None]) -> Network:
    activation, batch_norm, dropout = style
    return network(
        kind=kind, architecture=architecture, activation=activation, batch_norm=batch_norm, dropout=dropout, **OWN[kind]
    )


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_network_gives_one_score_for_each_class(
    kind: str, architecture: str, style: tuple[str, bool, float | None]
) -> None:
    one = made(kind, architecture, style)
    with torch.device("meta"):
        model = build(one)
        inputs, classes = example(one, 5)
        assert model(inputs).shape == (5, one.output_size)
    assert classes.shape == (5,)
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert size_of(one).parameters == pytest.approx(counted, rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_every_architecture_is_another_network(kind: str) -> None:
    sizes = {size_of(made(kind, architecture, STYLES[1])) for architecture in ARCHITECTURES}
    assert len(sizes) == len(ARCHITECTURES)


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_activation_function_is_in_the_network(kind: str, activation: str) -> None:
    with torch.device("meta"):
        functions = {
            type(module).__name__.lower()
            for module in build(made(kind, "pyramid", (activation, False, None))).modules()
        }
    assert {"swish": "silu"}.get(activation, activation.replace("_", "")) in functions


@pytest.mark.parametrize("kind", KINDS)
def test_batch_norm_and_dropout_are_there_only_where_drawn(kind: str) -> None:
    def kinds_of_modules(style: tuple[str, bool, float | None]) -> set[str]:
        with torch.device("meta"):
            return {type(module).__name__ for module in build(made(kind, "uniform", style)).modules()}

    used, bare = kinds_of_modules(("relu", True, 0.3)), kinds_of_modules(("relu", False, None))
    assert any("BatchNorm" in name for name in used)
    assert "Dropout" in used
    assert not any("BatchNorm" in name or name == "Dropout" for name in bare)


def test_widths_follow_the_architecture() -> None:
    def hidden(architecture: str) -> tuple[int, ...]:
        return plain_widths(network(architecture=architecture, depth=5, width=64, input_size=9, output_size=4))[1:-1]

    assert hidden("uniform") == (64,) * 5
    assert hidden("pyramid") == (64, 32, 16, 8, 4)
    assert hidden("hourglass") == (64, 32, 16, 32, 64)
    assert hidden("gradual") == (64, 49, 34, 19, 4)
    assert hidden("bottleneck") == (64, 32, 16, 8, 4, 4)
    one = made("transformer", "bottleneck", STYLES[0])
    assert feed_forward(one) == (128, 32, 32, 32, 128)


def test_a_dense_cnn_begins_with_its_width() -> None:
    plan = cnn_plan(made("cnn", "dense", STYLES[0]))
    assert (plan[0].kind, plan[0].inputs, plan[0].outputs) == ("conv", 3, 16)
    assert plan[1].kind == "dense"
