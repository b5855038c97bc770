"""What a terminal shows of an estimate."""

from __future__ import annotations

import io

from estimate_builder import ENVIRONMENT, Job
from rich.console import Console

from oomcast.estimation import Target, estimate_trace
from oomcast.report.estimate_text import render_estimate
from oomcast.spec import Place
from oomcast.trace import Category, Phase
from oomcast.units import MiB


def _shown(first: Phase) -> str:
    job = Job()
    job.enter(first, -1)
    for_a_moment = job.take(512 * MiB, Category.PARAMETER)
    job.take(128 * MiB, Category.PARAMETER)
    job.give_back(for_a_moment)
    job.enter(Phase.FORWARD, 0)
    job.take(64 * MiB, Category.ACTIVATION)
    written = io.StringIO()
    target = Target.of(Place("rtx-4090", environment=ENVIRONMENT))
    Console(file=written, width=200).print(render_estimate(estimate_trace(job.trace(), target)))
    return written.getvalue()


def test_loading_has_a_line_where_it_is_a_phase() -> None:
    assert "While the weights are loaded: 640.0 MiB allocated, 640.0 MiB reserved" in _shown(Phase.LOADING)
    assert "While the weights are loaded" not in _shown(Phase.BUILD)


def test_what_compiling_takes_has_a_line_of_its_own() -> None:
    assert "While torch compiles: 640.0 MiB allocated, 640.0 MiB reserved" in _shown(Phase.COMPILING)
    assert "While torch compiles" not in _shown(Phase.BUILD)


def test_compiling_is_one_entry_however_often_it_interrupts_a_phase() -> None:
    job = Job()
    job.enter(Phase.FORWARD, 0)
    for kept in (64 * MiB, 32 * MiB):
        job.take(kept, Category.ACTIVATION)
        job.enter(Phase.COMPILING, 0)
        job.give_back(job.take(40 * MiB, Category.WORKSPACE))
        job.enter(Phase.FORWARD, 0)
    job.enter(Phase.BACKWARD, 0)
    job.enter(Phase.COMPILING, 0)
    job.enter(Phase.BACKWARD, 0)
    target = Target.of(Place("rtx-4090", environment=ENVIRONMENT))
    peaks = [(phase, allocated) for _, phase, allocated, _ in estimate_trace(job.trace(), target).phase_peaks]
    assert peaks == [("forward", 96 * MiB), ("compiling", 136 * MiB), ("backward", 96 * MiB), ("compiling", 96 * MiB)]
