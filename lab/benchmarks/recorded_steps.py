"""Recorded training steps against the same steps on the virtual GPU: peaks, and the sizes of all that was allocated."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

import oomcast
from oomcast.devices import find_gpu
from oomcast.simulate import DeviceFacts, Snapshot, WorkspaceTable, read_snapshot, replay, simulate
from oomcast.trace import EventKind, Trace

from .recorded_model import INPUT_FIRST, WEIGHT_FIRST, Sizes, Spelling
from .report import Bar, Outcome, as_mib

__all__ = ["CASES", "Case", "Step", "rows", "run"]

PEAK_TOLERANCE = 0.02
MATCH_FLOOR = 0.95
_WARM_UP = 2
"""The recordings ran five; from the second on every step is the same."""


@dataclass(frozen=True)
class Case:
    """A recording, and how the step in it was written."""

    name: str
    sizes: Sizes
    spelling: Spelling
    device: str
    """Told by the size of the cuBLAS workspaces in the recording: 32 MiB on Hopper, 8.125 MiB before."""
    warm: bool
    """Other steps ran before the recorded one."""
    autocast: bool = False


def _large(context: int) -> Sizes:
    return Sizes(width=2560, hidden=10240, layers=32, heads=32, context=context)


def _medium(context: int) -> Sizes:
    return Sizes(width=1024, hidden=4096, layers=24, heads=16, context=context)


CASES = (
    Case("kkaitlyn_memory_ctx128_fullstep", _large(128), WEIGHT_FIRST, "h100", warm=False),
    Case("kkaitlyn_memory_ctx128_fullstep_", _large(128), WEIGHT_FIRST, "h100", warm=False),
    Case("kkaitlyn_memory_ctx256_fullstep_", _large(256), WEIGHT_FIRST, "h100", warm=False),
    Case("wedsonlin_medium_128_training", _medium(128), INPUT_FIRST, "a100-80gb", warm=True),
    Case("wedsonlin_medium_256_training", _medium(256), INPUT_FIRST, "a100-80gb", warm=True),
    # Its index calls it fp32; the weights cast to two bytes say bf16 autocast.
    Case("wedsonlin_medium_512_training", _medium(512), INPUT_FIRST, "a100-80gb", warm=True, autocast=True),
)


@dataclass(frozen=True)
class Step:
    """What was recorded, and what the virtual GPU gave."""

    case: Case
    recorded_allocated: int
    recorded_reserved: int
    allocated: int
    reserved: int
    matched: float
    """Share of the recorded bytes whose size was also asked for here."""
    ours_matched: float
    """Share of the bytes asked for here that the recording has too."""
    starts_alike: bool
    """Nothing was cached or allocated before the recording that the rebuilt job would not have: reserved compares."""

    @property
    def allocated_error(self) -> float:
        return self.allocated / self.recorded_allocated - 1

    @property
    def reserved_error(self) -> float:
        return self.reserved / self.recorded_reserved - 1


def _train(case: Case) -> tuple[Trace, int]:
    """The step on the virtual GPU; the second is the number of the event the recording would begin with."""
    shape = (case.sizes.batch, case.sizes.context)
    with oomcast.virtual_gpu(case.device) as gpu:
        model = case.spelling.model(case.sizes)
        optimizer = case.spelling.optimizer(model.parameters())
        if case.warm:
            batches = [torch.randint(0, case.sizes.vocabulary, (5, *shape), device="cuda") for _ in range(2)]
            last = [torch.randint(0, case.sizes.vocabulary, (1, *shape), device="cuda") for _ in range(2)]
            for number in range(_WARM_UP):
                with torch.autocast("cuda", dtype=torch.bfloat16, enabled=case.autocast):
                    logits = model(batches[0][number])
                    loss = case.spelling.loss(logits, batches[1][number])
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            del logits, loss
            inputs, targets = last[0][0], last[1][0]
        else:
            inputs = targets = torch.randint(0, case.sizes.vocabulary, shape).to("cuda")
        first = gpu.ledger.event_count
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=case.autocast):
            logits = model(inputs)
            loss = case.spelling.loss(logits, targets)
        loss.backward()
        optimizer.step()
        return gpu.trace(), first


def _shares(trace: Trace, first: int, snapshot: Snapshot) -> tuple[float, float]:
    recorded = Counter(event.size for event in snapshot.events if event.action == "alloc")
    ours = Counter(
        trace.allocations[event.index].nbytes for event in trace.events[first:] if event.kind is EventKind.ALLOCATE
    )
    matched = sum(size * count for size, count in (recorded & ours).items())
    return matched / _bytes(recorded), matched / _bytes(ours)


def _bytes(sizes: Counter[int]) -> int:
    return sum(size * count for size, count in sizes.items())


def rebuild(case: Case, groundtruth: Path) -> Step:
    """Capture and simulate one recorded step."""
    snapshot = read_snapshot(groundtruth / "snapshots" / f"{case.name}.json.gz")
    recorded = replay(snapshot)
    trace, first = _train(case)
    facts = DeviceFacts(compute_capability=find_gpu(case.device).compute_capability)
    timeline = simulate(trace, workspace=WorkspaceTable(facts), record_curve=True)
    assert timeline.allocated_curve is not None
    assert timeline.reserved_curve is not None
    return Step(
        case,
        recorded.simulated_peak_allocated,
        recorded.recorded_peak_reserved,
        max(timeline.allocated_curve[first:]),
        max(timeline.reserved_curve[first:]),
        *_shares(trace, first, snapshot),
        # The others came after runs of other sizes in the same process, whose leftovers nobody recorded.
        starts_alike=case.warm or not any(event.action == "segment_free" for event in snapshot.events),
    )


def rows(groundtruth: Path, progress: Callable[[str], None]) -> list[Step]:
    """One step for each recording."""
    steps = []
    for case in CASES:
        progress(case.name)
        steps.append(rebuild(case, groundtruth))
        gc.collect()
    return steps


def run(groundtruth: Path, progress: Callable[[str], None]) -> Outcome:
    steps = rows(groundtruth, progress)
    worst = max(abs(step.allocated_error) for step in steps)
    worst_reserved = max(abs(step.reserved_error) for step in steps if step.starts_alike)
    least = min(step.matched for step in steps)
    return Outcome(
        "Recorded training steps, rebuilt (MiB)",
        ("recording", "allocated", "ours", "error", "reserved", "ours", "error", "start alike", "matched", "of ours"),
        [
            (
                step.case.name,
                as_mib(step.recorded_allocated),
                as_mib(step.allocated),
                f"{step.allocated_error:+.3%}",
                as_mib(step.recorded_reserved),
                as_mib(step.reserved),
                f"{step.reserved_error:+.3%}",
                "yes" if step.starts_alike else "no",
                f"{step.matched:.3%}",
                f"{step.ours_matched:.3%}",
            )
            for step in steps
        ],
        [
            Bar("peak allocated within 2 %", f"worst {worst:.3%}", worst <= PEAK_TOLERANCE),
            Bar(
                "peak reserved within 2 %, where the start is alike",
                f"worst {worst_reserved:.3%}",
                worst_reserved <= PEAK_TOLERANCE,
            ),
            Bar("allocated bytes matched by size, at least 95 %", f"least {least:.3%}", least >= MATCH_FLOOR),
        ],
        ["recorded peaks: of the replayed recording; wedsonlin 512 ran under bf16 autocast, as its sizes tell"],
    )
