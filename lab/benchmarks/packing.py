"""`python -m lab bench packing GROUNDTRUTH`: what estimates are worth to a scheduler that lets jobs share GPUs.

The jobs are measured runs on A100-40GB cards: what each truly held is known. Each is estimated by several estimators.
Half of the model families tell how far an estimator is off (a grouped conformal curve of truth / estimate, the same way
for every estimator); the jobs of a day are drawn from the other half, so that no interval has seen its own jobs. Every
day has halves of its own: with some thirty families, one that is far off decides much by the side it is on.

Arrivals and durations are synthetic, since the measurements have none: a Poisson stream, and log-normal durations of
half an hour in the median; or, with `--log`, those of a real cluster (`cluster_log.py`). Several days are drawn from
seeds, and the figures are their means.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

from rich import box
from rich.table import Table

from oomcast.advise.pack import POLICIES, Demand, Item, Problem, Replayed, Timing, parse_cards, replay
from oomcast.estimation import group_curve
from oomcast.report.charts import STYLE
from oomcast.report.figures import as_picture
from oomcast.units import GiB

from ..accuracy import Measure, Result, judged_pairs, read_sets, run_cases, sample
from .cluster_log import ClusterLog, read_cluster_log
from .report import console

DATA = ("timm_a100_fp32", "gpumemnet_cnn", "gpumemnet_mlp_step1", "gpumemnet_transformer")
ESTIMATORS = ("simulator", "learned", "horus", "fake-tensor")
ORACLE = "truth"
"""Estimates that are never wrong: the best that any estimator could do for these policies."""
CARD = "a100-40gb"
LEVELS = tuple(step / 40 for step in range(1, 40))
MEDIAN_SECONDS, SPREAD, LONGEST = 1800.0, 1.0, 86_400.0


@dataclass(frozen=True)
class Row:
    """A measured run with its estimates, bytes."""

    name: str
    family: str
    truth: int
    estimates: dict[str, int]


@dataclass(frozen=True)
class Outcome:
    """Means over days."""

    estimator: str
    policy: str
    ooms_per_1000: float
    ooms_of_days: tuple[float, float]
    """Lowest and highest."""
    makespan: float
    mean_wait: float
    mean_turnaround: float
    turnaround_of_days: tuple[float, float]
    """Lowest and highest."""
    memory_used: float
    gpus_busy: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench packing", description=__doc__)
    parser.add_argument("groundtruth", type=Path, help="folder with the measurements")
    parser.add_argument("--rows", type=int, default=60, help="of each data set at most (default: 60)")
    parser.add_argument("--cache", type=Path, required=True, help="where traces and answers are kept")
    parser.add_argument("--accept-stale", action="store_true", help="use traces that older code captured")
    parser.add_argument("--estimates", type=Path, help="keep the estimates in this file, or take them from it")
    parser.add_argument("--jobs", type=int, default=500, help="of a day (default: 500)")
    parser.add_argument("--days", type=int, default=8, help="days, each with its seed (default: 8)")
    parser.add_argument("--gpus", type=int, default=8, help="cards (default: 8)")
    parser.add_argument("--every", type=float, default=130.0, help="mean seconds between arrivals (default: 130)")
    parser.add_argument("--log", type=Path, metavar="FILE", help="arrivals and durations of a real cluster's log")
    parser.add_argument("--slowdown", type=float, default=0.2, help="by each other job on the card (default: 0.2)")
    parser.add_argument("--risk", type=float, default=0.05, help="bound on a card's P(OOM) (default: 0.05)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw deaths and turnaround: .svg or .png")
    given = parser.parse_args()
    rows = _rows(given)
    log = None if given.log is None else read_cluster_log(given.log)
    outcomes = compare(rows, given.jobs, given.days, given.gpus, given.every, given.slowdown, given.risk, log)
    _print(rows, outcomes)
    if given.plot is not None:
        given.plot.write_bytes(as_picture(draw(outcomes), str(given.plot)))
    return 0


def _rows(given: argparse.Namespace) -> list[Row]:
    if given.estimates is not None and given.estimates.is_file():
        return [Row(**one) for one in json.loads(given.estimates.read_text(encoding="utf-8"))]
    results: list[Result] = []
    for one in read_sets(given.groundtruth, DATA):
        usable = [
            case
            for case in one.cases
            if case.gpu == CARD and case.measure is Measure.DEVICE_TOTAL and case.measured is not None
        ]
        for result in run_cases(sample(usable, given.rows), ESTIMATORS, given.cache, accept_stale=given.accept_stale):
            print(".", end="", file=sys.stderr, flush=True)
            results.append(result)
    estimates: dict[str, dict[str, int]] = {}
    for name in ESTIMATORS:
        for case, judged in judged_pairs(results, name):
            estimates.setdefault(case.name, {})[name] = max(judged.estimate, 1)
    rows = [
        Row(result.case.name, result.case.family, result.case.measured or 0, estimates[result.case.name])
        for result in results
        if len(estimates.get(result.case.name, {})) == len(ESTIMATORS)
    ]
    if given.estimates is not None:
        given.estimates.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    return rows


def compare(
    rows: Sequence[Row],
    jobs: int,
    days: int,
    gpus: int,
    every: float,
    slowdown: float,
    risk: float,
    log: ClusterLog | None = None,
) -> list[Outcome]:
    """Every policy with every estimator, on the same days; each day has its own halves of the families."""
    cards = parse_cards(f"{gpus}x{CARD}")
    found: dict[tuple[str, str], list[Replayed]] = {}
    for seed in range(days):
        fitted, drawn = _halves(rows, seed)
        demands = {name: _demands(name, fitted, drawn) for name in ESTIMATORS}
        demands[ORACLE] = [Demand.from_bounds(row.truth, row.truth, row.truth) for row in drawn]
        chosen, timings = _day(seed, drawn, jobs, every, log)
        for estimator, known in demands.items():
            items = [Item(f"{n}", drawn[one].family, {CARD: known[one]}) for n, one in enumerate(chosen)]
            problem = Problem(items, cards, risk)
            for policy in POLICIES.values():
                if policy.admits is None and estimator != ESTIMATORS[0]:
                    continue
                if policy.name == "interval" and estimator == ORACLE:
                    continue  # without an interval it is best fit
                key = ("" if policy.admits is None else estimator, policy.name)
                found.setdefault(key, []).append(replay(problem, timings, policy, slowdown=slowdown))
    return [_mean(estimator, policy, done) for (estimator, policy), done in found.items()]


def _halves(rows: Sequence[Row], seed: int) -> tuple[list[Row], list[Row]]:
    """By family, in turn: those that tell the error, those that are run."""
    families = sorted({row.family for row in rows})
    random.Random(seed).shuffle(families)
    telling = set(families[::2])
    return [row for row in rows if row.family in telling], [row for row in rows if row.family not in telling]


def _demands(name: str, fitted: Sequence[Row], drawn: Sequence[Row]) -> list[Demand]:
    curve = group_curve([row.truth / row.estimates[name] for row in fitted], [row.family for row in fitted], LEVELS)
    return [Demand(row.estimates[name], curve) for row in drawn]


def _day(
    seed: int, rows: Sequence[Row], jobs: int, every: float, log: ClusterLog | None = None
) -> tuple[list[int], list[Timing]]:
    draw = random.Random(seed)
    if log is not None:
        times = log.stretch(draw, jobs, every, LONGEST)
        chosen = [draw.randrange(len(rows)) for _ in times]
        return chosen, [Timing(*time, rows[one].truth) for time, one in zip(times, chosen, strict=True)]
    now = 0.0
    chosen, timings = [], []
    for _ in range(jobs):
        now += draw.expovariate(1 / every)
        one = draw.randrange(len(rows))
        duration = min(draw.lognormvariate(math.log(MEDIAN_SECONDS), SPREAD), LONGEST)
        chosen.append(one)
        timings.append(Timing(now, duration, rows[one].truth))
    return chosen, timings


def _mean(estimator: str, policy: str, days: Sequence[Replayed]) -> Outcome:
    def of(name: str) -> float:
        return statistics.fmean(getattr(day, name) for day in days)

    return Outcome(
        estimator,
        policy,
        1000 * sum(day.ooms for day in days) / sum(day.jobs for day in days),
        (min(1000 * day.ooms / day.jobs for day in days), max(1000 * day.ooms / day.jobs for day in days)),
        of("makespan"),
        of("mean_wait"),
        of("mean_turnaround"),
        (min(day.mean_turnaround for day in days), max(day.mean_turnaround for day in days)),
        of("memory_used"),
        of("cards_busy"),
    )


def _print(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> None:
    families = len({row.family for row in rows})
    console.print(f"{len(rows)} measured runs in {families} families; each day, one half of these tells the errors")
    table = Table(box=box.SIMPLE)
    for heading in (
        "estimator",
        "policy",
        "OOM / 1000",
        "of days",
        "makespan h",
        "wait min",
        "turnaround min",
        "of days",
        "memory",
        "busy",
    ):
        table.add_column(heading, justify="left" if heading in ("estimator", "policy") else "right")
    for one in outcomes:
        table.add_row(
            one.estimator or "–",
            one.policy,
            f"{one.ooms_per_1000:.0f}",
            "–".join(f"{count:.0f}" for count in one.ooms_of_days),
            f"{one.makespan / 3600:.1f}",
            f"{one.mean_wait / 60:.0f}",
            f"{one.mean_turnaround / 60:.0f}",
            "–".join(f"{seconds / 60:.0f}" for seconds in one.turnaround_of_days),
            f"{one.memory_used:.0%}",
            f"{one.gpus_busy:.0%}",
        )
    console.print(table)
    ratios: Mapping[str, list[float]] = {n: sorted(r.truth / r.estimates[n] for r in rows) for n in ESTIMATORS}
    for name, known in ratios.items():
        low, middle, high = (known[round(share * (len(known) - 1))] for share in (0.05, 0.5, 0.95))
        console.print(f"truth / {name}: 5 % {low:.2f}, median {middle:.2f}, 95 % {high:.2f}")
    console.print(f"truths: median {statistics.median(row.truth for row in rows) / GiB:.1f} GiB")


_LEFT, _PANEL, _GAP, _ROW, _TOP = 190, 230, 60, 24, 64


def draw(outcomes: Sequence[Outcome]) -> str:
    """Two panels of bars: runs that died of memory, and how long a job took from its arrival to its end."""
    width, height = _LEFT + 2 * _PANEL + _GAP + 60, _TOP + _ROW * len(outcomes) + 14
    colours = dict(zip(POLICIES, "dbac", strict=True))
    panels = (
        ("Died of memory, per 1,000 jobs", [one.ooms_per_1000 for one in outcomes], "{:.0f}"),
        ("Mean time from arrival to end, minutes", [one.mean_turnaround / 60 for one in outcomes], "{:.0f}"),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="Sharing GPUs by policy and estimator">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        '<text class="head" x="12" y="22">Sharing GPUs, by estimator and policy</text>',
    ]
    for number, one in enumerate(outcomes):
        label = f"{one.estimator}, {one.policy}" if one.estimator else one.policy
        y = _TOP + number * _ROW + 13
        parts.append(f'<text x="{_LEFT - 8}" y="{y}" text-anchor="end">{escape(label)}</text>')
    for panel, (title, values, words) in enumerate(panels):
        left, most = _LEFT + panel * (_PANEL + _GAP), max(values) or 1.0
        parts.append(f'<text class="small" x="{left}" y="48">{escape(title)}</text>')
        for number, (one, value) in enumerate(zip(outcomes, values, strict=True)):
            top, length = _TOP + number * _ROW, value / most * _PANEL
            parts.append(
                f'<rect class="{colours[one.policy]} bar" x="{left}" y="{top}" width="{length:.1f}" '
                f'height="{_ROW - 8}"/>'
            )
            parts.append(f'<text class="small" x="{left + length + 5:.1f}" y="{top + 13}">{words.format(value)}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    sys.exit(main())
