"""`oomcast plan`: the layouts over several GPUs that fit, ordered by a stated model of what a step costs.

The samples of a step stay the same: `batch_size` for each GPU. A layout whose GPUs work together on the same samples
(tensor parallelism, pipelines) gets theirs as micro-batches. Candidates are tried in the order of their cost. Those
whose states alone exceed the card are left out by arithmetic, those that need more than one that did not fit are left
out too, and so are costlier forms of a layout that fits; every layout that is named was captured itself.

The cost of a step, in seconds. It orders layouts; it does not promise times:

- compute: 6 floating-point operations for each parameter and token, 8 with recomputation, at 40 % of the card's peak;
- a pipeline waits (stages - 1) micro-batches;
- tensor parallelism: four all-reduces of the hidden state for each block and micro-batch, not overlapped;
- DDP: the gradients once, FSDP: the parameters twice and the gradients once for each micro-batch; both overlap with
  compute, so the longer of the two counts;
- offload: parameters and gradients over PCIe in each step.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..capture import capture
from ..devices import Gpu, find_gpu
from ..errors import BadInput
from ..estimation import Estimate, estimate_spec, find_estimator
from ..spec import DESCRIPTIONS, DataParallel, Parallel, Precision, Spec, takes_options
from ..trace import Category, EventKind, Trace
from .confidence import check_confidence, fits

__all__ = ["Candidate", "Plan", "PlannedLayout", "plan"]

_UTILISATION = 0.4
_PEAK_FLOPS = {(7, 0): 125e12, (8, 0): 312e12, (8, 6): 142e12, (8, 9): 330e12, (9, 0): 989e12, (10, 0): 2250e12}
"""Dense 16-bit tensor-core peak by compute capability: NVIDIA's data sheets of V100, A100, A40/RTX 3090, RTX 4090/L40,
H100 SXM, B200."""
_NVLINK = {(7, 0): 150e9, (8, 0): 300e9, (9, 0): 450e9, (10, 0): 900e9}
"""Bytes per second in one direction, from the same sheets; cards without it use PCIe."""
_PCIE = 25e9
_NETWORK = 50e9
"""One 400 Gb/s adapter for each GPU, as in DGX H100."""
_ADAM = 2


@dataclass(frozen=True)
class Candidate:
    """A layout with the recomputation and the micro-batches it is tried with."""

    parallel: Parallel
    batch_size: int
    accumulation: int
    checkpointing: bool

    def options(self) -> str:
        """As they are written on the command line."""
        words = [f"--parallel {self.parallel}", f"--batch-size {self.batch_size}"]
        if self.accumulation > 1:
            words.append(f"--accumulation {self.accumulation}")
        return " ".join(words + ["--checkpointing"] * self.checkpointing)


@dataclass(frozen=True)
class PlannedLayout:
    """A candidate that was captured."""

    candidate: Candidate
    fits: bool
    device_total: int
    """Of the worst rank."""
    p_oom: float
    cost: float
    """Seconds of a step by the stated model."""
    command: str


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


@dataclass(frozen=True)
class _Model:
    """What the first capture tells of the job, for arithmetic."""

    parameters: int
    """Bytes, whole."""
    blocks: int
    block: int
    """Bytes of the largest block."""
    tokens: int
    """Of a sample."""
    activations: int
    """Bytes that a forward of the whole batch keeps for backward, on one GPU and without recomputation."""

    @property
    def width(self) -> float:
        """A Transformer's block has about twelve squares of its width."""
        return math.sqrt(self.block / 4 / 12)


@takes_options(*DESCRIPTIONS, without=("parallel", "rank", "accumulation", "checkpointing"))
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
    layouts = tuple(sorted(search.tried, key=lambda layout: layout.cost))
    return Plan(
        job=spec.workload.job.reference,
        device=spec.place.device.strip(),
        device_usable=search.gpu.usable_memory,
        confidence=confidence,
        layouts=layouts,
        left_out=search.left_out,
        untried=search.untried,
        captures=len(layouts) + 1,
        seconds=round(time.perf_counter() - started, 3),
    )


class _Search:
    def __init__(self, spec: Spec, confidence: float) -> None:
        self.spec = spec
        self.confidence = confidence
        self.world = spec.place.machines.world_size
        self.gpu: Gpu = find_gpu(spec.place.machines.gpu)
        self.tried: list[PlannedLayout] = []
        self.left_out = self.untried = 0
        self._too_large: list[Candidate] = []

    def run(self, captures: int) -> None:
        model = self._look()
        for candidate in sorted(self._candidates(), key=lambda possible: self._cost(possible, model)):
            if self._least(candidate, model) > self.gpu.usable_memory or self._is_beyond(candidate):
                self.left_out += 1
            elif len(self.tried) >= captures:
                self.untried += 1
            else:
                self._try(candidate, model)

    def _look(self) -> _Model:
        """Sharded over all GPUs, every block shows its size; the shards add up to the parameters."""
        workload = dataclasses.replace(self.spec.workload, parallel=Parallel(DataParallel.FSDP2), steps=1)
        trace = capture(self.spec.with_workload(workload))
        return _model_of(trace, self.world, self.spec.workload.seq_len or 1)

    def _candidates(self) -> Iterator[Candidate]:
        batch = self.spec.workload.batch_size
        on_node = min(self.spec.place.machines.gpus_per_node, self.world)
        for tensor in _divisors(on_node):
            for pipeline in _divisors(self.world // tensor):
                together = tensor * pipeline
                for data in (DataParallel.DDP, DataParallel.FSDP2):
                    if self.world == together and data is DataParallel.FSDP2:
                        continue
                    parallel = Parallel(None if self.world == together else data, tensor, pipeline)
                    for micro in _divisors(batch * together):
                        if micro > batch or batch * together // micro < pipeline:
                            continue
                        for recomputed in (False, True):
                            yield Candidate(parallel, micro, batch * together // micro, recomputed)
        yield Candidate(Parallel(DataParallel.FSDP2, offload=True), batch, 1, True)

    def _least(self, candidate: Candidate, model: _Model) -> float:
        """Parameters, gradients and Adam's states, and what forwards keep: no worst rank of the layout holds less.

        The first stage of a pipeline keeps its share for as many micro-batches as there are stages, so all of a
        micro-batch's; of a tensor-parallel group, each keeps its part at least. What recomputation leaves is not known.
        """
        parallel = candidate.parallel
        if parallel.offload:
            return 0.0
        kept = model.activations * candidate.batch_size / self.spec.workload.batch_size / parallel.tensor
        share = model.parameters / (parallel.tensor * parallel.pipeline)
        if parallel.data is DataParallel.FSDP2:
            share /= parallel.data_size(self.world)
        state = _ADAM if self.spec.workload.optimizer in (None, "adam", "adamw") else 0
        return share * (2 + state) + (0.0 if candidate.checkpointing else kept)

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

    def _cost(self, candidate: Candidate, model: _Model) -> float:
        parallel, gpu = candidate.parallel, self.gpu
        elements = model.parameters / 4
        tokens = candidate.batch_size * candidate.accumulation * model.tokens
        wide = 4 if self.spec.workload.precision in (Precision.FP32, Precision.TF32) else 2
        together = parallel.tensor * parallel.pipeline
        flops = _PEAK_FLOPS.get(gpu.compute_capability, 71e12) * _UTILISATION / (wide // 2)
        compute = (8 if candidate.checkpointing else 6) * elements * tokens / together / flops
        compute *= 1 + (parallel.pipeline - 1) / candidate.accumulation
        near = _NVLINK.get(gpu.compute_capability, _PCIE)
        far = near if self.world <= self.spec.place.machines.gpus_per_node else _NETWORK
        local = elements / together
        exchanged = 0.0
        if parallel.data is DataParallel.DDP:
            exchanged = 2 * 4 * local / far
        elif parallel.data is DataParallel.FSDP2:
            exchanged = (2 * wide + 4) * local * candidate.accumulation / far
        hidden = candidate.batch_size * model.tokens * model.width * wide
        of_tensors = 0.0
        if parallel.tensor > 1:
            turns = 4 * model.blocks / parallel.pipeline * candidate.accumulation
            of_tensors = turns * 2 * hidden * (parallel.tensor - 1) / parallel.tensor / near
        host = 8 * local / self.world / _PCIE if parallel.offload else 0.0
        return max(compute, exchanged) + of_tensors + host

    def _try(self, candidate: Candidate, model: _Model) -> None:
        workload = dataclasses.replace(
            self.spec.workload,
            parallel=candidate.parallel,
            batch_size=candidate.batch_size,
            # More micro-batches than two, or than the stages, hold nothing more.
            accumulation=min(candidate.accumulation, max(candidate.parallel.pipeline, 2)),
            checkpointing=candidate.checkpointing,
        )
        try:
            answer: Estimate = estimate_spec(self.spec.with_workload(workload), find_estimator("simulator"))
        except BadInput:  # the model cannot be divided so; that the job itself is right was seen before
            self.left_out += 1
            return
        enough = fits(answer, self.confidence)
        if not enough:
            self._too_large.append(candidate)
        job, device = self.spec.workload.job.reference, self.spec.place.device.strip()
        others = f" --precision {self.spec.workload.precision.value}"
        if self.spec.workload.seq_len is not None:
            others += f" --seq-len {self.spec.workload.seq_len}"
        command = f"oomcast estimate {job} --device {device} {candidate.options()}{others}"
        cost = self._cost(candidate, model)
        self.tried.append(PlannedLayout(candidate, enough, answer.device_total, answer.p_oom, cost, command))


def _divisors(number: int) -> list[int]:
    """The powers of two among them, and the number itself."""
    return sorted({power for e in range(number.bit_length()) if number % (power := 1 << e) == 0} | {number})


def _model_of(trace: Trace, world: int, tokens: int) -> _Model:
    blocks: Counter[str] = Counter()
    whole = 0
    for allocation in trace.allocations:
        if allocation.category is Category.PARAMETER and allocation.step <= 0 and allocation.phase.value == "build":
            whole += allocation.nbytes
            parts = allocation.module.split(".")
            number = next((place for place, part in enumerate(parts) if part.isdigit()), None)
            if number is not None:
                blocks[".".join(parts[: number + 1])] += allocation.nbytes
    return _Model(
        parameters=whole * world,
        blocks=max(len(blocks), 1),
        block=max(blocks.values(), default=whole) * world,
        tokens=tokens,
        activations=_kept_by_forward(trace),
    )


def _kept_by_forward(trace: Trace) -> int:
    """The most bytes of activations that are there at once."""
    now = most = 0
    for kind, index in trace.events:
        if kind in (EventKind.ALLOCATE, EventKind.FREE) and trace.allocations[index].category is Category.ACTIVATION:
            now += trace.allocations[index].nbytes if kind is EventKind.ALLOCATE else -trace.allocations[index].nbytes
            most = max(most, now)
    return most
