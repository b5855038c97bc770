"""What the workspace rules cost: one estimate with them against one without, by turns in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from oomcast.capture import capture
from oomcast.estimation import estimate_trace, target_of
from oomcast.simulate.cudnn import CudnnUnavailable, Source
from oomcast.spec import Spec

from .report import Bar, Outcome

__all__ = ["run"]

JOBS = {"zoo:resnet50": 32, "zoo:vgg16": 32, "zoo:unet2d": 4}
MOST = {"table": 1.2, "cudnn": 1.5}
_REPEATS = 5


def _seconds(job: str, source: Source) -> float:
    """Of a whole estimate, its capture included."""
    started = time.perf_counter()
    spec = Spec.read(job, batch_size=JOBS[job], device="a100-80gb")
    estimate_trace(capture(spec), target_of(spec), convolutions=source)
    return time.perf_counter() - started


def run(groundtruth: Path, progress: Callable[[str], None]) -> Outcome:
    sources: list[Source] = ["none", "table"]
    notes = []
    try:
        _seconds("zoo:resnet50", "cudnn")
        sources.append("cudnn")
    except CudnnUnavailable as problem:
        notes.append(f"cuDNN itself was not asked: {problem}")
    rows, worst = [], dict.fromkeys(sources, 0.0)
    for job in JOBS:
        for source in sources:  # warm: the capture process, cuDNN's answers
            _seconds(job, source)
        taken: dict[Source, list[float]] = {source: [] for source in sources}
        for turn in range(_REPEATS):
            progress(f"{job}, {turn + 1} of {_REPEATS}")
            for source in sources:
                taken[source].append(_seconds(job, source))
        plain = statistics.median(taken["none"])
        for source in sources:
            ratio = statistics.median(taken[source]) / plain
            worst[source] = max(worst[source], ratio)
            rows.append((job, source, f"{statistics.median(taken[source]):.2f}", f"{ratio:.2f}"))
    bars = [
        Bar(f"with the rules at most {MOST[s]} x one without ({s}, warm)", f"{worst[s]:.2f} x", worst[s] <= MOST[s])
        for s in sources
        if s in MOST
    ]
    return Outcome("What the workspace rules cost", ("job", "convolutions", "seconds", "ratio"), rows, bars, notes)
