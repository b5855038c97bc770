"""Campaigns as figures and as an HTML page; the page of a running campaign."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from ...errors import UnknownName
from ...report.charts import Series, bars, chart
from ...units import GiB, format_bytes
from .polynomial import PolynomialRegression
from .report import duration, percent

if TYPE_CHECKING:
    from ..measure import Measurement, Progress
    from .campaign import ScreenedFactors
    from .campaign_file import Campaign
    from .factors import Factor
    from .gap import Gap, GapRow

__all__ = ["campaign_html", "draw_curve", "draw_efficiency", "draw_main_effects", "draw_screening", "running_page"]

_PREFERRED = ("depth", "levels", "layers", "blocks")
_PAGE = """
  :root { color-scheme: light dark }
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
  h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
  table { border-collapse: collapse } th, td { padding: .25rem .9rem .25rem 0; text-align: right }
  th:first-child, td:first-child { text-align: left } thead { border-bottom: 1px solid #9aa5b1 }
  .figures { display: flex; flex-wrap: wrap; gap: 1rem } code { overflow-wrap: anywhere } .dim { opacity: .75 }
"""


def campaign_html(gaps: Sequence[Gap], against: str | None = None) -> str:
    """One section for each campaign, then the Gap of all of them side by side: a framework's efficiency."""
    names = {factor.name for gap in gaps for factor in gap.factors}
    if against is not None and against not in names:
        raise UnknownName("factor", against, names, f"There are {', '.join(sorted(names))}.")
    body = [part for gap in gaps for part in _section(gap, against)]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(', '.join(gap.campaign for gap in gaps))}</title>",
            f"<style>{_PAGE}</style></head><body>",
            "<h1>What real runs hold beyond the static estimate</h1>",
            "<p>GV is the measured peak, SGV the static estimate of the same network, Gap = GV − SGV. "
            "Sizes in powers of two.</p>",
            _summary(gaps),
            *body,
            "<h2>Gap by framework and version</h2>",
            "<p>What the framework takes beyond the tensors that the network needs: the mean over the runs of each "
            "campaign, and a line over SGV with 95 % intervals. It compares frameworks where the campaigns have the "
            "same factors.</p>",
            _efficiency(gaps),
            '<div class="figures">',
            draw_efficiency(gaps),
            bars("Mean Gap as a share of SGV", [(_label(gap), _share(gap)) for gap in gaps], percent),
            "</div>",
            "</body></html>",
            "",
        ]
    )


def draw_screening(screened: ScreenedFactors) -> str:
    """The ranking of a campaign's factors as an SVG file."""
    shares = [(effect.factor, effect.share) for effect in screened.effects]
    return bars("Share of the static estimate's variance", shares, percent)


def draw_efficiency(gaps: Sequence[Gap]) -> str:
    """The mean Gap of each campaign as bars."""
    means = [(_label(gap), _mean_gap(gap)) for gap in gaps]
    return bars("Mean Gap", means, lambda value: format_bytes(round(value)))


def _efficiency(gaps: Sequence[Gap]) -> str:
    from .analysis import gap_line

    head = ("Campaign", "Framework", "Constant", "95 %", "For each byte of SGV", "95 %", "Left over")
    rows = []
    for gap in gaps:
        if len(gap.rows) < 4:
            continue
        line = gap_line(gap)
        low, high = (format_bytes(round(max(value, 0))) for value in (line.constant.low, line.constant.high))
        slopes = f"{line.slope.low:+.3f} to {line.slope.high:+.3f}"
        constant = format_bytes(round(max(line.constant.value, 0)))
        cells = (gap.campaign, _place(gap), constant, f"{low} to {high}", f"{line.slope.value:+.3f}", slopes)
        rows.append((*cells, percent(line.left)))
    return _table(head, rows)


def draw_curve(gap: Gap, name: str) -> str:
    """Memory against one factor: every run, the fitted polynomial and its band (the papers' figure 2)."""
    from .analysis import factor_curve

    curve = factor_curve(gap, name)
    runs = [(float(row.parameters[name]), row.measured / GiB) for row in gap.runs]
    fitted = [(point.value, point.fitted / GiB) for point in curve.points]
    band = [(point.value, point.low / GiB, point.high / GiB) for point in curve.points]
    return chart(
        f"Memory against {name}: {_place(gap)}",
        [
            Series(f"polynomial with its {curve.level:.0%} band", fitted, joined=True, dots=False, band=band),
            Series("each run", runs),
        ],
        x=name,
        y="GiB",
    )


def draw_main_effects(gap: Gap) -> str:
    """How much each factor moves what was measured, and the Gap."""
    return _effects(gap, "GV", [row.measured for row in gap.runs])


def running_page(campaign: Campaign, progress: Progress, measured: Sequence[Measurement]) -> str:
    """A campaign while it runs: the page asks for itself anew every few seconds until all is done."""
    again = '<meta http-equiv="refresh" content="5">' if progress.done < progress.total else ""
    left = f"about {duration(progress.eta_seconds)} left" if progress.eta_seconds is not None else ""
    state = ", ".join(part for part in (f"{progress.running} running", f"{progress.failed} failed", left) if part)
    names = [factor.name for factor in campaign.all_factors]
    rows = [
        (
            one.case.role,
            *(one.case.parameters.get(name, "") for name in names),
            one.outcome.value,
            format_bytes(one.peak_bytes),
            f"{one.seconds:.0f} s",
            one.message,
        )
        for one in measured
    ]
    share = 100 * progress.done / max(progress.total, 1)
    points = [(float(number), one.peak_bytes / GiB) for number, one in enumerate(measured, 1)]
    figure = chart("Measured so far", [Series("peak", points)], x="case", y="GiB") if points else ""
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8">{again}',
            f"<title>{escape(campaign.name)}: {progress.done} of {progress.total}</title>",
            f"<style>{_PAGE}</style></head><body>",
            f"<h1>{escape(campaign.name)}</h1>",
            f"<p>{escape(campaign.template)} under {escape(campaign.framework)} on {escape(campaign.device)}: "
            f"<strong>{progress.done} of {progress.total}</strong> done; {escape(state)}.</p>",
            f'<progress max="100" value="{share:.0f}"></progress>',
            figure,
            _table(("role", *names, "outcome", "peak", "time", ""), rows),
            "</body></html>",
            "",
        ]
    )


def _summary(gaps: Sequence[Gap]) -> str:
    head = ("Campaign", "Runs", "Others", "SGV alone", "GV polynomial", "SGV + Gap")
    rows = []
    for gap in gaps:
        mape = gap.mape(gap.checks or gap.runs)
        cells = (gap.campaign, len(gap.runs), len(gap.checks), *map(percent, (mape.static, mape.direct, mape.gap)))
        rows.append(cells)
    note = "on configurations that the fit had not seen" if all(gap.checks for gap in gaps) else "on what is known"
    return _table(head, rows) + f'<p class="dim">Mean absolute percentage errors {note}.</p>'


def _section(gap: Gap, against: str | None) -> Iterator[str]:
    from .analysis import outliers

    environment = gap.environment
    yield f"<h2>{escape(gap.campaign)}</h2>"
    place = ", ".join(str(environment.get(name)) for name in ("machine", "allocator") if environment.get(name))
    yield f"<p>{escape(gap.template)} under {escape(_place(gap))} on {escape(gap.device)}: {escape(place)}.</p>"
    yield '<div class="figures">'
    yield _against(gap, _chosen(gap, against))
    if _chosen(gap, against).is_numeric:
        yield draw_curve(gap, _chosen(gap, against).name)
    yield _predicted(gap)
    for name, values in (("GV", [row.measured for row in gap.runs]), ("Gap", [row.gap for row in gap.runs])):
        yield _effects(gap, name, values)
    yield "</div>"
    yield f"<p>Gap = <code>{escape(gap.model.equation())}</code> bytes</p>"
    head = ("Term of the Gap", "Coefficient", "Standard error")
    terms = gap.model.terms_ if isinstance(gap.model, PolynomialRegression) else ()
    if terms:
        yield _table(head, [(term.name, f"{term.coefficient:.4g}", f"{term.error:.2g}") for term in terms])
    for far in outliers(gap):
        settings = ", ".join(f"{name} = {value}" for name, value in far.row.parameters.items())
        yield f"<p>Stands out: {escape(settings)}: {far.ratio:.3f} times what the other runs let expect.</p>"
    yield f'<p class="dim">GV = <code>{escape(gap.direct.equation())}</code> bytes, for comparison.</p>'


def _chosen(gap: Gap, against: str | None) -> Factor:
    by_name = {factor.name: factor for factor in gap.factors}
    wanted = [against, *_PREFERRED] if against else [*_PREFERRED]
    return next((by_name[name] for name in wanted if name in by_name), gap.factors[0])


def _against(gap: Gap, factor: Factor) -> str:
    """Memory against one factor: the mean over the array at each of its levels, every run a dot."""
    numeric = factor.is_numeric
    place = {level: float(level) if numeric else float(i) for i, level in enumerate(factor.levels)}
    ticks = [(place[level], str(level)) for level in factor.levels]
    rows = [row for row in gap.runs if row.parameters[factor.name] in place]

    def at(row: GapRow) -> float:
        return place[row.parameters[factor.name]]

    def means(values: Sequence[float]) -> list[tuple[float, float]]:
        pairs = list(zip(map(at, rows), values, strict=True))
        return [(x, _mean([v for p, v in pairs if p == x])) for x in sorted({p for p, _ in pairs})]

    measured = [row.measured / GiB for row in rows]
    static = [row.static.total / GiB for row in rows]
    fitted = [gap.predict(row.parameters, row.static) / GiB for row in rows]
    return chart(
        f"Memory against {factor.name}",
        [
            Series("measured (GV)", means(measured), joined=True),
            Series("static (SGV)", means(static), joined=True),
            Series("SGV + Gap", means(fitted), joined=True),
            Series("each run", [(at(row), value) for row, value in zip(rows, measured, strict=True)]),
        ],
        x=factor.name,
        y="GiB, mean over the runs at each level",
        x_ticks=ticks,
    )


def _predicted(gap: Gap) -> str:
    rows = gap.checks or gap.runs
    which = "configurations never seen" if gap.checks else "the runs it was fitted to"
    return chart(
        f"Predicted against measured: {which}",
        [
            Series("SGV + Gap", [(r.measured / GiB, gap.predict(r.parameters, r.static) / GiB) for r in rows]),
            Series("GV polynomial", [(r.measured / GiB, gap.predict_direct(r.parameters) / GiB) for r in rows]),
            Series("SGV", [(r.measured / GiB, r.static.total / GiB) for r in rows]),
        ],
        x="measured, GiB",
        y="predicted, GiB",
        diagonal=True,
    )


def _effects(gap: Gap, name: str, values: Sequence[int]) -> str:
    from .factors import main_effects

    effects = main_effects(gap.factors, [row.parameters for row in gap.runs], values)
    spans = {effect.factor: effect.range for effect in effects}
    named = [(f"{effect.factor} ({percent(effect.share)})", spans[effect.factor]) for effect in effects]
    return bars(f"Main effects on {name}: range of the means", named, lambda value: format_bytes(round(value)))


def _place(gap: Gap) -> str:
    return f"{gap.framework} {gap.environment.get('version', '')}".strip()


def _label(gap: Gap) -> str:
    return f"{gap.campaign}: {_place(gap)}"


def _mean_gap(gap: Gap) -> float:
    return _mean([row.gap for row in gap.runs])


def _share(gap: Gap) -> float:
    return _mean_gap(gap) / max(_mean([row.static.total for row in gap.runs]), 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
