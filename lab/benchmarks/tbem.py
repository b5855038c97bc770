"""`python -m lab bench tbem`: testing-based estimation on real runs, and the tables of docs/howto/campaigns.md.

The runs are in lab/benchmarks/campaigns/*.runs.json, and those that designs are judged on in *.pool.json, so that every
fit and table is made again without measuring. With --measure DIR they are measured anew there (what was interrupted
goes on) and written over; Keras runs where --python keras=PATH says. --capture keeps what was measured and makes the
static figures anew, for when the rules of SGV have changed. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from oomcast.methods.measure import STEADY_MALLOC, Conditions, Limits, Progress, Store, run_campaign
from oomcast.methods.tbem import (
    Campaign,
    Gap,
    GapRow,
    StaticValue,
    campaign_html,
    case_trace,
    fit_campaign,
    fit_gap,
    measure_campaign,
    read_campaign,
    refit,
    static_value,
)

from .report import Bar, Outcome, console, print_outcome
from .tbem_designs import designed, judge_designs, pool_cases

CAMPAIGNS = Path(__file__).parent / "campaigns"
MOST_ERROR = 0.03
LEAST_CHECKS = 40
MOST_RUNS = 20
BAYESIAN_CAMPAIGN = "_bayesian"
"""The end of the name of a campaign that a Bayesian design chose, beside the one of an array."""
CARRIED_RUNS = 5
MOST_CARRIED_ERROR = 0.04
CARRIED = (
    ("vgg", "own_torch", "another family of networks"),
    ("own_torch", "vgg", "another family of networks"),
    ("own_keras", "own_keras_218", "another version of TensorFlow and Keras"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench tbem", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="campaigns (default: all whose runs are here)")
    parser.add_argument("--measure", type=Path, metavar="DIR", help="measure what DIR does not hold yet, and keep it")
    parser.add_argument("--pools", action="store_true", help="with --measure: the pools that designs are judged on")
    parser.add_argument("--python", action="append", default=[], metavar="FRAMEWORK=PATH")
    parser.add_argument("--default-malloc", action="store_true", help="leave glibc's settings as they are")
    parser.add_argument("--capture", action="store_true", help="make the static figures of the runs anew")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the campaigns' report there")
    given = parser.parse_args()
    known = {path.stem: path for path in sorted(CAMPAIGNS.glob("*.toml"))}
    unknown = [name for name in given.names if name not in known]
    if unknown:
        parser.error(f"no campaign is called {unknown[0]}; there are {', '.join(known)}")
    if given.pools and not given.names:
        parser.error("--pools measures hundreds of cases; name the campaigns")
    if given.measure:
        interpreters = dict(text.split("=", 1) for text in given.python)
        if "keras" in interpreters:
            os.environ["OOMCAST_PYTHON_TENSORFLOW"] = interpreters["keras"]
        for name in given.names or known:
            measure(known[name], given.measure, interpreters, steady=not given.default_malloc, pool=given.pools)
    names = [name for name in given.names or known if runs_file(known[name]).exists()]
    if given.capture:
        for name in names:
            capture_again(known[name])
    campaigns = {name: read_campaign(known[name]) for name in names}
    gaps = {name: fitted(campaigns[name], known[name]) for name in names}
    if given.page:
        given.page.write_text(campaign_html(list(gaps.values())), encoding="utf-8")
    outcomes = [_fits(gaps)]
    pools = {name: pooled(gaps[name], known[name]) for name in names if pool_file(known[name]).exists()}
    outcomes += [judge_designs(campaigns, pools)] if pools else []
    if not given.names:
        outcomes += [_bayesian(gaps), _carried(campaigns, gaps)]
    for outcome in outcomes:
        print_outcome(outcome)
        console.print(_markdown(outcome), markup=False, soft_wrap=True)
    return 0 if all(outcome.holds for outcome in outcomes) else 1


RUNS, POOL = ".runs.json", ".pool.json"


def runs_file(campaign: Path) -> Path:
    return campaign.with_suffix(RUNS)


def pool_file(campaign: Path) -> Path:
    return campaign.with_suffix(POOL)


def fitted(campaign: Campaign, file: Path) -> Gap:
    """The fit of the runs that lie beside the campaign's file."""
    plain = json.loads(runs_file(file).read_text(encoding="utf-8"))
    return fit_gap(campaign, [_row(row) for row in plain["rows"]], plain["environment"], graph=plain["graph"])


def pooled(gap: Gap, file: Path) -> Gap:
    """The campaign with the runs of its pool in place of its own, to be fitted to some of them."""
    plain = json.loads(pool_file(file).read_text(encoding="utf-8"))
    return dataclasses.replace(gap, rows=tuple(map(_row, plain["rows"])), environment=plain["environment"], ratios=())


def _row(plain: dict[str, Any]) -> GapRow:
    return GapRow(**{**plain, "static": StaticValue(**plain["static"])})


def write_runs(gap: Gap, file: Path, ending: str = RUNS) -> None:
    """One line a run, so that a change of one is a change of one line."""
    rows = ",\n".join(json.dumps(dataclasses.asdict(row)) for row in gap.rows)
    head = json.dumps({"graph": gap.graph, "environment": dict(gap.environment), "versions": dict(gap.versions)})
    file.with_suffix(ending).write_text(f'{head[:-1]}, "rows": [\n{rows}\n]}}\n', encoding="utf-8")


def capture_again(file: Path) -> None:
    """The same measured peaks beside static figures of today."""
    campaign = read_campaign(file)
    gap = fitted(campaign, file)
    rows = []
    for number, row in enumerate(gap.rows):
        console.print(f"{campaign.name}: {number + 1} of {len(gap.rows)}", end="\r")
        seed, values = campaign.seed_of(row.parameters), campaign.parameters(row.parameters)
        trace = case_trace(seed.reference, values, campaign.steps, campaign.device, gap.graph)
        rows.append(dataclasses.replace(row, static=static_value(trace, campaign.device)))
    write_runs(fit_gap(campaign, rows, gap.environment, graph=gap.graph), file)


def measure(file: Path, folder: Path, interpreters: dict[str, str], *, steady: bool, pool: bool = False) -> None:
    """Measure a campaign, or the pool that designs for it are judged on, and write the runs beside its file."""
    campaign = read_campaign(file)
    ending = POOL if pool else RUNS
    conditions = Conditions(
        Limits(campaign.limits.seconds, campaign.limits.bytes),
        interpreters=interpreters,
        variables=STEADY_MALLOC if steady else {},
    )
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{file.stem}{'.pool' if pool else ''}.db"
    with console.status(campaign.name) as status, Store.open(place) as store:

        def tell(progress: Progress) -> None:
            left = "" if progress.eta_seconds is None else f", {progress.eta_seconds / 60:.0f} min left"
            status.update(f"{campaign.name}: {progress.done} of {progress.total}{left}")

        def captured(done: int, total: int) -> None:
            status.update(f"{campaign.name}: static estimate {done + 1} of {total}")

        if pool:
            run_campaign(pool_cases(campaign), store, None, conditions=conditions, progress=tell)
        else:
            measure_campaign(campaign, store, conditions=conditions, progress=tell)
        before = fitted(campaign, file) if runs_file(file).exists() else None
        write_runs(fit_campaign(campaign, store, before=before, progress=captured), file, ending)


def _fits(gaps: dict[str, Gap]) -> Outcome:
    rows, bars = [], []
    for gap in gaps.values():
        mape = gap.mape(gap.checks)
        if not gap.checks:
            continue
        errors = (mape.static, mape.direct, mape.gap, *(mape.by_features[x] for x in ("factors", "static", "bayesian")))
        version = f"{gap.framework} {gap.environment['version']}"
        rows.append((gap.campaign, version, str(len(gap.runs)), str(mape.cases), *map(_percent, errors)))
        if len(gap.checks) < LEAST_CHECKS:
            continue
        what = (
            f"{gap.campaign}: SGV + Gap from at most {MOST_RUNS} runs within {MOST_ERROR:.0%} on {LEAST_CHECKS} others"
        )
        bars += [
            Bar(what, _percent(mape.gap), len(gap.runs) <= MOST_RUNS and mape.gap <= MOST_ERROR),
            Bar(
                f"{gap.campaign}: at most half the error of SGV alone and of the direct polynomial",
                f"{mape.gap / mape.static:.2f} and {mape.gap / mape.direct:.2f} times",
                2 * mape.gap <= min(mape.static, mape.direct),
            ),
        ]
    gap_of = ("Gap of the factors", "Gap of the trace's figures", "Gap by averaged polynomials")
    columns = ("campaign", "framework", "runs", "others", "SGV", "GV polynomial", "SGV + Gap", *gap_of)
    title = "Testing-based estimation: mean absolute percentage error on configurations never seen"
    return Outcome(title, columns, rows, bars)


def _bayesian(gaps: dict[str, Gap]) -> Outcome:
    """Campaigns of a Bayesian design, measured as a person would, against the array's, on the cases kept out of both.

    One array and one design each, by the design of before, so that nothing is promised of them (`judge_designs` has
    several of each); what fewer of its runs would have given is shown beside it.
    """
    rows, bars = [], []
    for name, gap in gaps.items():
        design = gaps.get(f"{name}{BAYESIAN_CAMPAIGN}")
        if design is None:
            continue
        array, whole = gap.mape(gap.checks).gap, design.mape(gap.checks).gap
        fewer = [refit(design, design.runs[:count], "bayesian").mape(gap.checks).gap for count in (5, 8)]
        counts = (str(len(gap.runs)), str(len(design.runs)), str(len(gap.checks)))
        rows.append((gap.campaign, *counts, *map(_percent, (array, *fewer, whole))))
        what = f"{gap.campaign}: a Bayesian design of {len(design.runs)} runs errs no more than the array"
        bars.append(Bar(what, f"{_percent(whole)}, array {_percent(array)}", None))
    columns = ("campaign", "array's runs", "design's runs", "others", "array", "first 5", "first 8", "design")
    return Outcome("Bayesian designs beside orthogonal arrays", columns, rows, bars)


def _carried(campaigns: dict[str, Campaign], gaps: dict[str, Gap]) -> Outcome:
    """A Gap carried over from elsewhere with few new runs, against a fit of the same few runs alone."""
    rows, bars = [], []
    for source, target, what in CARRIED:
        if source not in gaps or target not in gaps:
            continue
        gap, campaign = gaps[target], campaigns[target]
        few = [dataclasses.replace(row, role="adaptive") for row in designed(gap, gap.runs, CARRIED_RUNS)]
        judges = [row for row in gap.rows if row.key not in {one.key for one in few}]
        none = mean(
            abs((row.static.total + told) / row.measured - 1)
            for row, told in zip(
                judges,
                gaps[source].carried(gap.factors, [row.parameters for row in judges], [row.static for row in judges]),
                strict=True,
            )
        )
        one = fit_gap(campaign, few[:1], gap.environment, graph=gap.graph, source=gaps[source]).mape(judges).gap
        five = fit_gap(campaign, few, gap.environment, graph=gap.graph, source=gaps[source]).mape(judges).gap
        alone = fit_gap(campaign, few, gap.environment, graph=gap.graph).mape(judges).gap
        shown = (str(len(judges)), *map(_percent, (none, one, five, alone)))
        rows.append((f"{gaps[source].campaign} → {gap.campaign}", what, *shown))
        bar = f"{source} → {target}: within {MOST_CARRIED_ERROR:.0%} with {CARRIED_RUNS} new runs"
        bars.append(Bar(bar, _percent(five), five <= MOST_CARRIED_ERROR))
    alone_column = f"{CARRIED_RUNS} runs alone, polynomial"
    columns = ("carried", "to", "others", "without a new run", "with 1", f"with {CARRIED_RUNS}", alone_column)
    return Outcome("A Gap carried to another place", columns, rows, bars)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _markdown(outcome: Outcome) -> str:
    lines = [outcome.columns, ["---"] * len(outcome.columns), *outcome.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
