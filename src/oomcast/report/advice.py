"""What fits, which GPU is enough, what to change: in the terminal, and for programs as integers in bytes."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..advise import Advice, Change, Fit, Floor, GpuChoice, GpuRanking, Remedy
from ..spec import DESCRIPTIONS, options_of
from ..units import GiB, format_bytes
from .as_json import estimate_as_json

__all__ = ["advice_as_json", "fit_as_json", "gpus_as_json", "percent", "render_advice", "render_fit", "render_gpus"]

_BAR = 48
_GOOD, _BAD, _WARN = "bold green", "bold red", "bold yellow"


def render_fit(fit: Fit) -> RenderableType:
    """The value first, then how sure it is, then the curve."""
    parts: list[RenderableType] = [_answer(fit), _evidence(fit)]
    if fit.floor is not None:
        parts.append(_floor(fit.floor, fit))
    parts += [Text(f"Not verified: {sentence}.", style="yellow") for sentence in fit.unverified]
    if fit.curve:
        parts += [Text(""), *_curve(fit)]
    return Group(*parts)


def _answer(fit: Fit) -> Text:
    line = Text()
    if fit.value is None:
        line.append("NOTHING FITS", style=_BAD)
        smallest = min((check.value for check in fit.checks if not check.refused), default=1)
        line.append(f"  {fit.job} on {fit.device}: not even {fit.parameter} {smallest}")
        return line
    line.append(f"{fit.value:,}", style=_GOOD)
    line.append(
        f"  is the largest {fit.parameter} of {fit.job} that fits on {fit.device} with {100 * fit.confidence:.4g}% "
        f"confidence: P(OOM) {percent(fit.estimate.p_oom)}, runs from {format_bytes(fit.estimate.least_capacity)} on, "
        f"{format_bytes(fit.device_usable)} usable"
    )
    return line


def _evidence(fit: Fit) -> Text:
    said = {check.value: check for check in fit.checks}
    words = []
    following = said.get(fit.following) if fit.following is not None and fit.value is not None else None
    if following is not None and following.refused:
        words.append(f"{following.value:,} is refused by the job ({following.refused.rstrip('.')})")
    elif following is not None:
        words.append(
            f"{following.value:,} does not fit: P(OOM) {percent(following.p_oom)}, "
            f"runs from {format_bytes(following.needed)} on"
        )
    elif fit.bound == "at_most":
        words.append("the limit, not memory, ends it")
    captured = ", ".join(f"{check.value:,}" for check in fit.checks)
    words.append(
        f"captured: {captured} ({fit.captures} {'capture' if fit.captures == 1 else 'captures'}, {fit.seconds:.1f} s)"
    )
    return Text("; ".join(words) + ".")


def _floor(floor: Floor, fit: Fit) -> Text:
    enough = (
        f"the smallest GPU of the catalogue that would do is {floor.smallest_gpu}"
        if floor.smallest_gpu
        else "no GPU of the catalogue would do"
    )
    return Text(
        f"The floor: parameters {format_bytes(floor.parameters)}, gradients {format_bytes(floor.gradients)}, optimizer "
        f"{format_bytes(floor.optimizer_state)} and the CUDA context {format_bytes(floor.context)} make "
        f"{format_bytes(floor.model)}, which no smaller {fit.parameter} takes away; with the smallest it runs from "
        f"{format_bytes(floor.needed)} on, of {format_bytes(fit.device_usable)} usable; {enough}."
    )


def _curve(fit: Fit) -> list[RenderableType]:
    """A bar for each value: allocated in full blocks, what the allocator would like to keep beside in light ones."""
    top = max(fit.device_usable, *(point.reserved for point in fit.curve))
    device = round(_BAR * fit.device_usable / top)
    table = Table(box=None, pad_edge=False)
    table.add_column(fit.parameter, justify="right")
    table.add_column("Allocated", justify="right")
    table.add_column("Reserved", justify="right")
    table.add_column(f"0 to {top / GiB:.1f} GiB; │ is the end of {fit.device}", no_wrap=True)
    for point in fit.curve:
        full, light = round(_BAR * point.allocated / top), round(_BAR * point.reserved / top)
        bar = "█" * full + "░" * (light - full) + " " * (_BAR - light)
        bar = bar[:device] + "│" + bar[device:]
        style = _GOOD if point.value == fit.value else "" if point.captured else "dim"
        mark = "" if point.captured else " ~"
        table.add_row(
            f"{point.value:,}{mark}", format_bytes(point.allocated), format_bytes(point.reserved), bar, style=style
        )
    return [
        table,
        Text(
            "Context included; ~ interpolated between captures. A full device makes the allocator give back what it "
            "reserved beyond need, so a job may run where its reserved bytes would not fit.",
            style="dim",
        ),
    ]


def render_gpus(ranking: GpuRanking, every: bool = False) -> RenderableType:
    """The choice first, then the cards from the smallest to the largest; those far too small are counted only."""
    parts: list[RenderableType] = [_choice(ranking), Text("")]
    shown = [choice for choice in ranking.choices if every or choice.p_oom < 0.99]
    hidden = len(ranking.choices) - len(shown)
    table = Table(box=None, pad_edge=False)
    for name, side in (("GPU", "left"), ("Verdict", "left"), ("Usable", "right"), ("Needed", "right")):
        table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for name in ("Headroom", "P(OOM)", "Per hour", "From"):
        table.add_column(name, justify="left" if name == "From" else "right", no_wrap=True)
    for choice in shown:
        _add_choice(table, choice, ranking)
    parts.append(table)
    if hidden:
        parts.append(
            Text(f"{hidden} smaller cards, on which P(OOM) is 99% or more, are left out (--all).", style="dim")
        )
    if ranking.not_supported:
        parts.append(
            Text(
                f"{len(ranking.not_supported)} cards are not looked at: the usual wheels of {ranking.environment} "
                "have no code for them; name another --environment.",
                style="dim",
            )
        )
    parts += [Text(f"Not captured for {sm}: {why}", style="yellow") for sm, why in ranking.failed.items()]
    parts.append(
        Text(
            f"{ranking.captures} captures, {ranking.seconds:.1f} s; ~ from the capture of a card of the same family. "
            "Prices are dated list prices; edit a copy and give it with --prices.",
            style="dim",
        )
    )
    return Group(*parts)


def _choice(ranking: GpuRanking) -> Text:
    line = Text()
    if ranking.smallest is None:
        line.append("NO GPU IS ENOUGH", style=_BAD)
        line.append(f"  for {ranking.job} with {100 * ranking.confidence:.4g}% confidence")
        return line
    line.append(ranking.smallest, style=_GOOD)
    line.append(
        f"  is the smallest GPU that is enough for {ranking.job} with {100 * ranking.confidence:.4g}% confidence"
    )
    cheapest = next((c for c in ranking.choices if c.gpu.name == ranking.cheapest), None)
    if cheapest is not None and cheapest.price is not None:
        line.append("; ")
        line.append(cheapest.gpu.name, style=_GOOD)
        line.append(f" is the cheapest with a price, {_price(cheapest)}")
        if cheapest.price.provider:
            line.append(f" at {cheapest.price.provider}")
    return line


def _add_choice(table: Table, choice: GpuChoice, ranking: GpuRanking) -> None:
    price = choice.price
    marks = [
        word
        for word, name in (("smallest", ranking.smallest), ("cheapest", ranking.cheapest))
        if name == choice.gpu.name
    ]
    origin = " ".join((price.provider, price.as_of)).strip() if price is not None else ""
    table.add_row(
        choice.gpu.name + ("" if choice.own_capture else " ~"),
        Text("enough" + (f" ({', '.join(marks)})" if marks else ""), style=_GOOD if marks else "green")
        if choice.enough
        else Text("risky", style=_WARN)
        if choice.needed <= choice.gpu.usable_memory
        else Text("oom", style=_BAD),
        format_bytes(choice.gpu.usable_memory),
        format_bytes(choice.needed),
        format_bytes(choice.headroom),
        percent(choice.p_oom),
        _price(choice),
        origin,
    )


def _price(choice: GpuChoice) -> str:
    return "" if choice.price is None else f"{choice.price.per_hour:.2f} {choice.price.currency}"


def render_advice(advice: Advice) -> RenderableType:
    """What reaches the goal with the fewest changes, how, and what each change alone would save."""
    parts: list[RenderableType] = [_state(advice)]
    for number, change in enumerate(advice.combined[:3], 1):
        parts += [Text(""), *_proposal(number, change)]
    if advice.single:
        parts += [Text(""), Text("Each change alone", style="bold"), _alone(advice)]
    parts += [Text(f"Not for this job: {key}: {reason}", style="dim") for key, reason in advice.failed]
    parts.append(
        Text(
            f"{advice.captures} captures, {advice.seconds:.1f} s; each saving is the difference of two full estimates.",
            style="dim",
        )
    )
    return Group(*parts)


def _state(advice: Advice) -> Text:
    base, line = advice.base, Text()
    goal = (
        f"fit with {100 * advice.confidence:.4g}% confidence"
        if advice.goal == "fits"
        else f"hold at most {advice.goal}"
    )
    now = (
        f"{advice.job} on {advice.device} runs from {format_bytes(base.least_capacity)} on, of "
        f"{format_bytes(base.device_usable)} usable (P(OOM) {percent(base.p_oom)}), and would hold "
        f"{format_bytes(base.device_total)}"
    )
    if advice.reached:
        line.append("NOTHING TO CHANGE", style=_GOOD)
        line.append(f"  to {goal}: {now}")
    elif advice.combined:
        count = len(advice.combined[0].remedies)
        line.append(f"{count} CHANGE{'' if count == 1 else 'S'}", style=_WARN)
        line.append(f"  to {goal}: {now}")
    else:
        line.append("NOT REACHED", style=_BAD)
        line.append(f"  by up to three changes: to {goal}; {now}")
    return line


def _proposal(number: int, change: Change) -> list[Text]:
    after = change.estimate
    head = Text(f"{number}. {' + '.join(change.keys)}", style="bold")
    head.append(
        f"  saves {format_bytes(change.saving)}: runs from {format_bytes(after.least_capacity)} on, "
        f"P(OOM) {percent(after.p_oom)}",
        style="not bold",
    )
    lines = [head]
    for remedy in change.remedies:
        lines.append(Text(f"   {remedy.title}"))
        lines.append(Text(f"   costs: {remedy.cost} ({remedy.source})"))
        lines.append(Text(f"   code: {remedy.code}; oomcast: {remedy.flag}"))
    if change.patch:
        lines += [Text(f"   {line}", style=_diff_style(line)) for line in change.patch.splitlines()]
    return lines


def _diff_style(line: str) -> str:
    return "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"


def _alone(advice: Advice) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("Change", "Saves", "Runs from", "P(OOM)", "Would hold", "Reaches it"):
        table.add_column(name, justify="left" if name == "Change" else "right", no_wrap=True)
    table.add_column("Costs", overflow="fold")
    for change in advice.single:
        remedy, after = change.remedies[0], change.estimate
        table.add_row(
            remedy.key + (" (formula)" if remedy.formula is not None else ""),
            format_bytes(change.saving),
            format_bytes(after.least_capacity),
            percent(after.p_oom),
            format_bytes(after.device_total),
            Text("yes", style="green") if change.reaches else "no",
            remedy.cost,
        )
    return table


def percent(share: float) -> str:
    """With as many digits as tell it from never and from always."""
    if share < 0.001:
        return "below 0.1%"
    if share > 0.999:
        return "above 99.9%"
    return f"{share:.1%}" if share < 0.1 or share > 0.9 else f"{share:.0%}"


def fit_as_json(fit: Fit) -> dict[str, Any]:
    """Plain data for `json.dumps`."""
    plain: dict[str, Any] = {
        field.name: getattr(fit, field.name)
        for field in dataclasses.fields(fit)
        if field.name not in ("estimate", "checks", "curve", "floor", "unverified")
    }
    return plain | {
        "fits": fit.fits,
        "captures": fit.captures,
        "unverified": list(fit.unverified),
        "checks": [dataclasses.asdict(check) for check in fit.checks],
        "curve": [dataclasses.asdict(point) for point in fit.curve],
        "floor": None if fit.floor is None else dataclasses.asdict(fit.floor) | {"model": fit.floor.model},
        "estimate": estimate_as_json(fit.estimate),
    }


def gpus_as_json(ranking: GpuRanking) -> dict[str, Any]:
    return {
        "job": ranking.job,
        "confidence": ranking.confidence,
        "smallest": ranking.smallest,
        "cheapest": ranking.cheapest,
        "captures": ranking.captures,
        "failed": dict(ranking.failed),
        "environment": ranking.environment,
        "not_supported": list(ranking.not_supported),
        "seconds": ranking.seconds,
        "gpus": [_choice_as_json(choice) for choice in ranking.choices],
    }


def advice_as_json(advice: Advice) -> dict[str, Any]:
    return {
        "job": advice.job,
        "device": advice.device,
        "goal": advice.goal,
        "confidence": advice.confidence,
        "reached": advice.reached,
        "reachable": advice.reachable,
        "base": estimate_as_json(advice.base),
        "single": [_change(change) for change in advice.single],
        "combined": [_change(change) for change in advice.combined],
        "failed": [{"remedy": remedy, "reason": reason} for remedy, reason in advice.failed],
        "captures": advice.captures,
        "seconds": advice.seconds,
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "remedies": [
            {
                "key": remedy.key,
                "title": remedy.title,
                "cost": remedy.cost,
                "source": remedy.source,
                "flag": remedy.flag,
                "code": remedy.code,
                "options": _options(remedy),
                "by_formula": remedy.formula is not None,
            }
            for remedy in change.remedies
        ],
        "saving": change.saving,
        "saving_total": change.saving_total,
        "reaches": change.reaches,
        "patch": change.patch,
        "estimate": estimate_as_json(change.estimate),
    }


def _options(remedy: Remedy) -> dict[str, Any]:
    """What the remedy sets, as the options of a job."""
    kinds = {option.name: option.kind for option in options_of(*DESCRIPTIONS)}
    plain = {name: kinds[name].plain(value) for name, value in remedy.changes.items()}
    return {**plain, "alloc_conf": remedy.alloc_conf} if remedy.alloc_conf else plain


def _choice_as_json(choice: GpuChoice) -> dict[str, Any]:
    return {
        "gpu": choice.gpu.name,
        "enough": choice.enough,
        "usable_memory": choice.gpu.usable_memory,
        "device_total": choice.device_total,
        "least_capacity": choice.needed,
        "headroom": choice.headroom,
        "p_oom": choice.p_oom,
        "own_capture": choice.own_capture,
        "price": None if choice.price is None else dataclasses.asdict(choice.price),
    }
