"""A packing and a scheduler's replay: for the terminal, as JSON, and drawn with a bar for each card."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..units import GiB, format_bytes
from .charts import STYLE

if TYPE_CHECKING:
    from ..advise.pack import PackedCard, Packing, Replayed

__all__ = ["draw_packing", "packing_as_json", "render_packing", "render_schedules", "schedules_as_json"]

_SHOWN = 12


def render_packing(packing: Packing) -> RenderableType:
    """What is where, with which risk; what is left out and why; what was proven and assumed."""
    parts: list[RenderableType] = [_headline(packing), Text(""), _cards(packing)]
    if packing.left_out:
        parts += [Text(""), Text("Not placed", style="bold"), *_left_out(packing)]
    notes = [
        f"Proven: {_proven(packing)}; {packing.rounds} rounds of the solver, {packing.cuts} sets of jobs excluded, "
        f"{packing.seconds:.1f} s{', stopped by the clock' if packing.stopped else ''}.",
        "Assumed: estimates of different models err independently, those of one model together; every process has its "
        "own CUDA context, counted in its total; a card's compute is not looked at.",
    ]
    if packing.bound < packing.known_to:
        parts += [
            Text(""),
            Text(
                f"Not promised: a risk of {packing.bound:g} is less than the {packing.known_to:g} that the runs behind "
                "the intervals tell of; how often jobs go further is extrapolated.",
                style="yellow",
            ),
        ]
    return Group(*parts, Text(""), *(Text(note, style="dim") for note in notes))


def _headline(packing: Packing) -> Text:
    jobs = packing.placed + len(packing.left_out)
    line = Text(no_wrap=True, overflow="ignore")
    if packing.left_out:
        line.append("NOT ALL PLACED", style="bold red")
        line.append(f"  {packing.placed} of {jobs} jobs")
    else:
        line.append("ALL PLACED", style="bold green")
        line.append(f"  {jobs} {'job' if jobs == 1 else 'jobs'}")
    highest = max((card.risk for card in packing.cards), default=0.0)
    line.append(
        f" on {packing.used} of {len(packing.cards)} GPUs; "
        f"P(OOM) of a card at most {highest:.2%}, bound {packing.bound:.4g}"
    )
    return line


def _proven(packing: Packing) -> str:
    if packing.crowded:
        return f"not more than {packing.most_jobs} jobs can be placed (gap {packing.gap:.1%})"
    if not packing.used:
        return "no job can be placed"
    gpus = "GPU is" if packing.fewest_cards == 1 else "GPUs are"
    return f"at least {packing.fewest_cards} {gpus} needed (gap {packing.gap:.1%})"


def _cards(packing: Packing) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("GPU", no_wrap=True)
    for heading in ("Estimated", "Usable", "Filled", "P(OOM)"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Jobs", overflow="fold")
    for packed in packing.cards:
        usable = packed.card.usable
        if not packed.jobs:
            table.add_row(packed.card.name, "–", format_bytes(usable), "free", "", "", style="dim")
            continue
        listed = ", ".join(f"{job.name} ({format_bytes(job.device_total)})" for job in packed.jobs)
        table.add_row(
            packed.card.name,
            format_bytes(packed.device_total),
            format_bytes(usable),
            f"{packed.device_total / usable:.1%}",
            f"{packed.risk:.2%}",
            listed,
        )
    return table


def _left_out(packing: Packing) -> list[Text]:
    lines = [Text(f"{refused.name}: {refused.reason}.") for refused in packing.left_out[:_SHOWN]]
    more = len(packing.left_out) - _SHOWN
    return lines if more <= 0 else [*lines, Text(f"and {more} more; --json lists them all.", style="dim")]


def packing_as_json(packing: Packing) -> dict[str, Any]:
    """Plain data for `json.dumps`; integers in bytes."""
    return {
        "all_placed": not packing.left_out,
        "jobs_placed": packing.placed,
        "gpus_used": packing.used,
        "risk_bound": packing.bound,
        "risk_known_to": packing.known_to,
        "fewest_gpus_proven": packing.fewest_cards,
        "most_jobs_proven": packing.most_jobs,
        "gap": round(packing.gap, 6),
        "gpus": [
            {
                "gpu": packed.card.name,
                "device": packed.card.kind,
                "usable": packed.card.usable,
                "device_total": packed.device_total,
                "p_oom": round(packed.risk, 6),
                "jobs": [{"name": job.name, "device_total": job.device_total} for job in packed.jobs],
            }
            for packed in packing.cards
        ],
        "left_out": [
            {"name": refused.name, "reason": refused.reason, "for_room": refused.for_room}
            for refused in packing.left_out
        ],
        "rounds": packing.rounds,
        "cuts": packing.cuts,
        "stopped_by_clock": packing.stopped,
        "seconds": packing.seconds,
    }


def render_schedules(replayed: Sequence[tuple[str, Replayed]], cards: int) -> RenderableType:
    """Policies by estimator, beside each other: deaths first, since they are what sharing costs."""
    table = Table(box=None, pad_edge=False)
    table.add_column("Policy", no_wrap=True)
    table.add_column("Estimator", no_wrap=True)
    for heading in ("OOM", "Lost", "Makespan", "Mean wait", "Turnaround", "Memory used", "GPUs busy"):
        table.add_column(heading, justify="right", no_wrap=True)
    for estimator, one in replayed:
        table.add_row(
            one.policy,
            estimator or "–",
            f"{one.ooms}",
            _time(one.lost_seconds),
            _time(one.makespan),
            _time(one.mean_wait),
            _time(one.mean_turnaround),
            f"{one.memory_used:.1%}",
            f"{one.cards_busy:.1%}",
        )
    jobs = replayed[0][1].jobs if replayed else 0
    failed = sorted({name for _, one in replayed for name in one.failed})
    notes = [Text("")]
    if failed:
        named = ", ".join(failed[:_SHOWN]) + (f" and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else "")
        notes.append(Text(f"Never ran, since no GPU holds what they need: {named}.", style="red"))
    notes.append(
        Text(
            "A job whose truth bursts the card it joins dies and is queued again for a card of its own; wait and "
            "turnaround are means over jobs that ended well.",
            style="dim",
        )
    )
    return Group(Text(f"{jobs} jobs on {cards} GPUs", style="bold"), Text(""), table, *notes)


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def schedules_as_json(replayed: Sequence[tuple[str, Replayed]]) -> list[dict[str, Any]]:
    """Plain data for `json.dumps`; seconds and shares."""
    return [
        {
            "policy": one.policy,
            "estimator": estimator or None,
            "jobs": one.jobs,
            "failed": list(one.failed),
            "ooms": one.ooms,
            "lost_seconds": round(one.lost_seconds, 3),
            "makespan": round(one.makespan, 3),
            "mean_wait": round(one.mean_wait, 3),
            "mean_turnaround": round(one.mean_turnaround, 3),
            "memory_used": round(one.memory_used, 6),
            "gpus_busy": round(one.cards_busy, 6),
        }
        for estimator, one in replayed
    ]


_WIDTH, _LABEL, _RISK, _TOP, _ROW, _BAR = 760, 124, 84, 56, 28, 20
_LETTER = 6.4
_COLOURS = "abcd"


def draw_packing(packing: Packing) -> str:
    """One SVG, light or dark as its reader; jobs by their point estimates."""
    largest = max(max(packed.card.usable, packed.device_total) for packed in packing.cards)
    scale = (_WIDTH - _LABEL - _RISK) / largest
    height = _TOP + _ROW * len(packing.cards) + 12
    placed, jobs = packing.placed, packing.placed + len(packing.left_out)
    title = f"{placed} of {jobs} jobs on {packing.used} of {len(packing.cards)} GPUs"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE} .free {{ fill: none; stroke: #9aa5b1 }} svg .job {{ fill: #ffffff; font-size: 11px }}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>',
        f'<text class="head" x="12" y="22">{escape(title)}</text>',
        f'<text class="small" x="{_LABEL}" y="42">estimated memory; the frame is what the card can hold '
        f"(longest: {largest / GiB:.1f} GiB)</text>",
        f'<text class="small" x="{_WIDTH - 12}" y="42" text-anchor="end">P(OOM)</text>',
    ]
    for number, one in enumerate(packing.cards):
        parts += _row(one, _TOP + _ROW * number, scale)
    return "\n".join([*parts, "</svg>"])


def _row(packed: PackedCard, top: float, scale: float) -> list[str]:
    parts = [f'<text x="{_LABEL - 8}" y="{top + 15}" text-anchor="end">{escape(packed.card.name)}</text>']
    left = float(_LABEL)
    for number, job in enumerate(packed.jobs):
        width = job.device_total * scale
        title = escape(f"{job.name}: {format_bytes(job.device_total)}")
        parts.append(
            f'<rect class="{_COLOURS[number % len(_COLOURS)]} bar" x="{left + 0.5:.1f}" y="{top}" '
            f'width="{max(width - 1, 0.5):.1f}" height="{_BAR}"><title>{title}</title></rect>'
        )
        letters = int((width - 8) / _LETTER)
        if letters >= 3:
            name = job.name if len(job.name) <= letters else job.name[: letters - 1] + "…"
            parts.append(f'<text class="job" x="{left + 5:.1f}" y="{top + 14}">{escape(name)}</text>')
        left += width
    frame = packed.card.usable * scale
    parts.append(f'<rect class="free" x="{_LABEL}" y="{top - 1}" width="{frame:.1f}" height="{_BAR + 2}"/>')
    risk = f"{packed.risk:.1%}" if packed.jobs else "free"
    parts.append(f'<text class="small" x="{_WIDTH - 12}" y="{top + 15}" text-anchor="end">{risk}</text>')
    return parts
