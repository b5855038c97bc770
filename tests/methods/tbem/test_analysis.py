"""What fitted campaigns tell: lines, outliers, curves; averaged polynomials, and Gaps carried to another place."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest

from campaign_builder import ENVIRONMENT, MIB, made_up_rows, small_campaign, write_small
from oomcast.cli import main
from oomcast.errors import BadInput
from oomcast.methods.tbem import GapRow, fit_gap, most_telling, read_gap, write_gap
from oomcast.methods.tbem.analysis import factor_curve, gap_line, outliers
from oomcast.methods.tbem.bayesian import AveragedPolynomial, average_polynomials, next_row
from oomcast.methods.tbem.page import draw_curve, running_page


def rows_of(folder: Path, text: str | None = None) -> tuple[GapRow, ...]:
    campaign = small_campaign(folder)
    return made_up_rows(dataclasses.replace(campaign, method="full", held_out=0) if text is None else campaign)


def test_the_line_of_a_known_gap(tmp_path: Path) -> None:
    """GV = 300 MiB + 1.25 SGV: the Gap is 300 MiB and a quarter of SGV."""
    campaign = small_campaign(tmp_path)
    line = gap_line(fit_gap(campaign, rows_of(tmp_path), ENVIRONMENT.as_dict()))
    assert line.constant.value == pytest.approx(300 * MIB, rel=1e-6)
    assert line.slope.value == pytest.approx(0.25, rel=1e-6)
    assert line.slope.low <= line.slope.value <= line.slope.high
    noisy = [
        dataclasses.replace(row, measured=round(row.measured * (1 + 0.02 * (-1) ** number)))
        for number, row in enumerate(rows_of(tmp_path))
    ]
    wide = gap_line(fit_gap(campaign, noisy, ENVIRONMENT.as_dict()))
    assert wide.constant.low < 300 * MIB < wide.constant.high
    assert wide.constant.high - wide.constant.low > 1 * MIB


def test_a_run_that_was_disturbed_stands_out(tmp_path: Path) -> None:
    campaign = small_campaign(tmp_path)
    rows = list(rows_of(tmp_path))
    assert not outliers(fit_gap(campaign, rows, ENVIRONMENT.as_dict(), "static"))
    rows[3] = dataclasses.replace(rows[3], role="held_out", measured=round(1.3 * rows[3].measured))
    found = outliers(fit_gap(campaign, rows, ENVIRONMENT.as_dict(), "static"))
    assert [one.row.key for one in found] == [rows[3].key]
    assert found[0].ratio == pytest.approx(1.3, rel=0.01)


def test_the_curve_of_one_factor_has_a_band(tmp_path: Path) -> None:
    campaign = small_campaign(tmp_path)
    gap = fit_gap(campaign, rows_of(tmp_path), ENVIRONMENT.as_dict())
    curve = factor_curve(gap, "batch_size")
    assert (curve.points[0].value, curve.points[-1].value) == (8, 64)
    assert all(point.low < point.fitted < point.high for point in curve.points)
    assert '<polygon class="a band"' in draw_curve(gap, "batch_size")
    with pytest.raises(BadInput, match="unknown factor 'bach'"):
        factor_curve(gap, "bach")


def test_compare_and_curve_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    campaign = small_campaign(tmp_path)
    write_gap(fit_gap(campaign, rows_of(tmp_path), ENVIRONMENT.as_dict()), "a.gap.json")
    assert main(["campaign", "compare", "a.gap.json", "a.gap.json", "--json", "--figure", "gaps.svg"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first == second
    assert first["constant"]["value"] == pytest.approx(300 * MIB, rel=1e-6)
    assert (first["framework"], first["version"], first["outliers"]) == ("torch", "2.13.0", [])
    assert main(["campaign", "curve", "a.gap.json", "--against", "width", "--figure", "curve.svg"]) == 0
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
    write_small(tmp_path)
    assert main(["campaign", "compare", "small.toml", "a.gap.json", "--python", "torch=python3"]) == 2
    assert "give one campaign file" in capsys.readouterr().err


GRID = [[float(a), float(b)] for a in (1, 2, 3, 4) for b in (1, 2, 3, 4)]


def averaged(x: list[list[float]], y: list[float]) -> AveragedPolynomial:
    return average_polynomials(x, y, ("a", "b"), [300.0] * len(x), bounds=([1.0, 1.0], [4.0, 4.0]))


def test_averaged_polynomials_find_a_product_and_a_term_that_is_not_there() -> None:
    """A constant and a*b²: nine runs tell it; with b alone varied, what a does stays unknown."""
    y = [300.0 + 2 * a * b**2 for a, b in GRID]
    model = averaged(GRID[::2], y[::2])
    assert model.predict(GRID) == pytest.approx(y, rel=0.005)
    assert "*a*b^2" in model.equation()
    one_line = [row for row in GRID if row[0] == 1.0]
    blind = averaged(one_line, [300.0 + 2 * a * b**2 for a, b in one_line])
    on_line, off_line = np.diag(blind.covariance([[1.0, 3.0], [4.0, 4.0]], np.array([300.0, 300.0])))
    assert off_line > 100 * on_line


def test_a_disturbed_run_hardly_moves_averaged_polynomials() -> None:
    y = [300.0 + 5 * b for _, b in GRID]
    disturbed = [*y]
    disturbed[5] *= 1.05
    model = averaged(GRID, disturbed)
    least_squares, *_ = np.linalg.lstsq(np.array([[1.0, b] for _, b in GRID]), np.array(disturbed), rcond=None)
    plain = np.array([[1.0, b] for _, b in GRID]) @ least_squares
    others = [number for number in range(len(GRID)) if number != 5]
    missed, by_squares = (np.abs(np.array(told) - np.array(y))[others].mean() for told in (model.predict(GRID), plain))
    assert missed < by_squares / 2


def test_averaged_polynomials_are_read_again() -> None:
    model = averaged(GRID[:6], [300.0 + 5 * a for a, _ in GRID[:6]])
    plain = json.loads(json.dumps(model.to_plain()))
    np.testing.assert_allclose(AveragedPolynomial.from_plain(plain).predict(GRID), model.predict(GRID))
    for damaged in (
        {"high": [1.0]},
        {"left": [1.0]},
        {"terms": []},
        {"terms": [{"powers": [-1, 0], "coefficient": 1.0}]},
    ):
        with pytest.raises(ValueError, match=r"do not go|no such thing"):
            AveragedPolynomial.from_plain({**plain, **damaged})


def test_the_next_row_is_not_where_something_was_measured() -> None:
    model = average_polynomials([[0.0], [0.1], [1.0]], [1.0, 1.1, 2.0], ("a",), [1.0] * 3, bounds=([0.0], [3.0]))
    assert next_row(model, [[0.05], [3.0], [0.9]], [1.0] * 3) == 1


def test_a_bayesian_design_needs_fewer_runs_than_drawing_lots(tmp_path: Path) -> None:
    rows = list(rows_of(tmp_path))
    campaign = small_campaign(tmp_path)
    chosen = rows[:2]
    while len(chosen) < 5:
        rest = [row for row in rows if row not in chosen]
        measured = [(row.parameters, row.static, row.measured) for row in chosen]
        candidates = [(row.parameters, row.static) for row in rest]
        chosen.append(rest[most_telling(campaign.all_factors, measured, candidates)])

    def error(some: list[GapRow]) -> float:
        return fit_gap(campaign, some, ENVIRONMENT.as_dict(), "bayesian").mape(rows).gap

    drawn = [error(random.Random(seed).sample(rows, 5)) for seed in range(16)]
    assert error(chosen) <= max(drawn)
    assert error(chosen) < 0.05


def test_a_gap_is_carried_over_by_one_run(tmp_path: Path) -> None:
    """Elsewhere the framework holds 80 MiB more: one run tells that, where four would be needed without the source."""
    campaign = small_campaign(tmp_path)
    rows = rows_of(tmp_path)
    source = fit_gap(campaign, rows, ENVIRONMENT.as_dict())
    there = [dataclasses.replace(row, measured=row.measured + 80 * MIB) for row in rows]
    carried = fit_gap(campaign, there[:1], ENVIRONMENT.as_dict(), source=source)
    assert carried.mape(there).gap < 0.01
    assert carried.source is source
    with pytest.raises(BadInput, match="at least 4 are needed"):
        fit_gap(campaign, there[:1], ENVIRONMENT.as_dict())
    path = write_gap(carried, tmp_path / "there.gap.json")
    again = read_gap(path)
    assert again.predict(rows[5].parameters, rows[5].static) == carried.predict(rows[5].parameters, rows[5].static)
    assert again.source is not None


def test_a_gap_of_other_factors_is_carried_by_the_traces_figures(tmp_path: Path) -> None:
    campaign = small_campaign(tmp_path)
    rows = rows_of(tmp_path)
    source = fit_gap(campaign, rows, ENVIRONMENT.as_dict())
    renamed = dataclasses.replace(campaign, factors=(dataclasses.replace(campaign.factors[0], name="other"),))
    told = source.carried(renamed.all_factors, [{"other": 8}], [rows[0].static])
    assert told[0] == pytest.approx(rows[0].gap, rel=0.02)


def test_the_page_of_a_running_campaign(tmp_path: Path) -> None:
    from oomcast.methods.measure import Measurement, Outcome, Progress
    from oomcast.methods.tbem import plan_campaign

    campaign = small_campaign(tmp_path)
    case = plan_campaign(campaign).cases[0]
    measured = [Measurement(case, Outcome.OK, 400 * MIB, 3.0, ENVIRONMENT)]
    page = running_page(campaign, Progress(1, 6, 1, 0, 3.0, 15.0), measured)
    assert '<meta http-equiv="refresh"' in page
    assert "<strong>1 of 6</strong>" in page
    assert "about 15 s left" in page
    assert "400.0 MiB" in page
    assert "refresh" not in running_page(campaign, Progress(6, 6, 0, 0, 3.0, 0.0), measured)
