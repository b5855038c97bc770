"""`oomcast plan`: the layouts over several GPUs that fit, ordered by a stated model of what a step costs (`layouts`).

Candidates are tried in the order of their cost; while none fits, the recomputing form of one that did not is tried
next, however costly, so that what fits by recomputing alone is found. Those whose states alone exceed the card are left
out by arithmetic, those that need more than one that did not fit are left out too, and so are costlier forms of a
layout that fits.

Models whose layers are known to be alike (the zoo's, those of transformers) are captured by two shallow ones and give
the figure of the whole one to the byte (`capture/growth.py`). Where a job's own blocks only look alike, a layout is
tried with few of them, twice, and extended to all: by the same growth, or, where buckets of DDP reach over blocks, by
arithmetic: the peak of each phase of a step grows by the same bytes with every block, and what the allocator holds
beside it is taken from the larger of the two. The cheapest layout that is said to fit was captured whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import shlex
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..capture import capture, captures_at_once, expecting
from ..devices import Gpu, find_gpu
from ..errors import BadInput, TookTooLong
from ..estimation import (
    Estimate,
    Verdict,
    agreeing_chance,
    estimate_rank,
    estimate_spec,
    find_estimator,
    load_interval,
)
from ..spec import DESCRIPTIONS, DataParallel, JobKind, Parallel, Spec, Workload, options_of, takes_options
from ..trace import Category
from .confidence import check_confidence, fits
from .layouts import Candidate, Layouts, ModelFacts

__all__ = ["Candidate", "Plan", "PlannedLayout", "plan"]

_FEW_BLOCKS = 6
"""FSDP gathers up to three blocks ahead, so that fewer would not show what a long model does."""
_KNOWN_LAYERS = (JobKind.ZOO, JobKind.HF, JobKind.CONFIG)
"""Jobs whose capture itself extends two shallow models, where their layers are alike."""
_DECIDED = ("parallel", "rank", "accumulation", "checkpointing", "blocks")
"""Options that a plan chooses."""


@dataclass(frozen=True)
class PlannedLayout:
    """A candidate that was captured, whole or with few of its blocks."""

    candidate: Candidate
    fits: bool
    device_total: int
    """Of the worst rank."""
    p_oom: float
    cost: float
    """Seconds of a step by the stated model."""
    command: str
    whole: bool
    """Whether all blocks of the model were captured, not few and extended."""


@dataclass(frozen=True)
class Plan:
    """`layouts` in the order of their cost; those on the frontier have none before them that holds less."""

    job: str
    device: str
    device_usable: int
    confidence: float
    layouts: tuple[PlannedLayout, ...]
    left_out: int
    """Candidates that arithmetic or another one's capture ruled out, or that the model cannot be divided into."""
    untried: int
    captures: int
    seconds: float

    @property
    def best(self) -> PlannedLayout | None:
        return next((layout for layout in self.layouts if layout.fits), None)

    @property
    def frontier(self) -> tuple[PlannedLayout, ...]:
        """Fitting layouts that cost more than another only where they hold less."""
        found: list[PlannedLayout] = []
        for layout in self.layouts:
            if layout.fits and all(layout.device_total < other.device_total for other in found):
                found.append(layout)
        return tuple(found)


@takes_options(*DESCRIPTIONS, without=_DECIDED)
def plan(job: Any, *, device: str, confidence: float = 0.95, captures: int = 8, **options: Any) -> Plan:
    """The layouts of a job over the GPUs of `device` (`8xa100-80gb`) that fit, the cheapest first.

    At most `captures` layouts are tried. The other options are those of `oomcast.estimate`.
    """
    check_confidence(confidence)
    if isinstance(captures, bool) or not isinstance(captures, int) or captures < 1:
        raise BadInput(f"captures must be a whole number of at least 1, not {captures!r}.")
    started = time.perf_counter()
    options.setdefault("steps", 2)  # the second has the optimizer's state: a third adds nothing
    spec = Spec.read_sized(job, options.pop("batch_size", None), device=device, **options)
    if spec.place.machines.world_size == 1:
        raise BadInput(f"a plan is for several GPUs; name them like 8x{device.strip()}.")
    search = _Search(spec, confidence)
    search.run(captures)
    return Plan(
        job=spec.workload.job.reference,
        device=spec.place.device.strip(),
        device_usable=search.gpu.usable_memory,
        confidence=confidence,
        layouts=tuple(search.tried),
        left_out=search.left_out,
        untried=search.untried,
        captures=search.captures,
        seconds=round(time.perf_counter() - started, 3),
    )


@dataclass(frozen=True)
class _Held:
    """What one rank holds."""

    device_total: int
    p_oom: float
    fits: bool
    activations: int
    """At the peak; 0 where it is not known."""


class _Search:
    def __init__(self, spec: Spec, confidence: float) -> None:
        self.spec = spec
        self.confidence = confidence
        self.gpu: Gpu = find_gpu(spec.place.machines.gpu)
        self.tried: list[PlannedLayout] = []
        self.left_out = self.untried = self.captures = 0
        self._too_large: list[Candidate] = []
        self._blocks = 0
        """Of the model, where they are alike, so that few of them tell what all do; else 0."""

    def run(self, most: int) -> None:
        layouts = Layouts(self.spec, self.gpu, self._look())
        waiting = layouts.by_cost()
        at_once = captures_at_once(self.spec.effort)
        with _Ahead() as ahead:
            while waiting:
                open_ones = (other for other in waiting if not self._is_ruled_out(other, layouts))
                soon = itertools.islice(open_ones, min(at_once, most - len(self.tried)))
                ahead.expect_only({other: self._specs(other) for other in soon} if at_once > 1 else {})
                candidate = waiting.pop(0)
                if self._is_ruled_out(candidate, layouts):
                    self.left_out += 1
                elif len(self.tried) >= most:
                    self.untried += 1
                else:
                    self._try(candidate, layouts)
                    recomputing = dataclasses.replace(candidate, checkpointing=True)
                    if recomputing in waiting and not any(layout.fits for layout in self.tried):
                        waiting.remove(recomputing)
                        waiting.insert(0, recomputing)
        self.tried.sort(key=lambda layout: layout.cost)
        self._confirm()

    def _is_ruled_out(self, candidate: Candidate, layouts: Layouts) -> bool:
        return layouts.least(candidate) > self.gpu.usable_memory or self._is_beyond(candidate)

    def _look(self) -> ModelFacts:
        """Sharded over all GPUs, the model shows its parameters; with two and three blocks, what one of them adds."""
        workload = dataclasses.replace(
            self.spec.workload, parallel=Parallel(DataParallel.FSDP2), steps=1, optimizer="sgd"
        )
        shallow = [dataclasses.replace(workload, blocks=count) for count in (2, 3)]
        with expecting([self.spec.with_workload(one) for one in (workload, *shallow)]):
            model = self._facts(workload)
            try:
                two, three = (self._facts(one).parameters for one in shallow)
            except BadInput:  # it has no blocks, they differ, or it does not run without all of them
                return model
        if three > two and (model.parameters - two) % (three - two) == 0:
            self._blocks = 2 + (model.parameters - two) // (three - two)
            return dataclasses.replace(model, blocks=self._blocks)
        return model

    def _facts(self, workload: Workload) -> ModelFacts:
        self.captures += 1
        trace = capture(self.spec.with_workload(workload))
        return ModelFacts.of(trace, self.spec.place.machines.world_size, self.spec.workload.seq_len)

    def _is_beyond(self, candidate: Candidate) -> bool:
        """Whether its layout fits already with less cost, or did not fit with less work at a time or recomputing."""
        if any(layout.fits and layout.candidate.parallel == candidate.parallel for layout in self.tried):
            return True
        return any(
            candidate.parallel == other.parallel
            and candidate.batch_size >= other.batch_size
            and candidate.checkpointing <= other.checkpointing
            for other in self._too_large
        )

    def _try(self, candidate: Candidate, layouts: Layouts) -> None:
        whole = self._is_tried_whole(candidate)
        try:
            held = self._whole(candidate) if whole else self._extended(candidate)
        except TookTooLong:  # nothing is known of the layout then, and it must not look as if it were ruled out
            raise
        except BadInput:  # the model cannot be divided so; that the job itself is right was seen before
            self.left_out += 1
            return
        layouts.learn(candidate, held.activations)
        self.tried.append(self._planned(candidate, layouts.cost(candidate), held, whole=whole))
        if not held.fits:
            self._too_large.append(candidate)

    def _is_tried_whole(self, candidate: Candidate) -> bool:
        """Where the capture itself extends shallow models, or few blocks would be as many as all."""
        stages = candidate.parallel.pipeline
        few = self._blocks % stages > 0 or self._blocks // stages <= _few_blocks(candidate)[1]
        return few or (self.spec.workload.job.kind in _KNOWN_LAYERS and candidate.parallel.data is not DataParallel.DDP)

    def _specs(self, candidate: Candidate) -> list[Spec]:
        """Those that trying it captures, in the order in which it asks for them."""
        whole, stages = self._is_tried_whole(candidate), candidate.parallel.pipeline
        counts = (None,) if whole else tuple(count * stages for count in _shallow(candidate))
        return [self._spec_of(candidate, stage, blocks) for stage in _stages_to_try(stages, whole) for blocks in counts]

    def _confirm(self) -> None:
        """Capture the cheapest layout that fits whole, and the next one where it does not."""
        for place, layout in enumerate(self.tried):
            if not layout.fits:
                continue
            if not layout.whole:
                held = self._whole(layout.candidate)
                self.tried[place] = layout = self._planned(layout.candidate, layout.cost, held, whole=True)
            if layout.fits:
                return

    def _planned(self, candidate: Candidate, cost: float, held: _Held, whole: bool) -> PlannedLayout:
        command = shlex.join(["oomcast", "estimate", *self._words(candidate)])
        return PlannedLayout(candidate, held.fits, held.device_total, held.p_oom, cost, command, whole)

    def _words(self, candidate: Candidate) -> list[str]:
        """The job, its layout, and whatever else the question says: the command must give the same answer."""
        words = [self.spec.workload.job.reference, "--device", self.spec.place.device.strip(), *candidate.words()]
        parts = zip((self.spec.workload, self.spec.place, self.spec.effort), DESCRIPTIONS, strict=True)
        for part, description in parts:
            for option in options_of(description):
                value = getattr(part, option.name)
                if value != option.default and option.name not in (*_DECIDED, "batch_size", "device"):
                    words += option.words(value)
        return words

    def _whole(self, candidate: Candidate) -> _Held:
        held = []
        for stage in _stages_to_try(candidate.parallel.pipeline, whole=True):
            held.append(self._held(self._estimate(candidate, stage)))
            if not held[-1].fits:
                break
        return _worst(held)

    def _extended(self, candidate: Candidate) -> _Held:
        held = []
        for stage in _stages_to_try(candidate.parallel.pipeline, whole=False):
            held.append(self._grown(candidate, stage) or self._by_arithmetic(candidate, stage))
            if not held[-1].fits:
                break
        return _worst(held)

    def _grown(self, candidate: Candidate, stage: int) -> _Held | None:
        """From two shallow models that differ by a block for each stage; None where they do not tell the rest."""
        from ..capture.growth import grow  # with numpy, which comes with torch and not with oomcast

        if candidate.parallel.data is DataParallel.DDP:
            return None
        stages = candidate.parallel.pipeline
        specs = [self._spec_of(candidate, stage, count * stages) for count in _shallow(candidate)]
        self.captures += len(specs)
        shallow, deeper = map(capture, specs)
        trace = grow(shallow, deeper, self._blocks // stages - _FEW_BLOCKS - 1)
        return None if trace is None else self._held(estimate_rank(specs[1], trace))

    def _by_arithmetic(self, candidate: Candidate, stage: int) -> _Held:
        stages, few = candidate.parallel.pipeline, _few_blocks(candidate)
        short, longer = (self._estimate(candidate, stage, count * stages) for count in few)
        return _extend(short, longer, (self._blocks // stages - few[1]) / (few[1] - few[0]), self.confidence)

    def _held(self, answer: Estimate) -> _Held:
        kept = answer.breakdown[Category.ACTIVATION.value]
        return _Held(answer.device_total, answer.p_oom, fits(answer, self.confidence), kept)

    def _estimate(self, candidate: Candidate, stage: int, blocks: int | None = None) -> Estimate:
        self.captures += 1
        return estimate_spec(self._spec_of(candidate, stage, blocks), find_estimator("simulator"))

    def _spec_of(self, candidate: Candidate, stage: int, blocks: int | None) -> Spec:
        parallel = candidate.parallel
        rank = stage * (self.spec.place.machines.world_size // parallel.pipeline)
        workload = dataclasses.replace(
            self.spec.workload,
            parallel=parallel,
            batch_size=candidate.batch_size,
            # Without a pipeline, more micro-batches than two hold nothing more.
            accumulation=candidate.accumulation if parallel.pipeline > 1 else min(candidate.accumulation, 2),
            checkpointing=candidate.checkpointing,
            blocks=blocks,
        )
        return self.spec.with_workload(workload).with_place(rank=rank)


class _Ahead:
    """The candidates that are likely to be tried next: their captures begin while another one is looked at."""

    def __init__(self) -> None:
        self._begun: dict[Candidate, contextlib.ExitStack] = {}

    def expect_only(self, candidates: Mapping[Candidate, Iterable[Spec]]) -> None:
        for candidate in self._begun.keys() - candidates.keys():
            self._begun.pop(candidate).close()
        for candidate, specs in candidates.items():
            if candidate not in self._begun:
                self._begun[candidate] = contextlib.ExitStack()
                self._begun[candidate].enter_context(expecting(specs))

    def __enter__(self) -> _Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        self.expect_only({})


def _stages_to_try(stages: int, whole: bool) -> list[int]:
    """Of a pipeline the first, the last, which has the loss, and of a whole model the second: those after it hold ever
    less."""
    return sorted({0, min(1, stages - 1), stages - 1} if whole else {0, stages - 1})


def _shallow(candidate: Candidate) -> tuple[int, int]:
    """How many blocks a stage has in the two models that tell what all blocks hold."""
    if candidate.parallel.data is DataParallel.DDP:
        return _few_blocks(candidate)
    return _FEW_BLOCKS, _FEW_BLOCKS + 1


def _few_blocks(candidate: Candidate) -> tuple[int, int]:
    """How many a stage has in the two models that are extended by arithmetic."""
    if candidate.parallel.pipeline > 1 and candidate.parallel.data is DataParallel.DDP:
        return 2, 4  # a stage runs many micro-batches, and nothing in it looks ahead
    return _FEW_BLOCKS, 2 * _FEW_BLOCKS


def _worst(stages: list[_Held]) -> _Held:
    """One that does not fit ends the search, so the others may not be known then; the activations are the first's."""
    return _Held(
        max(stage.device_total for stage in stages),
        max(stage.p_oom for stage in stages),
        all(stage.fits for stage in stages),
        stages[0].activations,
    )


def _extend(short: Estimate, longer: Estimate, times: float, confidence: float) -> _Held:
    """What a rank holds with more blocks: as many times the difference of the two answers beyond the longer one."""

    def on(before: int, after: int) -> int:
        return round(after + (after - before) * times)

    shorter = {(step, phase): allocated for step, phase, allocated, _ in short.phase_peaks}
    allocated = max(on(shorter.get((step, phase), now), now) for step, phase, now, _ in longer.phase_peaks)
    reserved = max(
        on(short.peak_reserved, longer.peak_reserved), allocated + longer.peak_reserved - longer.peak_allocated
    )
    needed = allocated + longer.least_capacity - longer.peak_allocated
    basis = longer.interval_basis
    interval = load_interval(False) if basis is None else basis.interval
    runs = needed <= longer.device_usable
    p_oom = agreeing_chance(interval.chance_above(needed, longer.device_usable), runs)
    sure = dataclasses.replace(longer, verdict=Verdict.FITS if runs else Verdict.OOM, p_oom=p_oom)
    return _Held(longer.device_total - longer.peak_reserved + reserved, p_oom, fits(sure, confidence), 0)
