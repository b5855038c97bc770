"""The record of a run agrees with its Timeline, and replaying it gives the same allocator."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_builder import CONVOLUTION, MATMUL, Builder, traces

from oomcast.simulate import (
    Action,
    ActionKind,
    AllocatorSettings,
    BfcSettings,
    History,
    Settings,
    Transient,
    least_capacity,
    record_history,
    simulate,
)
from oomcast.trace import KernelCall, Phase, Trace
from oomcast.units import MiB

SETTINGS = (AllocatorSettings(), AllocatorSettings(expandable_segments=True), BfcSettings())
BLOCKS = {ActionKind.ALLOCATE: 1, ActionKind.FREE: -1}
MEMORY = {
    ActionKind.NEW_SEGMENT: 1,
    ActionKind.MAPPED: 1,
    ActionKind.SEGMENT_RETURNED: -1,
    ActionKind.UNMAPPED: -1,
}


def workspace(call: KernelCall, phase: Phase) -> Transient:
    return Transient((60 * MiB, 3 * MiB, 0) if call.operator == "conv_fprop" else (5 * MiB,))


def levels(history: History) -> list[int]:
    """Allocated bytes after every action."""
    level, found = 0, []
    for action in history.actions:
        level += BLOCKS.get(action.kind, 0) * action.size
        found.append(level)
    return found


@settings(deadline=None)
@given(trace=traces(), settings=st.sampled_from(SETTINGS), tight=st.booleans())
def test_the_record_has_the_peaks_and_the_end_of_the_timeline(trace: Trace, settings: Settings, tight: bool) -> None:
    capacity = least_capacity(trace, settings=settings, workspace=workspace) if tight else None
    timeline = simulate(trace, capacity=capacity, settings=settings, workspace=workspace, record_curve=True)
    history = record_history(trace, capacity=capacity, settings=settings, workspace=workspace)
    level = levels(history)
    assert max(level, default=0) == timeline.peak_allocated
    assert max((action.reserved for action in history.actions), default=0) == timeline.peak_reserved
    assert (level[-1] if level else 0) == timeline.end_allocated
    live = history.live_at_peak()
    assert [(a.size, a.allocation, a.name) for a in live] == [
        (block.size, block.allocation, block.name) for block in timeline.live_at_peak
    ]
    assert timeline.allocated_curve is not None
    for position in {action.position for action in history.actions}:
        at = [height for action, height in zip(history.actions, level, strict=True) if action.position == position]
        assert timeline.allocated_curve[position] in at


@settings(deadline=None)
@given(trace=traces(), expandable=st.booleans(), tight=st.booleans())
def test_segments_come_and_go_as_they_stand_at_the_end(trace: Trace, expandable: bool, tight: bool) -> None:
    settings = AllocatorSettings(expandable_segments=expandable)
    capacity = least_capacity(trace, settings=settings, workspace=workspace) if tight else None
    history = record_history(trace, capacity=capacity, settings=settings, workspace=workspace)
    reserved = 0
    pages: Counter[int] = Counter()
    for action in history.actions:
        reserved += MEMORY.get(action.kind, 0) * action.size
        assert reserved == action.reserved
        if action.kind in MEMORY:
            pages[action.address] += MEMORY[action.kind]
            assert pages[action.address] in (0, 1)
    assert reserved == sum(segment.size for segment in history.segments)


@settings(deadline=None)
@given(trace=traces(kernels=False))
def test_every_tensor_is_named_by_its_allocation(trace: Trace) -> None:
    history = record_history(trace)
    made = [action for action in history.actions if action.kind is ActionKind.ALLOCATE]
    assert [action.allocation for action in made] == [
        index for kind, index in trace.events if kind == 0 and trace.allocations[index].nbytes
    ]
    for action in made:
        assert action.allocation is not None
        told = trace.allocations[action.allocation]
        assert (action.requested, action.name) == (told.nbytes, told.operator)
        assert history.category_of(action) is told.category


def test_a_workspace_is_taken_and_given_back_within_its_event() -> None:
    builder = Builder()
    builder.call(CONVOLUTION)
    builder.call(MATMUL)
    history = record_history(builder.build(), workspace=workspace)
    blocks = [action for action in history.actions if action.kind in BLOCKS]
    assert [(a.position, a.kind, a.requested) for a in blocks] == [
        (0, ActionKind.ALLOCATE, 60 * MiB),
        (0, ActionKind.FREE, 60 * MiB),
        (1, ActionKind.ALLOCATE, 5 * MiB),
        (1, ActionKind.FREE, 5 * MiB),
    ]
    assert {a.name for a in blocks} == {"conv_fprop", "aten.mm"}


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_full_device_takes_the_next_workspace(settings: Settings) -> None:
    builder = Builder()
    builder.allocate(8 * MiB)
    builder.call(CONVOLUTION)
    history = record_history(builder.build(), capacity=40 * MiB, settings=settings, workspace=workspace)
    taken: list[Action] = [a for a in history.actions if a.name == "conv_fprop" and a.kind is ActionKind.ALLOCATE]
    assert [action.requested for action in taken] == [3 * MiB]
