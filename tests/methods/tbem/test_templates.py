"""Templates: what they are known to be, what their parameters do, and what the specification refuses of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from network_cases import small_parameters

from oomcast.errors import BadInput, UnknownName
from oomcast.methods.tbem import Value
from oomcast.methods.tbem.specification import check_network, network_shapes
from oomcast.methods.tbem.templates import TEMPLATES, Input, Layer, Network, count_parameters


def network(template: str, **parameters: Value) -> Network:
    return TEMPLATES[template].network(parameters)


@pytest.mark.parametrize(
    ("template", "parameters", "count"),
    [
        ("vgg", {"depth": 11, "convolutions": 8}, 132_863_336),
        ("vgg", {"depth": 13, "convolutions": 10}, 133_047_848),
        ("vgg", {}, 138_357_544),
        ("vgg", {"depth": 19, "convolutions": 16}, 143_667_240),
        ("resnet", {"blocks": 8, "block": "basic"}, 11_689_512),
        ("resnet", {"block": "basic"}, 21_797_672),
        ("resnet", {}, 25_557_032),
        ("resnet", {"blocks": 33}, 44_549_160),
        ("unet3d", {}, 5_650_801 - 2_944),
        ("mlp", {"depth": 2, "width": 10}, 784 * 10 + 10 + 10 * 10 + 10),
        ("lstm", {"width": 1500, "hidden": 1500}, 66_034_000),
    ],
)
def test_published_counts(template: str, parameters: Mapping[str, Value], count: int) -> None:
    assert count_parameters(network(template, **parameters)) == count


def test_the_paper_s_3d_unet_has_its_running_averages() -> None:
    paper = network("unet3d")
    shapes = network_shapes(paper)
    averages = sum(2 * shapes[layer.name][1] for layer in paper.layers if layer.kind == "batch_norm")
    assert averages == 2_944


TABLE_1 = list(product((4, 8, 16, 32), (11, 13, 16, 19), (8, 10, 13, 16)))


@pytest.mark.parametrize(("batch_size", "depth", "convolutions"), TABLE_1)
def test_vgg_depth_and_convolutions_are_what_they_say(batch_size: int, depth: int, convolutions: int) -> None:
    """All combinations of the levels of the paper's table 1, hence every orthogonal array of them."""
    built = network("vgg", batch_size=batch_size, depth=depth, convolutions=convolutions)
    assert check_network(built) is None
    assert sum(layer.kind == "conv" for layer in built.layers) == convolutions
    assert longest_way(built) == depth


def longest_way(built: Network) -> int:
    """Layers with weights on the longest way from input to output."""
    ways = {built.input.name: 0}
    for layer in built.layers:
        ways[layer.name] = max(ways[name] for name in layer.inputs) + (layer.kind in ("conv", "linear"))
    return ways[built.layers[-1].name]


def test_vgg_holds_more_with_more_convolutions_and_with_more_depth() -> None:
    """Parameters four times, with gradients and optimizer states, and all outputs: neither factor is without effect."""
    held = {}
    for _, depth, convolutions in TABLE_1:
        built = network("vgg", depth=depth, convolutions=convolutions, batch_size=8)
        held[depth, convolutions] = elements(built) + 4 * count_parameters(built)
    assert len(set(held.values())) == 16
    for depth in (11, 13, 16, 19):
        row = [held[depth, convolutions] for convolutions in (8, 10, 13, 16)]
        assert row == sorted(row)
    column = [held[depth, 8] for depth in (11, 13, 16, 19)]
    assert column == sorted(column)


def elements(built: Network) -> int:
    total = 0
    for shape in network_shapes(built).values():
        size = 1
        for side in shape:
            size *= side
        total += size
    return total


def test_deformations_change_one_stage() -> None:
    plain, changed = (
        network("vgg"),
        network("vgg", stage3_kernel=5, stage3_width=0.5, stage3_extra=1, stage2_pool="average"),
    )
    shapes, other = network_shapes(plain), network_shapes(changed)
    assert other["stage3_conv1"] == (32, 128, 56, 56)
    assert shapes["stage3_conv1"] == (32, 256, 56, 56)
    assert "stage3_conv4" in other
    assert "stage3_conv4" not in shapes
    assert "stage2_average_pool1" in other
    assert other["stage4_conv1"] == shapes["stage4_conv1"]
    assert changed.parameters == {
        "stage2_pool": "average",
        "stage3_extra": 1,
        "stage3_kernel": 5,
        "stage3_width": 0.5,
    }


@pytest.mark.parametrize(
    ("template", "parameters", "layer", "process", "condition"),
    [
        ("vgg", {"edge": 16}, "stage5_max_pool1", "MaxPooling", "AtLeast(results, 1)"),
        (
            "vgg",
            {"edge": 32, "padding": "valid"},
            "stage3_conv3",
            "Convolution",
            "forall[i: inds(kernel)] | sizes(i) + around(i) >= extents(i)",
        ),
        (
            "resnet",
            {"norm": "group", "width": 0.0625},
            "stem_group_norm1",
            "GroupNormalization",
            "channels mod groups = 0",
        ),
        (
            "mlp",
            {"batch_size": 1, "norm": "batch"},
            "hidden_batch_norm1",
            "BatchNormalization",
            "training implies x(1) * prod(x(3, len(x))) <> 1",
        ),
        ("transformer", {"heads": 7}, "block1_attention_attention1", "Attention", "width mod heads = 0"),
        ("unet3d", {"edge": 8}, "encoder5_max_pool1", "MaxPooling", "AtLeast(results, 1)"),
    ],
)
def test_what_cannot_be_is_rejected_at_its_layer(
    template: str, parameters: dict[str, Any], layer: str, process: str, condition: str
) -> None:
    rejection = check_network(network(template, **parameters))
    assert rejection is not None
    assert (rejection.layer, rejection.process, rejection.condition) == (layer, process, condition)
    assert rejection.line > 0
    with pytest.raises(BadInput, match=f"cannot be built: layer '{layer}': {process} rejects it"):
        network_shapes(network(template, **parameters))


def test_parameters_are_checked() -> None:
    with pytest.raises(UnknownName, match=r"unknown parameter of template 'vgg' 'dept'; did you mean depth"):
        network("vgg", dept=11)
    with pytest.raises(
        BadInput, match=r"template 'vgg' does not take depth = 3; it takes a whole number from 8 to 200"
    ):
        network("vgg", depth=3)
    with pytest.raises(BadInput, match=r"template 'resnet' does not take block = 'wide'"):
        network("resnet", block="wide")


def test_each_parameter_has_a_meaning_and_takes_its_default() -> None:
    for template in TEMPLATES.values():
        names = [parameter.name for parameter in template.parameters]
        assert len(set(names)) == len(names)
        assert {"batch_size", "optimizer"} <= set(names)
        for parameter in template.parameters:
            assert parameter.accepts(parameter.default)
            assert parameter.meaning


def test_templates_and_specification_load_no_framework() -> None:
    script = (
        "import sys, oomcast.methods.tbem.templates; print(sorted({'torch', 'keras', 'tensorflow'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def hand_made(*layers: Layer) -> Network:
    return Network("hand", "Made by hand", 2, Input((3, 8, 8)), layers, "classes", 10, "sgd")


def test_a_network_s_own_mistakes_are_named() -> None:
    with pytest.raises(UnknownName, match=r"unknown input of layer 'a' 'y'"):
        check_network(hand_made(Layer("a", "flatten", ("y",))))
    with pytest.raises(BadInput, match=r"two layers are called 'a'"):
        check_network(hand_made(Layer("a", "flatten", ("x",)), Layer("a", "flatten", ("x",))))
    with pytest.raises(UnknownName, match=r"unknown kind of layer 'flaten'; did you mean flatten"):
        check_network(hand_made(Layer("a", "flaten", ("x",))))


@pytest.mark.parametrize("template", TEMPLATES)
def test_any_small_network_has_shapes_or_a_rejection(template: str) -> None:
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(small_parameters(TEMPLATES[template]))
    def check(parameters: dict[str, Value]) -> None:
        built = TEMPLATES[template].network(parameters)
        rejection = check_network(built)
        if rejection is None:
            shapes = network_shapes(built)
            assert all(min(shape) >= 1 for shape in shapes.values())
            assert shapes[built.layers[-1].name][0] == built.batch_size
        else:
            assert rejection.layer in {layer.name for layer in built.layers}
            assert not rejection.undefined

    check()
