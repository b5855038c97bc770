"""Each layer's specification against torch: a case passes if and only if torch takes it, with the same output shape.

What "takes" means at the edges is said in `layer_cases`. 2,000 cases of each kind in a normal run; set
OOMCAST_SPEC_CASES=20000 for the full count.
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest
from layer_cases import KINDS, Shapes, quick_layers, torch_answer

from oomcast.methods.tbem.specification import Outputs, Process, Rejection, layer_specifications

CASES = int(os.environ.get("OOMCAST_SPEC_CASES", "2000"))


@pytest.mark.parametrize("name", KINDS)
def test_specification_agrees_with_torch(name: str) -> None:
    kind = KINDS[name]
    process = layer_specifications().process(kind.process)
    random = Random(name)
    accepted = 0
    with quick_layers():
        for _ in range(CASES):
            case = kind.draw(random)
            expected = torch_answer(kind, case)
            found = process.run(case)
            if isinstance(found, Rejection):
                assert expected is None, f"{found}, but torch gives {expected} for {case}"
                assert not found.undefined, f"{found} for {case}"
            else:
                shapes = {output: tuple(shape) for output, shape in found.items()}
                assert shapes == expected, f"{case}: specified {shapes}, torch gives {expected or 'an error'}"
                accepted += 1
    assert 0.2 <= accepted / CASES <= 0.8, "both accepted and rejected cases must be frequent"


_NEVER_DRAWN = ("rank <= 3", "inset [")
"""Conditions on what names a kind, which no drawn case breaks."""
_IMPLIED = (
    "in_channels >= 1",
    "in_features >= 0",
    "in_features >= 1",
    "channels >= 0",
    "features >= 1",
    "width >= 1",
    "hidden >= 1",
)
"""Conditions that say plainly what follows from others, or fail only where two values are moved to the same edge."""


@pytest.mark.parametrize("name", sorted({kind.process for kind in KINDS.values()}))
def test_no_precondition_is_idle(name: str) -> None:
    """Without any one of its conditions, a specification would disagree with torch: so the comparison can fail."""
    process = layer_specifications().process(name)
    random = Random(f"idle {name}")
    kinds = [kind for kind in KINDS.values() if kind.process == name]
    drawn = [(kind, kind.draw(random)) for kind in kinds for _ in range(max(600, 1500 // len(kinds)))]
    with quick_layers():
        answered = [(case, torch_answer(kind, case)) for kind, case in drawn]
    for place, condition in enumerate(process.preconditions):
        if condition.text in _IMPLIED or any(part in condition.text for part in _NEVER_DRAWN):
            continue
        weaker = replace(process, preconditions=process.preconditions[:place] + process.preconditions[place + 1 :])
        assert any(_differs(weaker, case, answer) for case, answer in answered), condition.text


def _differs(process: Process, case: dict[str, object], answer: Shapes | None) -> bool:
    found: Outputs | Rejection = process.run(case)
    if isinstance(found, Rejection):
        return bool(found.undefined) or answer is not None
    return {output: tuple(shape) for output, shape in found.items()} != answer
