"""The runs behind the case study of equations: they are here, and the equation comes out of them."""

from __future__ import annotations

import pytest

from lab.benchmarks.equation_carry import FAMILIES
from lab.benchmarks.equation_runs import read_runs
from lab.benchmarks.equations import FRAMEWORKS, MOST_PUBLISHED_ERROR, equation_of
from oomcast.methods.equations.comparison import SYMBOLIC, compare
from oomcast.methods.tbem import TRACE_FEATURES

pytest.importorskip("pyoperon")


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_equation_of_a_3d_u_net_is_found_in_its_runs(name: str) -> None:
    runs = read_runs(name)
    fitted = equation_of(runs)
    assert "batch_size*edge^3" in fitted.equation.text()
    found = compare(runs.rows, methods=[SYMBOLIC], variables=("edge", "batch_size"), splits=3)
    assert found.median(SYMBOLIC) <= MOST_PUBLISHED_ERROR, "the white paper's own error"
    assert runs.origin.framework != "unknown"


@pytest.mark.parametrize("name", FAMILIES.values())
def test_the_runs_bring_the_figures_of_their_timelines(name: str) -> None:
    runs = read_runs(name)
    assert len(runs.rows) >= 16
    assert all(set(row.figures) == set(TRACE_FEATURES) for row in runs.rows)
