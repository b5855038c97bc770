"""LLMem's sum against answers that xMem's authors published for it (70 of them: `python -m lab bench llmem DIR`)."""

from __future__ import annotations

import pytest

from lab.benchmarks.llmem import decoder, llmem
from oomcast.units import MiB

pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("name", "base", "answers"),
    [
        # On an RTX 4060; the base is what LLMem measured there.
        ("EleutherAI/gpt-neo-125M", 1580, {8: 5410, 20: 9080, 37: 14248}),
        ("facebook/opt-125m", 1360, {11: 6278, 31: 12356, 53: 19052}),
    ],
)
def test_published_answers_come_out_of_the_sum(name: str, base: int, answers: dict[int, int]) -> None:
    model = decoder(name)
    assert model is not None
    for batch_size, published in answers.items():
        assert llmem(model, batch_size, base * MiB) // MiB == published


def test_blocks_that_are_not_linear_layers_are_not_seen() -> None:
    """GPT-2's form: what LLMem answers for it (1.8 to 2.4 GiB of 1.8 to 11.6) holds neither blocks nor logits."""
    assert decoder("cerebras/Cerebras-GPT-111M") is None
