"""The words that reports of an Estimate share, for terminals and pages alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..estimate import Estimate, PeakMoment
from ..units import format_bytes

__all__ = ["chance", "moment", "setting_words", "shape_words", "short_source", "signed_bytes", "verdict_sentence"]


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
    return f"The job {will[estimate.verdict.value]} {total} of the {usable} usable on {estimate.device}; {rest}."


def setting_words(estimate: Estimate) -> str:
    """What was asked about, in a line: batch size, precision and what else was set."""
    told = estimate.workload
    words = [f"batch size {told['batch_size']}"] if "batch_size" in told else []
    if told.get("input_shape"):
        words.append("input " + "×".join(map(str, told["input_shape"])))
    if told.get("seq_len"):
        words.append(f"{told['seq_len']} tokens")
    words += [str(told[name]) for name in ("precision", "optimizer") if told.get(name)]
    words += [name.replace("_", " ") for name in ("channels_last", "checkpointing") if told.get(name) is True]
    if isinstance(modules := told.get("checkpointing"), (list, tuple)):
        words.append(
            f"checkpointing of {', '.join(modules)}" if len(modules) < 4 else f"checkpointing of {len(modules)} modules"
        )
    if told.get("accumulation", 1) != 1:
        words.append(f"accumulation {told['accumulation']}")
    return ", ".join(words)
