"""The report's parts: campaigns and kinds of models where there are several, families where they are asked for."""

from __future__ import annotations

from case_builder import make_case, make_result

from lab.accuracy import Result, as_json, make_report
from lab.accuracy.features import Features
from oomcast.units import MiB

TRANSFORMER = Features(1000, 4000, 500, 2000, 3000, convolutions=1, attentions=12)
CONVOLUTIONAL = Features(1000, 4000, 500, 2000, 3000, convolutions=50)


def results(campaigns: int = 1) -> list[Result]:
    """Twelve families, every other one convolutional; those are estimated 10 % too low."""
    made = []
    for i in range(12):
        convolutional = i % 2 == 1
        case = make_case(i, f"family {i}", (2000 if convolutional else 1800) * MiB, campaign=f"c{i % campaigns}")
        made.append(make_result(case, 1300 * MiB, features=CONVOLUTIONAL if convolutional else TRANSFORMER))
    return made


def test_kinds_are_told_apart() -> None:
    report = make_report([], {"made": results()}, ["no-workspace"], worst_rows=3)
    by_kind = {score.data: score for score in report.kinds if score.estimator == "no-workspace"}
    assert set(by_kind) == {"made transformer", "made convolutional"}
    assert by_kind["made transformer"].mre == 0.0
    assert by_kind["made convolutional"].mre is not None
    assert abs(by_kind["made convolutional"].mre - 0.1) < 1e-9
    assert (report.campaigns, report.families) == ((), ())
    assert len(report.bad) == 3


def test_campaigns_and_families() -> None:
    report = make_report([], {"made": results(2)}, ["no-workspace", "horus"], families=True)
    assert [score.data for score in report.campaigns if score.estimator == "horus"] == ["made c0", "made c1"]
    assert len(report.families) == 12
    assert {score.estimator for score in report.families} == {"no-workspace"}
    assert len(as_json(report)["families"]) == 12


def test_a_few_families_are_not_split_by_kind() -> None:
    assert make_report([], {"made": results()[:6]}, ["no-workspace"]).kinds == ()
