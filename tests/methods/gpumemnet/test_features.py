from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from learned_builder import BATCH, made, small_network, trace_of
from torch import nn

from oomcast.capture import capture
from oomcast.estimation import Target, estimate_trace
from oomcast.methods.gpumemnet import (
    Layer,
    LayerFeatures,
    layer_features,
    layers_with_memory,
    reserved_without_workspaces,
    simulator_features,
)
from oomcast.methods.gpumemnet.artifact import network_kind
from oomcast.methods.gpumemnet.features import (
    ACTIVATION_FUNCTIONS,
    TOKEN_NAMES,
    VECTOR_NAMES,
    activation_code,
    feature_vector,
    token_vectors,
)
from oomcast.spec import Place, Spec
from oomcast.trace import Category, Mark, Phase


def test_layers_are_those_of_leaf_modules_without_masks_sums_and_the_loss() -> None:
    found = layer_features(small_network())
    assert found.layers == (
        Layer("linear", 16, 16 * 8 + 16),
        Layer("batch_norm", 16, 16),
        Layer("activation", 16, 0),
        Layer("dropout", 16, 0),
        Layer("linear", 2, 32),
    )
    assert found.batch_size == BATCH
    assert found.parameters == 16 * 8 + 16 + 16 + 32
    assert found.activations == 66
    assert found.batch_activations == 66 * BATCH
    assert found.counts["linear"] == 2
    assert found.activation_function == "relu"


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("function", "name"), [("ReLU", "relu"), ("ReLU6", "relu"), ("SiLU", "silu"), ("ELU", "elu")])
def test_activations_in_place_are_layers_like_others(function: str, name: str, in_place: bool) -> None:
    """A list of modules shows them; in the forward pass they take no memory."""

    class Job:
        def model(self) -> nn.Module:
            first = [nn.Conv2d(3, 4, 3), getattr(nn, function)(inplace=in_place), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)]
            return nn.Sequential(*first, getattr(nn, function)(inplace=in_place), nn.Flatten(), nn.Linear(64, 2))

        def batch(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.zeros(batch_size, 3, 8, 8), torch.zeros(batch_size, dtype=torch.long)

    trace = capture(Spec.read(Job(), device="a100-40gb", batch_size=2))
    found = layer_features(trace)
    kinds = ["convolution", "activation", "convolution", "batch_norm", "activation", "linear"]
    assert [layer.kind for layer in found.layers] == kinds
    assert [layer.activations for layer in found.layers] == [144, 144, 64, 64, 64, 2]
    assert found.activation_function == name
    held = layers_with_memory(trace).activations
    assert held == found.activations - (208 if in_place else 0)


def test_a_forward_pass_before_training_is_not_the_one_that_counts() -> None:
    trace = small_network()
    first = trace.marks[1].position
    twice = dataclasses.replace(
        trace,
        events=trace.events[:first] + trace.events[first:],
        marks=(trace.marks[0], Mark(first, Phase.FORWARD, 0), Mark(first + 3, Phase.FORWARD, 0), trace.marks[2]),
    )
    assert [layer.kind for layer in layer_features(twice).layers] == ["activation", "dropout", "linear"]


def test_an_operator_that_is_no_known_layer_keeps_its_name() -> None:
    found = layer_features(trace_of([made("aten.im2col", "0", (BATCH, 8)), made("aten.mean.dim", "1", (BATCH, 2))]))
    assert found.kinds == ("aten.im2col", "pooling")


def test_a_trace_without_training_has_no_layers() -> None:
    empty = layer_features(dataclasses.replace(small_network(), marks=()))
    assert empty.layers == ()
    assert empty.activation_function == "identity"
    assert len(feature_vector(empty)) == len(VECTOR_NAMES)


def test_two_weights_shared_by_a_module_count_once() -> None:
    shared = [made("aten._to_copy", "0.weight", (4, 4), Category.PARAMETER), made("aten.addmm", "0", (BATCH, 4))]
    found = layer_features(trace_of([*shared, made("aten.relu", "1", (BATCH, 4)), made("aten.addmm", "0", (BATCH, 4))]))
    assert [layer.parameters for layer in found.layers] == [16, 0, 0]


def test_activation_codes_differ_but_for_selu_which_runs_as_elu() -> None:
    codes = {name: activation_code(name) for name in ACTIVATION_FUNCTIONS}
    assert len(set(codes.values())) == len(codes) - 1
    assert codes["selu"] == codes["elu"]
    assert all(math.hypot(*code) == pytest.approx(1) for code in codes.values())
    assert activation_code("never heard of") == codes["identity"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["linear", "convolution", "odd"]), st.integers(0, 10**12), st.integers(0, 10**12)),
        max_size=20,
    ),
    st.integers(1, 10**6),
)
def test_vectors_are_finite_and_named(layers: list[tuple[str, int, int]], batch_size: int) -> None:
    own = tuple(Layer(*layer) for layer in layers)
    features = LayerFeatures(own, batch_size, 7, sum(one.activations for one in own), "relu")
    vector, tokens = feature_vector(features), token_vectors(features)
    assert len(vector) == len(VECTOR_NAMES)
    assert all(math.isfinite(value) for value in vector)
    assert len(tokens) == len(own)
    assert all(len(token) == len(TOKEN_NAMES) and sum(token[: len(TOKEN_NAMES) - 3]) == 1 for token in tokens)


def test_kinds_of_networks() -> None:
    def kind(*layers: str) -> str:
        return network_kind(LayerFeatures(tuple(Layer(one, 1, 1) for one in layers), 1, 1, 1, "relu"))

    assert kind("linear", "activation") == "mlp"
    assert kind("convolution", "linear") == "cnn"
    assert kind("convolution", "attention", "linear") == "transformer"
    assert kind(*["convolution"] * 4, "attention") == "cnn"
    assert kind() == "mlp"


def test_simulator_features_are_shares_of_the_total() -> None:
    trace, target = small_network(), Target.of(Place("a100-40gb", "torch-2.4-cu121-eager"))
    estimate, layers = estimate_trace(trace, target), layer_features(trace)
    assert reserved_without_workspaces(trace, target) is None
    found = simulator_features(estimate, layers)
    parts = (
        "context",
        "cache",
        "workspace",
        "parameters",
        "gradients",
        "optimizer",
        "inputs",
        "activations",
        "temporaries",
    )
    buffers = estimate.breakdown["buffer"] / estimate.device_total
    assert sum(getattr(found, name) for name in parts) + buffers == pytest.approx(1)
    assert found.bare == 1
    assert found.normalizations == pytest.approx(1 / 5)
    assert simulator_features(estimate, layers, 0).bare == pytest.approx(found.context)
    assert all(math.isfinite(value) for value in found.values())
