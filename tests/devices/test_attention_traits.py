"""Cards with equal traits run every attention call with the same kernel: that is what `oomcast gpus` relies on."""

from __future__ import annotations

import itertools

import pytest
import torch

from oomcast.capture.torch.personality import AttentionCall, Backend, Mask, Platform, Switches, choose_backend
from oomcast.devices import all_gpus, attention_traits

CAPABILITIES = sorted({gpu.compute_capability for gpu in all_gpus()})
LIBRARIES = [
    ((1, 12), 8300, (11, 3)),
    ((2, 4), 90100, (12, 1)),
    ((2, 6), 90100, (12, 4)),
    ((2, 8), 91002, (12, 8)),
    ((2, 9), 91002, (12, 8)),
    ((2, 10), 91600, (12, 8)),
    ((2, 13), 92000, (13, 0)),
    ((2, 13), 92600, (13, 0)),
]
"""torch, cuDNN, CUDA: the rules changed between any two."""
Libraries = tuple[tuple[int, int], int, tuple[int, int]]


def calls() -> list[AttentionCall]:
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    heads = ((32, 32), (33, 33), (36, 36), (128, 128), (192, 128), (200, 200), (256, 256))
    found = []
    for dtype, (head, value_head), dropout, masked in itertools.product(dtypes, heads, (0.0, 0.1), (False, True)):
        query, value = (2, 4, 16, head), (2, 4, 16, value_head)
        mask = Mask((2, 4, 16, 16)) if masked else None
        found.append(AttentionCall(query, query, value, dtype, mask=mask, dropout=dropout))
    return found


def chosen(capability: tuple[int, int], libraries: Libraries) -> list[Backend]:
    return [choose_backend(call, Platform(capability, *libraries), Switches()) for call in calls()]


@pytest.mark.parametrize("libraries", LIBRARIES)
def test_equal_traits_choose_alike(libraries: Libraries) -> None:
    choices = {capability: chosen(capability, libraries) for capability in CAPABILITIES}
    for one, other in itertools.combinations(CAPABILITIES, 2):
        if attention_traits(one) == attention_traits(other):
            assert choices[one] == choices[other]


@pytest.mark.parametrize("libraries", LIBRARIES)
def test_what_is_memory_efficient_in_fp32_is_so_where_heads_need_no_more_alignment(
    libraries: Libraries,
) -> None:
    for one, other in itertools.permutations(CAPABILITIES, 2):
        if not attention_traits(one).takes_single_like(attention_traits(other)):
            continue
        for call, here, there in zip(calls(), chosen(one, libraries), chosen(other, libraries), strict=True):
            if call.dtype is torch.float32 and there is Backend.EFFICIENT:
                assert here is Backend.EFFICIENT


def test_few_kinds_of_cards_are_left() -> None:
    assert len({attention_traits(capability) for capability in CAPABILITIES}) <= 9
