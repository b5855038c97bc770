"""Transformers to learn classes from: GPUMemNet's own file has sixteen, so like ones are drawn and labelled here.

They are nn.TransformerEncoder classifiers as GPUMemNet's generator builds them, with sizes over the same ranges,
labelled by the simulator. The sixteen measured ones are left to judge by.
"""

from __future__ import annotations

import math
import random

from oomcast.spec import Workload

from ..accuracy import Case, Measure
from ..accuracy.gpumemnet_jobs import TransformerJob
from ..accuracy.gpumemnet_rows import GPU, STACK

__all__ = ["draw_transformers"]

_WIDTHS = (128, 256, 512, 768, 1024)
_HEADS = (2, 4, 8, 16)
_LENGTHS = (64, 128, 256, 512, 1024)
_STEPS = 2
"""Adam's state is there in the second step: no later one holds more."""
_MOST_TOKENS = 1 << 16


def draw_transformers(count: int, seed: int) -> tuple[Case, ...]:
    """Whole numbers evenly spread, over their logarithm where they span orders of magnitude."""
    drawn = random.Random(seed)
    cases = []
    for number in range(count):
        width, length = drawn.choice(_WIDTHS), drawn.choice(_LENGTHS)
        batch_size = min(_between(drawn, 2, 128), _MOST_TOKENS // length)
        job = TransformerJob(
            classes=drawn.randint(2, 1000),
            width=width,
            layers=_between(drawn, 1, 40),
            heads=drawn.choice(_HEADS),
            hidden=drawn.randint(width, 4 * width),
            length=length,
            vocabulary=_between(drawn, 5_000, 1_000_000),
            batch_size=batch_size,
        )
        cases.append(
            Case(
                data="drawn_transformers",
                campaign="drawn",
                row=str(number),
                family="transformer",
                workload=Workload.create(job, batch_size=batch_size, optimizer="adam", steps=_STEPS),
                gpu=GPU,
                stack=STACK,
                measure=Measure.DEVICE_TOTAL,
                measured=None,
                ran=False,
            )
        )
    return tuple(cases)


def _between(drawn: random.Random, low: int, high: int) -> int:
    return round(math.exp(drawn.uniform(math.log(low), math.log(high))))
