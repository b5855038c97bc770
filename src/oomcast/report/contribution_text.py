"""A measured run that can be given away: what is in its file, for whoever is about to give it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..estimation import Contribution
from ..units import format_bytes

__all__ = ["contribution_as_json", "render_contribution"]

_FIGURES = (
    ("Device total", "device_total", "estimated_total"),
    ("Reserved by PyTorch", "reserved", "estimated_reserved"),
    ("Allocated by tensors", "allocated", "estimated_allocated"),
)


def contribution_as_json(contribution: Contribution) -> dict[str, Any]:
    """All but the Trace, of which the counts are told."""
    told = {field.name: getattr(contribution, field.name) for field in fields(contribution) if field.name != "trace"}
    trace = contribution.trace
    return {**told, "allocations": len(trace.allocations), "events": len(trace.events), "kernels": len(trace.kernels)}


def render_contribution(contribution: Contribution, path: str) -> RenderableType:
    title = Text("MEASURED RUN", style="bold")
    title.append(f"  {path}", style="not bold default")
    figures = Table(box=None, pad_edge=False)
    for column in ("", "Measured", "Estimated"):
        figures.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, measured, estimated in _FIGURES:
        value = getattr(contribution, measured)
        shown = "–" if value is None else format_bytes(value)
        figures.add_row(name, shown, format_bytes(getattr(contribution, estimated)))
    notes = []
    if not contribution.ran:
        notes.append(Text("The run was out of memory.", style="dim"))
    notes.append(
        Text(
            "If these are far apart, look once more whether the options are those of the run. If they are, the run is "
            "worth the more.",
            style="dim",
        )
    )
    return Group(title, Text(""), figures, Text(""), Text("What the file tells:"), _contents(contribution), *notes)


def _contents(contribution: Contribution) -> RenderableType:
    trace = contribution.trace
    options = ", ".join(f"{name} {value}" for name, value in contribution.options.items())
    rows = [
        ("where", f"{contribution.device}, {contribution.environment}"),
        ("model", contribution.model or f"not named; a digest of its weights' shapes, {contribution.family}"),
        ("options", options or "all as they are by default"),
        ("versions", ", ".join(f"{name} {version}" for name, version in contribution.versions.items())),
        (
            "memory",
            f"{len(trace.allocations):,} blocks with size, shape, type, phase and operator of torch, "
            f"{len(trace.events):,} events, {len(trace.kernels):,} kernels; no modules, lines, files or other names",
        ),
    ]
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, told in rows:
        table.add_row(f"  {name}", told)
    return table
