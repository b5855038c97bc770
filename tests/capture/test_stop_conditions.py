"""Loops that end by a condition of which one part is known and another is not: generation, by length or by a token."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import oomcast

NEW = 7


@pytest.mark.parametrize(
    "stops",
    [
        lambda known, unknown: known | unknown,
        lambda known, unknown: unknown | known,
        lambda known, unknown: torch.logical_or(unknown, known),
        lambda known, unknown: ~(~unknown & ~known),
        lambda known, unknown: ~torch.logical_and(~known, ~unknown),
    ],
)
def test_a_loop_ends_at_its_length_though_no_token_is_known(stops: Callable[..., torch.Tensor]) -> None:
    with oomcast.virtual_gpu("t4"):
        tokens = torch.zeros(2, 1, dtype=torch.long, device="cuda")
        unfinished = torch.ones(2, dtype=torch.long, device="cuda")
        while True:
            drawn = torch.multinomial(torch.rand(2, 50, device="cuda"), 1)
            tokens = torch.cat([tokens, drawn], dim=1)
            at_length = torch.full((2,), tokens.shape[1] > NEW, device="cuda")
            unfinished = unfinished & ~stops(at_length, torch.isin(drawn[:, 0], torch.tensor([3], device="cuda")))
            if unfinished.max() == 0 or tokens.shape[1] > 20:
                break
        assert tokens.shape == (2, 1 + NEW)


def test_what_is_known_in_part_decides_nothing() -> None:
    with oomcast.virtual_gpu("t4") as gpu:
        known = torch.tensor([True, False], device="cuda")
        unknown = torch.rand(2, device="cuda") > 0.5
        assert not bool((known | unknown).all().logical_not())  # a check is taken to pass
        assert any("depends on data" in sentence for sentence in gpu.trace().assumptions)


def test_transformers_generates_as_many_tokens_as_it_is_told() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=100, n_positions=64)
    with oomcast.virtual_gpu("t4"), torch.no_grad():
        model = transformers.GPT2LMHeadModel(config).cuda().eval()
        model.generation_config.eos_token_id = 3
        prompt = torch.zeros(2, 4, dtype=torch.long, device="cuda")
        written = model.generate(prompt, max_new_tokens=NEW, do_sample=True, pad_token_id=0)
        assert written.shape == (2, 4 + NEW)
