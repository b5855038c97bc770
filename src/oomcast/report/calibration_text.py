"""Calibrations for the terminal: what one changed, and what is kept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..errors import OomcastError
from ..estimation import Calibration, CalibrationChange, MeasuredRun
from ..units import format_bytes

__all__ = ["render_calibration", "render_calibration_change", "render_calibrations"]


def render_calibration_change(change: CalibrationChange) -> RenderableType:
    """Before → after: the environment's constants, then this job's estimate."""
    before, after = change.before, change.after
    constants = (change.constants_before, change.constants_after)
    table = Table(box=None, pad_edge=False)
    for column in ("", "Before", "After", "Measured"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    run = change.run
    rows: list[tuple[str, int, int, int | None]] = [
        ("CUDA context", constants[0].context, constants[1].context, _measured_context(run)),
        ("Missed by the simulated allocator", constants[0].reserved, constants[1].reserved, None),
        ("Allocated by tensors", before.peak_allocated, after.peak_allocated, run.allocated),
        ("Reserved by PyTorch", before.peak_reserved, after.peak_reserved, run.reserved),
        ("Device total", before.device_total, after.device_total, run.device_total),
        (f"  {100 * after.coverage:.4g}% interval, from", before.low, after.low, None),
        ("  to", before.high, after.high, None),
        (f"  {100 * after.coverage:.4g}% will not exceed", before.will_not_exceed, after.will_not_exceed, None),
    ]
    for name, old, new, measured in rows:
        table.add_row(name, format_bytes(old), format_bytes(new), "–" if measured is None else format_bytes(measured))
    table.add_row("P(OOM)", f"{before.p_oom:.1%}", f"{after.p_oom:.1%}", "–")
    table.add_row("Verdict", before.verdict.value, after.verdict.value, "–")
    count = len(change.calibration.runs)
    use = (
        "estimates for this GPU and environment use it from now on"
        if change.is_found
        else f"use it by oomcast estimate --calibration {change.path.name}"
    )
    notes = [Text(f"Kept in {change.path}; {use}.", style="dim")]
    if not change.constants_after.context_is_measured:
        notes.append(
            Text("The context stays the catalogue's: torch's counters do not see it, nvidia-smi's figure does.", "dim")
        )
    if change.constants_after.context_is_measured and not change.constants_after.context_is_sure:
        notes.append(
            Text(
                f"The context is sure to ±{format_bytes(change.constants_after.context_error)} only, since the job is "
                "large: a small job tells it better, and so do --memory-stats of this same run, or --run.",
                "dim",
            )
        )
    if run.reserved is not None and run.reserved < run.simulated_reserved:
        notes.append(
            Text(
                f"The run reserved {format_bytes(run.simulated_reserved - run.reserved)} less than simulated; that is "
                "this job's, so nothing is taken off others.",
                "dim",
            )
        )
    title = Text("CALIBRATED", style="bold green")
    title.append(f"  {change.calibration.name}, by {_runs(count)}", style="not bold default")
    return Group(title, Text(""), table, Text(""), *notes)


def _measured_context(run: MeasuredRun) -> int | None:
    if run.device_total is None:
        return None
    return run.device_total - (run.simulated_reserved if run.reserved is None else run.reserved)


def render_calibrations(kept: Iterable[tuple[Path, Calibration | OomcastError]]) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for column in ("Name", "Runs", "Newest", "File"):
        table.add_column(column, overflow="fold", justify="right" if column == "Runs" else "left")
    for path, found in kept:
        if isinstance(found, OomcastError):
            table.add_row(path.stem, "–", "cannot be read", str(path))
        else:
            newest = max((run.date for run in found.runs), default="")
            table.add_row(found.name, str(len(found.runs)), newest, str(path))
    return table if table.row_count else Text("No calibration is kept.")


def render_calibration(calibration: Calibration) -> RenderableType:
    """All its runs."""
    table = Table(box=None, pad_edge=False)
    for column in ("Date", "From", "Job", "Batch", "Total", "Reserved", "Allocated", "Simulated reserved", "Context"):
        table.add_column(column, justify="left" if column in ("Date", "From", "Job") else "right", overflow="fold")
    for run in calibration.runs:
        sizes = (run.device_total, run.reserved, run.allocated, run.simulated_reserved, _measured_context(run))
        table.add_row(
            run.date,
            run.source,
            str(run.workload.get("job", "")),
            str(run.workload.get("batch_size", "")),
            *("–" if size is None else format_bytes(size) for size in sizes),
        )
    return Group(Text(f"{calibration.name}, {_runs(len(calibration.runs))}", style="bold"), table)


def _runs(count: int) -> str:
    return f"{count} real {'run' if count == 1 else 'runs'}"
