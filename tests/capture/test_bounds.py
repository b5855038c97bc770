"""Integers that depend on data, and the sizes that models make of them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import oomcast  # noqa: E402


@pytest.fixture(scope="module")
def unknown_order():
    """A virtual GPU and a permutation on it whose values nobody knows."""
    with oomcast.virtual_gpu("a100-40gb"):
        yield torch.rand(1200, device="cuda").sort().indices


@pytest.fixture(scope="module")
def graphs(unknown_order):
    """Of 1,200 nodes, to which of 60 graphs each belongs."""
    return torch.arange(60).repeat_interleave(20).cuda()


def test_what_is_picked_is_no_larger_than_what_it_is_picked_from(unknown_order, graphs):
    picked = graphs[unknown_order]
    assert int(picked.max()) + 1 == 60
    assert (picked.max() + 1).item() == 60
    assert picked[unknown_order].view(2, -1).amax().item() == 59


def test_an_index_that_is_read_is_in_range(unknown_order, graphs):
    assert int(graphs[unknown_order][0]) == 1
    assert int((graphs * 0)[unknown_order][0]) == 0


def test_places_are_below_the_size_of_their_dimension(unknown_order):
    assert int(torch.randn(500, 10, device="cuda").argmax(1).max()) == 9


def test_scattered_everywhere_nothing_is_left_of_what_was_there(unknown_order, graphs):
    everywhere = torch.arange(1200, device="cuda")
    pooled = torch.arange(1200, device="cuda").scatter_(0, everywhere, graphs[unknown_order])
    assert int(pooled.max()) == 59
    half = torch.arange(1200, device="cuda").scatter_(0, everywhere[:600], graphs[unknown_order][:600])
    assert int(half.max()) == 1199


def test_what_was_written_over_has_no_bound_left(unknown_order, graphs):
    picked = graphs[unknown_order]
    picked.add_(unknown_order)
    assert int(picked.max()) == 1, "nothing is known of it"


def test_what_an_operator_only_reads_keeps_its_values(unknown_order):
    numbers = torch.arange(1200, device="cuda")
    torch.zeros(1200, dtype=torch.int64, device="cuda")[unknown_order] = numbers
    assert numbers[7].item() == 7


def test_arrays_of_integers_are_what_their_items_are(unknown_order):
    """A period is a length divided by the frequency that was found: never by zero."""
    frequencies = torch.rand(1200, device="cuda").topk(3).indices
    assert frequencies.cpu().numpy().tolist() == [1, 1, 1] == frequencies.tolist()
    assert torch.rand(1200, device="cuda").cpu().numpy().max() == 0


def test_known_integers_are_real_again_on_the_host(unknown_order):
    """The state of a generator goes over the GPU when the processes of a job agree on it (accelerate)."""
    generator = torch.Generator()
    state = generator.get_state()
    generator.set_state(state.to("cuda").cpu())
    assert torch.equal(generator.get_state(), state)
    lengths = torch.tensor([3, 2]).cuda().cpu()
    assert lengths.tolist() == [3, 2]
    assert lengths.data_ptr() != 0


def test_what_the_host_cannot_compute_is_not_known_any_more(unknown_order):
    """The host has no arithmetic in float8: what was written by it is not what was there before."""
    small = torch.full((4,), 3.0).to(torch.float8_e4m3fn).cuda()
    assert small[0].item() == 3.0
    small.mul_(2)
    assert small[0].item() == 1.0, "a stand-in"
