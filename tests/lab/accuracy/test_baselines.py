"""Other people's formulas, by hand."""

from __future__ import annotations

import pytest

from lab.accuracy.baselines import BASELINES, linear_fit
from lab.accuracy.features import Features, features_of
from oomcast.trace import Allocation, Category, Event, EventKind, Mark, Phase, Trace
from oomcast.units import GiB

FEATURES = Features(parameters=10, parameter_bytes=40, outputs=300, kept=700, operator_peak=900, buffer_bytes=5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("horus", 4 * (300 + 10 + 8 * 10)),
        ("fake-tensor", 900),
        ("accelerate", 180),
        ("deepspeed", 200),
        ("params x16 + activations", 860),
    ],
)
def test_formula(name: str, expected: int) -> None:
    assert BASELINES[name](FEATURES, 8) == expected


def test_features_are_counted_in_the_trace() -> None:
    made = [
        (400, Category.PARAMETER, Phase.BUILD, -1),
        (80, Category.INPUT, Phase.INPUT, 0),
        (1000, Category.ACTIVATION, Phase.FORWARD, 0),
        (200, Category.TEMPORARY, Phase.FORWARD, 0),
        (400, Category.GRADIENT, Phase.BACKWARD, 0),
        (800, Category.OPTIMIZER_STATE, Phase.OPTIMIZER, 0),
        (24, Category.BUFFER, Phase.BUILD, -1),
    ]
    operators = {2: "aten.convolution", 3: "aten.bmm"}
    allocations = tuple(
        Allocation(size, category, phase, step, operators.get(index, "aten.op"), "", "", dtype="float32")
        for index, (size, category, phase, step) in enumerate(made)
    )
    allocate, free = EventKind.ALLOCATE, EventKind.FREE
    order = [(allocate, 0), (allocate, 1), (allocate, 2), (allocate, 3), (free, 3), (allocate, 4), (free, 2)]
    events = tuple(Event(kind, index) for kind, index in [*order, (allocate, 5), (allocate, 6)])
    marks = (
        Mark(0, Phase.BUILD, -1),
        Mark(1, Phase.INPUT, 0),
        Mark(2, Phase.FORWARD, 0),
        Mark(5, Phase.BACKWARD, 0),
        Mark(7, Phase.OPTIMIZER, 0),
    )
    found = features_of(Trace(allocations, events, marks=marks))
    assert found == Features(
        parameters=100,
        parameter_bytes=400,
        outputs=300,
        kept=1080,
        operator_peak=1400,
        convolutions=1,
        attentions=1,
        buffer_bytes=24,
    )


def test_the_linear_fit_finds_a_line_and_leaves_the_judged_family_out() -> None:
    rows = [Features(p, 4 * p, 0, k, 0) for p in (10**6, 10**7, 10**8) for k in (10**6, 10**8, 10**9)]
    truths = [round(GiB / 2 + 20 * r.parameters + 1.5 * r.kept) for r in rows]
    groups = [i % 3 for i in range(9)]
    found = linear_fit(rows, truths, groups)
    assert found == [pytest.approx(truth, rel=1e-6) for truth in truths]
    # One family's truth is nonsense: the others' estimates for it do not follow.
    spoiled = [truth * 5 if group == 0 else truth for truth, group in zip(truths, groups, strict=True)]
    again = linear_fit(rows, spoiled, groups)
    assert [again[i] for i in (0, 3, 6)] == [pytest.approx(truths[i], rel=1e-6) for i in (0, 3, 6)]


def test_too_few_rows_give_no_fit() -> None:
    assert linear_fit([FEATURES] * 3, [1, 2, 3], ["a", "b", "c"]) == [None, None, None]
