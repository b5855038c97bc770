"""The terminal's form: the verdict first, then where the memory goes, then the tensors that make the peak."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..devices import Gpu
from ..estimation import Estimate, Verdict
from ..simulate import ReplayResult
from ..trace import Phase
from ..units import GiB, format_bytes
from .words import chance, interval_words, label, moment, phase_words, short_source

__all__ = ["render_devices", "render_estimate", "render_replay"]

_COLOURS = {
    Verdict.FITS: "bold green",
    Verdict.TIGHT: "bold yellow",
    Verdict.OOM: "bold red",
    Verdict.UNKNOWN: "bold magenta",
}


def render_estimate(estimate: Estimate) -> RenderableType:
    """Verdict, breakdown, largest tensors, and what was assumed or left out."""
    count = len(estimate.top_tensors)
    parts: list[RenderableType] = [
        _verdict(estimate),
        _risk(estimate),
        *_beside_training(estimate),
        *_of_script(estimate),
        Text(""),
        Text(f"At the peak ({moment(estimate.peak)})", style="bold"),
        _breakdown(estimate),
        Text(""),
        Text(f"The {count} largest at the peak", style="bold"),
        _tensors(estimate),
    ]
    if estimate.ranks:
        parts += [Text(""), Text("The ranks; the figures above are the worst one's", style="bold"), _ranks(estimate)]
    if estimate.host_memory is not None:
        held = f"Host of a node: {format_bytes(estimate.host_memory)} put off by all of its ranks"
        parts.append(Text(f"{held}, beside what their processes take"))
    notes = _notes(estimate)
    if notes:
        parts += [Text(""), *notes]
    return Group(*parts)


def _verdict(estimate: Estimate) -> Text:
    line = Text(no_wrap=True, overflow="ignore")
    line.append(estimate.verdict.name, style=_COLOURS[estimate.verdict])
    line.append(
        f"  {estimate.workload.get('job', 'job')} on {estimate.device}: {format_bytes(estimate.device_total)} "
        f"of {format_bytes(estimate.device_usable)} usable "
        f"({100 * estimate.coverage:.4g}% interval {format_bytes(estimate.low)} to {format_bytes(estimate.high)})"
    )
    if estimate.headroom >= 0:
        line.append(f", {format_bytes(estimate.headroom)} free")
    else:
        line.append(f", {format_bytes(-estimate.headroom)} too much")
    return line


def _risk(estimate: Estimate) -> Text:
    if estimate.verdict is Verdict.UNKNOWN:
        return Text("What was seen so far is too little for a bound: training takes more than its first step.")
    return Text(
        f"{100 * estimate.coverage:.4g}%: will not exceed {format_bytes(estimate.will_not_exceed)}; "
        f"P(OOM) on this device {chance(estimate.p_oom)}; runs from {format_bytes(estimate.least_capacity)} on"
    )


_BESIDE_TRAINING = {Phase.LOADING: "While the weights are loaded", Phase.COMPILING: "While torch compiles"}


def _beside_training(estimate: Estimate) -> list[Text]:
    """Of a job that is no script: phases that come once. Scripts show all their phases."""
    if estimate.script is not None:
        return []
    found = estimate.highest_by_phase
    return [
        Text(f"{words}: {format_bytes(found[phase][0])} allocated, {format_bytes(found[phase][1])} reserved")
        for phase, words in _BESIDE_TRAINING.items()
        if phase in found
    ]


def _of_script(estimate: Estimate) -> list[RenderableType]:
    """How far a script was followed, and the highest of each of its phases."""
    run = estimate.script
    if run is None:
        return []
    steps = f"{run.optimizer_steps} optimizer step{'' if run.optimizer_steps == 1 else 's'}"
    lines = [f"Followed for {steps}: {run.reason}."]
    if run.not_seen:
        lines.append(f"Not seen: {', '.join(run.not_seen)}.")
    table = Table(box=None, pad_edge=False)
    table.add_column("Phase")
    table.add_column("Allocated", justify="right")
    table.add_column("Reserved", justify="right")
    for phase, (allocated, reserved) in estimate.highest_by_phase.items():
        table.add_row(phase_words(phase), format_bytes(allocated), format_bytes(reserved))
    heading = Text("Highest in each phase", style="bold")
    return [*(Text(line) for line in (*lines, *run.batches)), Text(""), heading, table]


def _breakdown(estimate: Estimate) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("Category")
    table.add_column("Memory", justify="right")
    table.add_column("Share", justify="right")
    for name, size in estimate.breakdown.items():
        if size:
            table.add_row(label(name), format_bytes(size), f"{size / max(estimate.device_total, 1):.1%}")
    table.add_section()
    table.add_row("Allocated by tensors", format_bytes(estimate.peak_allocated), "", style="dim")
    table.add_row("Reserved by the allocator", format_bytes(estimate.peak_reserved), "", style="dim")
    table.add_row("Device total", format_bytes(estimate.device_total), "100.0%", style="bold")
    table.add_row("Least device that runs it", format_bytes(estimate.least_capacity), "", style="dim")
    return table


def _tensors(estimate: Estimate) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("Memory", justify="right", no_wrap=True)
    table.add_column("Category", no_wrap=True)
    table.add_column("Shape", overflow="fold")
    table.add_column("Module", overflow="fold")
    table.add_column("Line", overflow="fold")
    table.add_column("Operator", overflow="fold")
    for tensor in estimate.top_tensors:
        shape = "×".join(map(str, tensor.shape)) + (f" {tensor.dtype}" if tensor.dtype else "")
        table.add_row(
            format_bytes(tensor.nbytes),
            label(tensor.category),
            shape,
            tensor.module or "–",
            short_source(tensor.source) or "–",
            tensor.operator,
        )
    return table


def _ranks(estimate: Estimate) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("Ranks", no_wrap=True)
    table.add_column("Looked at", justify="right")
    for name in ("Allocated", "Reserved", "Device total", "Will not exceed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Verdict")
    for kind in estimate.ranks:
        sizes = (kind.peak_allocated, kind.peak_reserved, kind.device_total, kind.will_not_exceed)
        table.add_row(
            f"{kind.role} ({kind.count})" if kind.count > 1 else kind.role,
            f"rank {kind.rank}",
            *map(format_bytes, sizes),
            Text(kind.verdict.name, style=_COLOURS[kind.verdict]),
        )
    return table


def _notes(estimate: Estimate) -> list[Text]:
    notes = [
        Text(
            f"Environment {estimate.provenance.get('environment', '')}; interval: {interval_words(estimate)}; "
            f"{estimate.seconds:.1f} s; sizes in powers of two.",
            style="dim",
        )
    ]
    if estimate.unsupported:
        listed = ", ".join(f"{name} ({count}×)" for name, count in sorted(estimate.unsupported.items()))
        notes.append(Text(f"Not modelled: {listed}.", style="dim"))
    notes += [Text(f"Assumed: {sentence}.", style="dim") for sentence in estimate.assumptions]
    return notes


def render_replay(result: ReplayResult, name: str) -> RenderableType:
    """Simulated against recorded, in a line, then the figures."""
    line = Text()
    if result.exact:
        line.append("EXACT", style="bold green")
    else:
        line.append("DIFFERS", style="bold yellow")
    line.append(
        f"  {name}: simulated {result.simulated_reserved:,} B reserved ({format_bytes(result.simulated_reserved)}), "
        f"recorded {result.recorded_reserved:,} B ({format_bytes(result.recorded_reserved)})"
    )
    lines = [line]
    if not result.starts_from_known_state:
        lines.append(Text(f"The recording does not start from a known state: {result.reason}", style="yellow"))
    return Group(*lines)


def render_devices(gpus: Iterable[Gpu]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("Name", no_wrap=True)
    table.add_column("Sold as", justify="right")
    table.add_column("Usable", justify="right")
    table.add_column("Architecture")
    table.add_column("Also called", overflow="fold")
    for gpu in gpus:
        table.add_row(
            gpu.name,
            f"{gpu.memory_gib:g} GiB",
            f"{gpu.usable_memory / GiB:.2f} GiB",
            gpu.architecture if gpu.maker is not None else f"{gpu.architecture} ({gpu.sm})",
            ", ".join(gpu.aliases[:4]),
        )
    return table
