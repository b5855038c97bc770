"""A fitted campaign as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from ..errors import UnknownName
from ..units import GiB, format_bytes
from ._campaign_text import percent
from ._charts import Series, bars, chart

if TYPE_CHECKING:
    from ..design import Factor
    from ..estimate import Gap, GapRow, ScreenedFactors

__all__ = ["campaign_html", "draw_screening"]

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
            "<p>The mean over the runs of each campaign: what the framework takes beyond the tensors that the network "
            "needs. It compares frameworks where the campaigns have the same factors.</p>",
            '<div class="figures">',
            bars("Mean Gap", [(_label(gap), _mean_gap(gap)) for gap in gaps], lambda value: format_bytes(round(value))),
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
    told = gap.environment
    yield f"<h2>{escape(gap.campaign)}</h2>"
    place = ", ".join(str(told.get(name)) for name in ("machine", "allocator") if told.get(name))
    yield f"<p>{escape(gap.template)} under {escape(_place(gap))} on {escape(gap.device)}: {escape(place)}.</p>"
    yield '<div class="figures">'
    yield _against(gap, _chosen(gap, against))
    yield _predicted(gap)
    for name, values in (("GV", [row.measured for row in gap.runs]), ("Gap", [row.gap for row in gap.runs])):
        yield _effects(gap, name, values)
    yield "</div>"
    yield f"<p>Gap = <code>{escape(gap.model.equation())}</code> bytes</p>"
    head = ("Term of the Gap", "Coefficient", "Standard error")
    yield _table(head, [(term.name, f"{term.coefficient:.4g}", f"{term.error:.2g}") for term in gap.model.terms_])
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
    from ..design import main_effects

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
