"""`python -m bench.tbem`: testing-based estimation on real runs, and the table of docs/tbem.md.

Every campaign under bench/campaigns is planned, measured and fitted. Measurements are kept under --store, so that a run
that was interrupted goes on, and one that is complete only fits. Keras runs where --python keras=PATH says.
Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from oomcast.design import read_campaign
from oomcast.estimate import Gap, fit_campaign, measure_campaign, read_gap, write_gap
from oomcast.measure import STEADY_MALLOC, Conditions, Limits, Progress, Store
from oomcast.report import campaign_html, render_gap

from .report import Bar, Outcome, console, print_outcome

CAMPAIGNS = Path(__file__).parent / "campaigns"
MOST_ERROR = 0.04
LEAST_CHECKS = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tbem", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="campaigns (default: all)")
    parser.add_argument("--store", type=Path, default=Path("tbem-store"), help="folder of the measurements")
    parser.add_argument("--python", action="append", default=[], metavar="FRAMEWORK=PATH")
    parser.add_argument("--fit-only", action="store_true", help="run nothing; fit what the store holds")
    parser.add_argument("--default-malloc", action="store_true", help="leave glibc's settings as they are")
    given = parser.parse_args()
    known = {path.stem: path for path in sorted(CAMPAIGNS.glob("*.toml"))}
    unknown = [name for name in given.names if name not in known]
    if unknown:
        parser.error(f"no campaign is called {unknown[0]}; there are {', '.join(known)}")
    given.store.mkdir(parents=True, exist_ok=True)
    interpreters = dict(text.split("=", 1) for text in given.python)
    gaps = []
    for name in given.names or known:
        if not given.fit_only:
            measure(known[name], given.store, interpreters, steady=not given.default_malloc)
        gaps.append(_fit(known[name], given.store))
    (given.store / "report.html").write_text(campaign_html(gaps), encoding="utf-8")
    outcome = _outcome(gaps)
    print_outcome(outcome)
    console.print(_markdown(outcome), markup=False, soft_wrap=True)
    return 0 if outcome.holds else 1


def measure(file: Path, folder: Path, interpreters: dict[str, str], *, steady: bool) -> None:
    campaign = read_campaign(file)
    conditions = Conditions(
        Limits(campaign.limits.seconds, campaign.limits.bytes),
        interpreters=interpreters,
        variables=STEADY_MALLOC if steady else {},
    )
    with console.status(campaign.name) as status, Store.open(folder / f"{file.stem}.db") as store:

        def tell(progress: Progress) -> None:
            left = "" if progress.eta_seconds is None else f", {progress.eta_seconds / 60:.0f} min left"
            status.update(f"{campaign.name}: {progress.done} of {progress.total}{left}")

        measure_campaign(campaign, store, conditions=conditions, progress=tell)


def _fit(file: Path, folder: Path) -> Gap:
    path = folder / f"{file.stem}.gap.json"
    before = read_gap(path) if path.exists() else None
    campaign = read_campaign(file)
    with (
        console.status(f"{campaign.name}: static estimates") as status,
        Store.open(folder / f"{file.stem}.db") as store,
    ):

        def tell(done: int, total: int) -> None:
            status.update(f"{campaign.name}: static estimate {done + 1} of {total}")

        gap = fit_campaign(campaign, store, before=before, progress=tell)
    write_gap(gap, path)
    console.print(render_gap(gap))
    return gap


def _outcome(gaps: list[Gap]) -> Outcome:
    rows, bars = [], []
    for gap in gaps:
        mape = gap.mape(gap.checks)
        rows.append(
            (
                gap.campaign,
                f"{gap.framework} {gap.environment['version']}",
                str(len(gap.runs)),
                str(mape.cases),
                *(f"{100 * error:.2f} %" for error in (mape.static, mape.direct, mape.gap)),
                *(f"{100 * mape.by_features[name]:.2f} %" for name in ("factors", "static")),
            )
        )
        bars += [
            Bar(f"{gap.campaign}: at least {LEAST_CHECKS} others", str(mape.cases), mape.cases >= LEAST_CHECKS),
            Bar(
                f"{gap.campaign}: SGV + Gap within {MOST_ERROR:.0%}", f"{100 * mape.gap:.2f} %", mape.gap <= MOST_ERROR
            ),
            Bar(
                f"{gap.campaign}: at most half the error of SGV alone and of the direct polynomial",
                f"{mape.gap / mape.static:.2f} and {mape.gap / mape.direct:.2f} times",
                2 * mape.gap <= min(mape.static, mape.direct),
            ),
        ]
    columns = (
        "campaign",
        "framework",
        "runs",
        "others",
        "SGV",
        "GV polynomial",
        "SGV + Gap",
        "Gap of the factors",
        "Gap of the trace's figures",
    )
    return Outcome(
        "Testing-based estimation: mean absolute percentage error on configurations never seen", columns, rows, bars
    )


def _markdown(outcome: Outcome) -> str:
    lines = [outcome.columns, ["---"] * len(outcome.columns), *outcome.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
