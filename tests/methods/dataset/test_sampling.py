"""What is drawn: the right number, evenly, the same every time, and within the memory asked for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast.errors import BadInput, UnknownName
from oomcast.methods.gpumemnet.dataset import ARCHITECTURES, SPACE, uniformity_of
from oomcast.methods.gpumemnet.dataset.network import size_of
from oomcast.methods.gpumemnet.dataset.sampling import Choice, Range, draw_networks, make_network, strata, value_of
from oomcast.methods.gpumemnet.dataset.uniformity import ks_distance
from oomcast.units import GiB

MOST = 40 * GiB
FEATURES = [feature for features in SPACE.values() for feature in features]


@given(st.sampled_from(FEATURES), st.floats(0, 1, exclude_max=True))
def test_a_place_and_its_value(feature: Range | Choice, place: float) -> None:
    value = feature.at(place)
    assert feature.at(feature.place(value)) == value
    assert abs(feature.place(value) - place) <= 0.5 / feature.count + 1e-9
    if isinstance(feature, Range):
        assert feature.low <= value <= feature.high


@given(st.sampled_from(strata()), st.data())
def test_every_point_of_the_cube_is_a_network(stratum, data) -> None:
    places = data.draw(
        st.lists(
            st.floats(0, 1, exclude_max=True),
            min_size=len(SPACE[stratum.kind]) + 1,
            max_size=len(SPACE[stratum.kind]) + 1,
        )
    )
    made = make_network(stratum, places)
    size = size_of(made)
    assert size.parameters > 0
    assert size.expected_bytes(made.batch_size) >= 20 * size.parameters
    if made.heads:
        assert made.width % made.heads == 0
    for feature in SPACE[stratum.kind]:
        feature.place(value_of(made, feature))  # within the feature's range


def test_rows_are_shared_evenly_and_differ() -> None:
    drawn = draw_networks(strata(), 50, MOST)
    assert len(set(drawn)) == 50
    counts = Counter((network.kind, network.architecture) for network in drawn)
    assert set(counts.values()) == {2, 3}
    assert len(counts) == 21
    # Every beginning is spread too: the strata come in turn.
    assert len({(network.kind, network.architecture) for network in drawn[:21]}) == 21


def test_the_seed_decides() -> None:
    chosen = strata(["mlp"], ["uniform", "dense"])
    assert draw_networks(chosen, 20, MOST, seed=3) == draw_networks(chosen, 20, MOST, seed=3)
    assert draw_networks(chosen, 20, MOST, seed=3) != draw_networks(chosen, 20, MOST, seed=4)


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_features_and_expected_memory_are_spread_evenly(kind: str) -> None:
    chosen = strata([kind], ["pyramid", "residual"])
    drawn = draw_networks(chosen, 96, MOST)
    expected = [size_of(network).expected_bytes(network.batch_size) for network in drawn]
    assert max(expected) <= MOST
    found = uniformity_of(drawn, expected)["kinds"][kind]
    for feature in SPACE[kind]:
        spread = found["features"][feature.name]
        if isinstance(feature, Range):
            assert spread["ks"] < 0.22, feature.name
        else:
            assert spread["fewest"] > 0.6, feature.name
    # Half of what independent draws from the same space give.
    random = np.random.default_rng(0)
    for stratum in chosen:
        networks = [make_network(stratum, random.random(len(SPACE[kind]) + 1)) for _ in range(48)]
        plain = [size_of(network).expected_bytes(network.batch_size) for network in networks]
        uneven = uniformity_of(networks, plain)["kinds"][kind]["label"][stratum.architecture]["ks"]
        assert found["label"][stratum.architecture]["ks"] < 0.6 * uneven


def test_features_alone_are_spread_better_where_memory_does_not_matter() -> None:
    chosen = strata(["mlp"], ["uniform"])
    both, features = (
        uniformity_of(draw_networks(chosen, 48, MOST, even_peaks=even), [1] * 48)["kinds"]["mlp"]
        for even in (True, False)
    )
    assert features["features"]["width"]["ks"] < both["features"]["width"]["ks"]
    assert features["discrepancy"] < both["discrepancy"]


def test_a_small_device_gets_small_networks() -> None:
    drawn = draw_networks(strata(["cnn"]), 14, GiB)
    assert all(size_of(network).expected_bytes(network.batch_size) <= GiB for network in drawn)


def test_bad_requests() -> None:
    with pytest.raises(UnknownName, match="unknown architecture 'piramid'; did you mean pyramid"):
        strata([], ["piramid"])
    with pytest.raises(UnknownName, match="unknown kind of network 'rnn'"):
        strata(["rnn"])
    with pytest.raises(BadInput, match="can be named once"):
        strata(["mlp", "mlp"])
    with pytest.raises(BadInput, match="at least 1 row, not 0"):
        draw_networks(strata(), 0, MOST)
    with pytest.raises(BadInput, match=r"expected to stay below 1.0 KiB, not 3; ask for fewer rows"):
        draw_networks(strata(["mlp"], ["uniform"]), 3, 1 << 10)


def test_the_order_of_names_does_not_matter() -> None:
    assert strata(["cnn", "mlp"], ["dense", "pyramid"]) == strata(["mlp", "cnn"], ["pyramid", "dense"])
    assert [stratum.architecture for stratum in strata(["mlp"])] == list(ARCHITECTURES)


@given(st.integers(1, 200))
def test_even_places_have_no_distance(count: int) -> None:
    even = (np.arange(count) + 0.5) / count
    assert ks_distance(even) == pytest.approx(0.5 / count)
    assert ks_distance(even / 2) >= 0.5 - 1e-9


def test_uniformity_tells_a_lopsided_set() -> None:
    drawn = draw_networks(strata(["mlp"], ["uniform"]), 48, MOST)
    lopsided = sorted(drawn, key=lambda network: network.width)[:12] * 4
    found = uniformity_of(lopsided, [None] * 48)["kinds"]["mlp"]
    assert found["features"]["width"]["ks"] > 0.5
    assert found["label"] == {}
