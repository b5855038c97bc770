"""The words and colours that all reports of an Estimate share, in the terminal and on pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..estimation import Estimate, PeakMoment
from ..units import format_bytes

__all__ = [
    "COLOURS",
    "LABELS",
    "chance",
    "colour",
    "interval_words",
    "label",
    "moment",
    "phase_words",
    "setting_words",
    "shape_words",
    "short_source",
    "signed_bytes",
    "verdict_sentence",
]

LABELS = {
    "parameter": "Parameter",
    "buffer": "Buffer",
    "gradient": "Gradient",
    "optimizer_state": "Optstate",
    "input": "Input",
    "activation": "Activation",
    "temporary": "Temp",
    "workspace": "Workspace",
    "calibrated": "Calibrated",
    "allocator_cache": "Allocator cache",
    "context": "CUDA context",
    "communication": "NCCL buffers",
    "rounding": "Rounded up",
    "gap": "Gap (real runs)",
    "class": "Class (learned)",
    "learned": "Learned residual",
}
"""How people call the parts of a breakdown."""

_LEARNT = "#9d6642"
COLOURS = {
    "parameter": "#326dec",
    "buffer": "#a0a9ff",
    "gradient": "#e39002",
    "optimizer_state": "#c24e10",
    "input": "#ecd76d",
    "activation": "#12d08c",
    "temporary": "#bd90ac",
    "workspace": "#2f4f74",
    "allocator_cache": "#d9e8e4",
    "context": "#6c625d",
    "communication": "#cc55bb",
    # No estimate has two of these.
    "calibrated": _LEARNT,
    "rounding": _LEARNT,
    "gap": _LEARNT,
    "class": _LEARNT,
    "learned": _LEARNT,
}
"""Found by search so that any two differ, to normal sight and to all three kinds of colour blindness."""


def label(part: str) -> str:
    return LABELS.get(part, part)


def colour(part: str) -> str:
    return COLOURS.get(part, _LEARNT)


def chance(share: float) -> str:
    """With as many digits as tell it from never and from always."""
    if share < 0.001:
        return "below 0.1%"
    if share > 0.999:
        return "above 99.9%"
    return f"{share:.1%}" if share < 0.1 or share > 0.9 else f"{share:.0%}"


def moment(peak: PeakMoment) -> str:
    where = f"{peak.phase} of step {peak.step + 1}" if peak.step >= 0 else peak.phase
    return f"{where}, {peak.module}" if peak.module else where


_PHASES = {"saving": "checkpoint saving", "loading": "checkpoint loading", "zero_grad": "zero_grad"}


def phase_words(phase: str) -> str:
    return _PHASES.get(phase, phase)


def short_source(source: str) -> str:
    """The file's name and its folder's, with the line: enough to find it, short enough for a table."""
    if not source:
        return ""
    path = Path(source)
    return "/".join(path.parts[-2:]) if len(path.parts) > 1 else source


def signed_bytes(nbytes: int) -> str:
    """A change: more has its sign too."""
    return f"+{format_bytes(nbytes)}" if nbytes > 0 else format_bytes(nbytes)


def shape_words(shape: Sequence[int], dtype: str) -> str:
    return " ".join(filter(None, ("×".join(map(str, shape)), dtype)))


def verdict_sentence(estimate: Estimate) -> str:
    """What a person wants to know first."""
    total, usable = format_bytes(estimate.device_total), format_bytes(estimate.device_usable)
    if estimate.headroom >= 0:
        rest = f"{format_bytes(estimate.headroom)} stay free"
    else:
        rest = f"{format_bytes(-estimate.headroom)} too much"
    will = {"fits": "will hold", "tight": "should just run: it will hold", "oom": "will not fit: it needs"}
    will["unknown"] = "was not seen for two training steps; until then it held"
    return f"The job {will[estimate.verdict.value]} {total} of the {usable} usable on {estimate.device}; {rest}."


def interval_words(estimate: Estimate) -> str:
    """What the bounds rest on: how many real runs, what of this job makes them wider, where the context is from."""
    basis, by = estimate.interval_basis, estimate.calibrated_by
    words = str(estimate.provenance.get("interval", ""))
    if basis is not None:
        words = f"{basis.runs:,} measured runs"
        if basis.other_cards != 1:
            words += f" on NVIDIA's cards, {basis.other_cards:g} × as wide"
        if basis.unasked_compiler != 1:
            words += f", {basis.unasked_compiler:g} × as wide since XLA's compiler was not asked"
        if basis.doubt is not None:
            words += f", {basis.spread:.2g} × that of the middle one"
    return f"from {words}, context from the catalogue" if by is None else f"from {words}, calibrated by {by}"


def setting_words(estimate: Estimate) -> str:
    """What was asked about, in a line: batch size, precision and what else was set."""
    workload = estimate.workload
    words = [f"batch size {workload['batch_size']}"] if "batch_size" in workload else []
    if workload.get("input_shape"):
        words.append("input " + "×".join(map(str, workload["input_shape"])))
    if workload.get("seq_len"):
        words.append(f"{workload['seq_len']} tokens")
    words += [str(workload[name]) for name in ("precision", "optimizer") if workload.get(name)]
    words += [name.replace("_", " ") for name in ("channels_last", "checkpointing") if workload.get(name) is True]
    if isinstance(modules := workload.get("checkpointing"), (list, tuple)):
        words.append(
            f"checkpointing of {', '.join(modules)}" if len(modules) < 4 else f"checkpointing of {len(modules)} modules"
        )
    if workload.get("accumulation", 1) != 1:
        words.append(f"accumulation {workload['accumulation']}")
    return ", ".join(words)
