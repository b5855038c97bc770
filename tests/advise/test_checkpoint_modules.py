"""The modules that are proposed for recomputation are the fewest that do, and their saving is that of two estimates."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import oomcast
from oomcast.advise import Advice, Change, what_to_change
from oomcast.advise.recomputation import worth_recomputing
from oomcast.advise.remedies import BY_MODULE
from oomcast.capture import capture
from oomcast.estimation import Estimate
from oomcast.spec import Spec
from oomcast.trace import EventKind, Trace

BATCH = 60_000
DEVICE = "4GiB"
HOLDERS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layer = lambda: nn.Sequential(nn.Linear(128, 1024), nn.GELU(), nn.Linear(1024, 128))
        self.parts = nn.ModuleDict({"layers": nn.ModuleList(layer() for _ in range(4))})
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        for layer in self.parts["layers"]:
            x = layer(x)
        return self.head(x)


def model():
    return Net()


def batch(batch_size):
    return torch.randn(batch_size, 128), torch.randint(0, 10, (batch_size,))
"""


def estimated(job: str, **options: Any) -> Estimate:
    return oomcast.estimate(job, **({"batch_size": BATCH, "device": DEVICE, "steps": 2} | options))


def asked(job: str, **options: Any) -> Advice:
    given = {"batch_size": BATCH, "device": DEVICE, "steps": 2, "only": [BY_MODULE]} | options
    return what_to_change(job, **given)  # type: ignore[arg-type]


def names_of(change: Change) -> tuple[str, ...]:
    remedy = next(remedy for remedy in change.remedies if remedy.key == BY_MODULE)
    names: tuple[str, ...] = remedy.changes["checkpointing"]
    return names


def highest(trace: Trace) -> int:
    live = top = 0
    for kind, index in trace.events:
        if kind in (EventKind.ALLOCATE, EventKind.FREE):
            live += trace.allocations[index].nbytes * (1 if kind == EventKind.ALLOCATE else -1)
            top = max(top, live)
    return top


@pytest.mark.parametrize("model", ["zoo:vit_t_16", "zoo:resnet18"])
def test_the_trace_tells_what_modules_would_save(model: str) -> None:
    spec = Spec.read(model, device="rtx-3060", batch_size=16, steps=2)
    base = capture(spec)
    sets = worth_recomputing(base)
    assert len(sets) > 1
    assert [len(one.modules) for one in sets] == sorted(len(one.modules) for one in sets)
    for one in (sets[0], sets[len(sets) // 2]):
        workload = dataclasses.replace(spec.workload, checkpointing=one.modules)
        captured = highest(capture(spec.with_workload(workload)))
        assert captured < highest(base)
        assert abs(one.peak - captured) <= 0.05 * captured


def test_no_set_has_a_module_within_another_and_each_lowers_the_peak() -> None:
    base = capture(Spec.read("zoo:resnet50", device="rtx-3060", batch_size=8, steps=2))
    sets = worth_recomputing(base)
    peaks = [highest(base), *(one.peak for one in sets)]
    assert peaks == sorted(set(peaks), reverse=True)
    for one in sets:
        assert 0 < one.share <= 1
        assert not any(inner.startswith(f"{outer}.") for outer in one.modules for inner in one.modules)
    assert sets[0].modules == ("stages.0",)
    assert all("stages.0" not in one.modules for one in worth_recomputing(base, {"stages.0"}))


def test_without_steps_nothing_is_worth_it() -> None:
    assert worth_recomputing(Trace((), ())) == ()


def test_the_fewest_modules_that_reach_the_goal(job: str) -> None:
    base = estimated(job)
    all_of_it = estimated(job, checkpointing=["0", "1", "2"])
    goal = (base.device_total + all_of_it.device_total) // 2
    advice = asked(job, goal=str(goal))
    (change,) = advice.combined
    names = names_of(change)
    assert change.reaches
    assert 1 <= len(names) < 3
    # The same code path: a user who asks for these modules gets this very estimate.
    other = estimated(job, checkpointing=list(names))
    assert change.saving == base.least_capacity - other.least_capacity
    assert change.saving_total == base.device_total - other.device_total
    assert change.estimate.breakdown == other.breakdown
    if len(names) > 1:
        assert estimated(job, checkpointing=list(names[:-1])).device_total > goal


def test_modules_come_before_the_whole_where_both_reach_it(job: str) -> None:
    goal = estimated(job).device_total - 2**20
    advice = asked(job, goal=str(goal), only=["checkpointing", BY_MODULE])
    assert [change.keys for change in advice.combined] == [(BY_MODULE,), ("checkpointing",)]
    assert len(names_of(advice.combined[0])) == 1


def test_together_with_another_change_no_more_modules_than_needed(job: str) -> None:
    alone = asked(job, goal="500MiB", only=[BY_MODULE, "amp-bf16"])
    most = next(change for change in alone.single if change.keys == (BY_MODULE,))
    assert not most.reaches
    both = estimated(job, precision="amp-bf16", checkpointing=names_of(most)).device_total
    other = next(change for change in alone.single if change.keys == ("amp-bf16",)).estimate.device_total
    goal = min((both + other) // 2, most.estimate.device_total - 1, other - 1)
    advice = asked(job, goal=str(goal), only=[BY_MODULE, "amp-bf16"])
    (change,) = advice.combined
    assert set(change.keys) == {BY_MODULE, "amp-bf16"}
    assert len(names_of(change)) < len(names_of(most))
    assert change.estimate.device_total <= goal


def test_what_is_never_called_is_not_proposed(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(HOLDERS)
    advice = asked(str(path), goal="1200MiB")
    assert advice.failed == ()
    (change,) = advice.single
    assert all(name.startswith("parts.layers.") for name in names_of(change))


def test_the_patched_file_is_the_job_with_these_modules(job: str, tmp_path: Path) -> None:
    advice = asked(job, goal=str(estimated(job).device_total - 2**20))
    (change,) = advice.combined
    (name,) = names_of(change)
    assert f'+    for name in ("{name}",):' in change.patch
    assert "+from torch.utils.checkpoint import checkpoint" in change.patch
    patched = _applied(Path(job).read_text(), change.patch)
    Path(job).write_text(patched)
    found = estimated(job)
    assert found.device_total == change.estimate.device_total
    assert found.breakdown == change.estimate.breakdown


def _applied(text: str, patch: str) -> str:
    """The patch, by a reader of unified diffs of its own."""
    old, new, place = text.splitlines(), [], 0
    for line in patch.splitlines()[2:]:
        if line.startswith("@@"):
            start = int(line.split()[1].split(",")[0][1:]) - 1
            new += old[place:start]
            place = start
        elif line.startswith("+"):
            new.append(line[1:])
        else:
            assert old[place] == line[1:]
            place += 1
            if line.startswith(" "):
                new.append(line[1:])
    return "\n".join([*new, *old[place:]]) + "\n"
