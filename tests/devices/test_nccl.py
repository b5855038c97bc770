"""NCCL's buffers: figures that others measured or logged, and what follows from the source."""

from __future__ import annotations

import pytest

from oomcast.devices import (
    Exchange,
    RankGroup,
    all_gpus,
    find_gpu,
    find_stack,
    nccl_figure,
    nccl_in_words,
    nccl_version,
)
from oomcast.devices.nccl_data import nccl_data
from oomcast.units import MiB

A100, H100 = find_gpu("a100-80gb"), find_gpu("h100-80gb")
OLD, NEW = (2, 18), (2, 27)
SUMS = frozenset({Exchange.SUMS})
LINK = 12 * MiB
"""10 MiB at the receiver and 2 MiB at the sender (github.com/NVIDIA/nccl/issues/1685), or 6 and 6 on an A100."""


def test_the_groups_of_an_a100_that_were_measured() -> None:
    """On rank 0, the end of each chain: github.com/NVIDIA/nccl/issues/964."""
    assert nccl_figure(A100, OLD, [RankGroup(2, 1, SUMS)]).low == 544 * MiB
    assert nccl_figure(A100, OLD, [RankGroup(4, 1, SUMS)]).low == 688 * MiB
    assert nccl_figure(A100, OLD, [RankGroup(2, 1, SUMS)]).typical == 544 * MiB
    # A GPU within the chain sends back to the one before, too.
    assert nccl_figure(A100, OLD, [RankGroup(4, 1, SUMS)]).typical == 688 * MiB + 24 * 6 * MiB


def test_a_group_of_one_has_none_and_groups_add_up() -> None:
    pair = RankGroup(2, 1, SUMS)
    assert nccl_figure(A100, NEW, [RankGroup(1)]).high == 0
    assert nccl_figure(A100, NEW, [pair, pair]).typical == 2 * nccl_figure(A100, NEW, [pair]).typical


def test_since_2_22_only_what_is_used_is_connected() -> None:
    shards = RankGroup(8, 1, frozenset({Exchange.SHARDS}))
    figure = nccl_figure(A100, NEW, [shards])
    assert figure.low == figure.typical == 24 * LINK
    assert figure.high == 2 * 24 * LINK
    assert nccl_figure(A100, NEW, [RankGroup(8, 1, SUMS)]).typical == 2 * 24 * LINK
    for variable in ("NCCL_RUNTIME_CONNECT", "NCCL_CUMEM_ENABLE"):
        assert nccl_figure(A100, NEW, [shards], {variable: "0"}) == nccl_figure(A100, (2, 21), [shards])


def test_all_to_all_connects_each_pair() -> None:
    """8 H100, 32 channels a pair: +3.28 GB were seen, with kernels (github.com/NVIDIA/nccl/issues/1685)."""
    figure = nccl_figure(H100, (2, 26), [RankGroup(8, 1, frozenset({Exchange.PAIRS}))])
    assert figure.typical == 7 * 32 * LINK
    assert 0.8 * 3.28e9 < figure.typical < 3.28e9
    # Between nodes all peers share one pool, and two channels go to those of the own node.
    far = nccl_figure(H100, (2, 26), [RankGroup(64, 8, frozenset({Exchange.PAIRS}))])
    assert far.typical == 7 * 2 * LINK + 16 * 2 * MiB


def test_messages_connect_those_that_they_go_to() -> None:
    stage = RankGroup(4, 1, frozenset({Exchange.NEIGHBOURS}), near_peers=2)
    assert nccl_figure(H100, NEW, [stage]).typical == 2 * 32 * LINK
    across = RankGroup(4, 4, frozenset({Exchange.NEIGHBOURS}))
    assert nccl_figure(H100, NEW, [across]).typical == 4 * 2 * MiB


@pytest.mark.parametrize(
    ("version", "multicast"),
    [((2, 18), 1_610_612_736), ((2, 21), 768 * MiB), ((2, 26), 256 * MiB)],  # the first as public logs have it
)
def test_multicast_of_eight_hopper_gpus(version: tuple[int, int], multicast: int) -> None:
    group = RankGroup(8, 1, frozenset({Exchange.LARGE_SUMS}))
    without = nccl_figure(H100, version, [group], {"NCCL_NVLS_ENABLE": "0"})
    assert nccl_figure(H100, version, [group]).typical - without.typical == multicast
    assert nccl_figure(A100, version, [group]) == nccl_figure(A100, version, [group], {"NCCL_NVLS_ENABLE": "0"})


def test_cards_that_cannot_read_each_others_memory_have_buffers_on_the_host() -> None:
    for name in ("rtx-4090", "rtx-3090"):
        figure = nccl_figure(find_gpu(name), NEW, [RankGroup(8, 1, SUMS)])
        assert figure.low == figure.typical == 0 < figure.high == 16 * LINK  # with a bridge, or a changed driver
    over_pcie = nccl_figure(find_gpu("rtx-a6000"), NEW, [RankGroup(8, 1, SUMS)])
    assert over_pcie.low == 0 < over_pcie.typical == 4 * LINK < over_pcie.high == 16 * LINK


def test_the_variables_that_decide_it() -> None:
    group = [RankGroup(2, 1, SUMS)]
    usual = nccl_figure(H100, NEW, group).typical
    assert nccl_figure(H100, NEW, group, {"NCCL_MAX_NCHANNELS": "4"}).typical == usual // 6
    assert nccl_figure(H100, NEW, group, {"NCCL_MIN_NCHANNELS": "32"}).typical == usual // 3 * 4
    assert nccl_figure(H100, NEW, group, {"NCCL_BUFFSIZE": str(8 << 20)}).typical == 24 * 16 * MiB
    assert nccl_figure(H100, NEW, group, {"NCCL_P2P_DISABLE": "1"}).typical == 0
    assert nccl_figure(H100, NEW, group, {"NCCL_BUFFSIZE": "large", "NCCL_DEBUG": "1"}).typical == usual
    four = [RankGroup(4, 1, SUMS)]
    assert nccl_figure(A100, NEW, four, {"NCCL_ALGO": "Ring"}).high == 24 * LINK
    assert nccl_figure(A100, NEW, four, {"NCCL_ALGO": "^Tree"}) == nccl_figure(A100, NEW, four)
    # One channel, and so a pool of one: 8 MiB (github.com/sgl-project/sglang/pull/35538 saw 10 with all lists).
    one = {"NCCL_MAX_NCHANNELS": "1"}
    assert nccl_figure(A100, OLD, four, one).typical - nccl_figure(A100, NEW, four, one).typical == 8 * MiB


def test_bounds_hold_the_usual_figure_whatever_the_group() -> None:
    for gpu in all_gpus():
        for version in ((2, 10), (2, 16), (2, 18), (2, 21), (2, 30)):
            for size, nodes in ((2, 1), (8, 1), (2, 2), (16, 2), (64, 64), (1024, 128)):
                for done in Exchange:
                    figure = nccl_figure(gpu, version, [RankGroup(size, nodes, frozenset({done}), near_peers=0)])
                    assert 0 <= figure.low <= figure.typical <= figure.high, (gpu.name, version, size, nodes, done)


def test_a_range_is_told_only_where_there_is_one() -> None:
    sure, unsure = (nccl_figure(gpu, NEW, [RankGroup(2, 1, SUMS)]) for gpu in (A100, H100))
    assert nccl_in_words(sure, NEW).endswith("takes 288 MiB for its buffers")
    assert "288 MiB for its buffers, 192 to 288 MiB by" in nccl_in_words(unsure, NEW)


def test_the_release_follows_the_stack() -> None:
    assert [nccl_version(find_stack(name)) for name in ("2.0", "2.4", "2.6", "2.8", "2.13")] == [
        (2, 14), (2, 20), (2, 21), (2, 27), (2, 29)]  # fmt: skip
    assert nccl_version(find_stack("jax-0.4-cu12")) == nccl_data().newest


def test_every_gpu_is_in_one_kind_of_server() -> None:
    data = nccl_data()
    names = [name for server in data.servers for name in server.gpus]
    assert len(names) == len(set(names))
    assert data.server(find_gpu("a100-pcie-80gb")).nvlink is False
    assert data.server(find_gpu("custom:capability=9.0,memory=80GiB")) == data.server(H100)
