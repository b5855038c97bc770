"""Layouts over several GPUs: in the terminal, and for programs."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..advise import Plan, PlannedLayout
from ..units import format_bytes
from .words import chance

__all__ = ["plan_as_json", "render_plan"]


def render_plan(plan: Plan) -> RenderableType:
    """The cheapest layout that fits, then all that were tried, then the commands of the frontier."""
    line = Text()
    best = plan.best
    if best is None:
        line.append("NOTHING FITS", style="bold red")
        line.append(f"  {plan.job} on {plan.device}: none of the {len(plan.layouts)} layouts that were tried")
    else:
        line.append(_name(best), style="bold green")
        line.append(
            f"  is the cheapest layout of {plan.job} that fits on {plan.device}: {format_bytes(best.device_total)} of "
            f"{format_bytes(plan.device_usable)} usable on its worst rank"
        )
    parts: list[RenderableType] = [line, Text(""), _table(plan)]
    if plan.frontier:
        parts += [Text(""), Text("The frontier: each costs more than the one before, and holds less", style="bold")]
        parts += [Text(f"  {layout.command}", no_wrap=True, overflow="ignore") for layout in plan.frontier]
    words = f"{plan.captures} captures, {plan.seconds:.1f} s; {plan.left_out} layouts ruled out without a capture"
    if plan.untried:
        words += f", {plan.untried} costlier ones not tried (--captures)"
    if any(not layout.whole for layout in plan.layouts):
        words += "; ≈: captured with few of the model's blocks and extended to all"
    cost = "the cost orders layouts by a stated model (see the documentation), it promises no times"
    return Group(*parts, Text(""), Text(f"{words}; {cost}.", style="dim"))


def _table(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("Layout", no_wrap=True)
    for name in ("Micro-batch", "Micro-batches", "Cost", "Worst rank", "P(OOM)"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for layout in plan.layouts:
        candidate = layout.candidate
        table.add_row(
            _name(layout),
            str(candidate.batch_size),
            str(candidate.accumulation),
            f"{layout.cost:.3g}",
            f"{'' if layout.whole else '≈ '}{format_bytes(layout.device_total)}",
            chance(layout.p_oom),
            _verdict(layout, plan),
        )
    return table


def _verdict(layout: PlannedLayout, plan: Plan) -> Text:
    if layout.fits:
        return Text("fits", style="green")
    if layout.device_total <= plan.device_usable:
        return Text("too tight", style="yellow")
    return Text("does not fit", style="red")


def _name(layout: PlannedLayout) -> str:
    return f"{layout.candidate.parallel}{', recomputing' if layout.candidate.checkpointing else ''}"


def plan_as_json(plan: Plan) -> dict[str, Any]:
    """Plain data for `json.dumps`."""
    plain = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan) if field.name != "layouts"}
    best = plan.best
    return plain | {
        "best": None if best is None else _layout(best),
        "frontier": [_layout(layout) for layout in plan.frontier],
        "layouts": [_layout(layout) for layout in plan.layouts],
    }


def _layout(layout: PlannedLayout) -> dict[str, Any]:
    candidate = layout.candidate
    return {
        "parallel": str(candidate.parallel),
        "batch_size": candidate.batch_size,
        "accumulation": candidate.accumulation,
        "checkpointing": candidate.checkpointing,
        "fits": layout.fits,
        "device_total": layout.device_total,
        "p_oom": layout.p_oom,
        "whole": layout.whole,
        "cost": layout.cost,
        "command": layout.command,
    }
