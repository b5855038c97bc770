"""A packing and a scheduler's replay for the terminal, and as JSON: the answer first, then card by card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..units import format_bytes

if TYPE_CHECKING:
    from ..advise.pack import Packing, Replayed

__all__ = ["packing_as_json", "render_packing", "render_schedules", "schedules_as_json"]

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
    for one in packing.cards:
        usable = one.card.usable
        if not one.jobs:
            table.add_row(one.card.name, "–", format_bytes(usable), "free", "", "", style="dim")
            continue
        listed = ", ".join(f"{job.name} ({format_bytes(job.device_total)})" for job in one.jobs)
        table.add_row(
            one.card.name,
            format_bytes(one.device_total),
            format_bytes(usable),
            f"{one.device_total / usable:.1%}",
            f"{one.risk:.2%}",
            listed,
        )
    return table


def _left_out(packing: Packing) -> list[Text]:
    lines = [Text(f"{one.name}: {one.reason}.") for one in packing.left_out[:_SHOWN]]
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
                "gpu": one.card.name,
                "device": one.card.kind,
                "usable": one.card.usable,
                "device_total": one.device_total,
                "p_oom": round(one.risk, 6),
                "jobs": [{"name": job.name, "device_total": job.device_total} for job in one.jobs],
            }
            for one in packing.cards
        ],
        "left_out": [{"name": one.name, "reason": one.reason, "for_room": one.for_room} for one in packing.left_out],
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
