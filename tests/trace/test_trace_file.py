from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.errors import BadInput, UnreadableFile
from oomcast.trace import (
    TRACE_VERSION,
    Allocation,
    Category,
    Communicator,
    Event,
    EventKind,
    KernelCall,
    Mark,
    Operand,
    Phase,
    ProcessSettings,
    Trace,
    TraceBuilder,
    read_trace,
    trace_from_bytes,
    trace_to_bytes,
    write_trace,
)

shapes = st.lists(st.integers(0, 1 << 40), max_size=4).map(tuple)
names = st.text(max_size=8)
allocations = st.builds(
    Allocation,
    nbytes=st.integers(0, 1 << 50),
    category=st.sampled_from(Category),
    phase=st.sampled_from(Phase),
    step=st.integers(-1, 5),
    operator=names,
    module=names,
    source=names,
    shape=shapes,
    dtype=names,
    stream=st.integers(0, 3),
)
attributes = st.recursive(
    st.integers() | st.booleans() | names, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4
)
kernels = st.builds(
    KernelCall,
    operator=names,
    operands=st.lists(st.builds(Operand, shapes, shapes, names), max_size=3).map(tuple),
    attributes=st.lists(st.tuples(names, attributes), max_size=3).map(tuple),
)
json_data = st.dictionaries(
    names, st.recursive(st.none() | st.integers() | names, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    tensors = draw(st.lists(allocations, max_size=6))
    calls = draw(st.lists(kernels, max_size=3))
    events = [Event(EventKind.ALLOCATE, index) for index in range(len(tensors))]
    events += [Event(EventKind.FREE, index) for index in range(draw(st.integers(0, len(tensors))))]
    events += [Event(EventKind.KERNEL, index) for index in range(len(calls))]
    events += [Event(EventKind.EMPTY_CACHE, 0)] * draw(st.integers(0, 2))
    positions = sorted(draw(st.lists(st.integers(0, len(events)), max_size=3)))
    marks = [Mark(position, draw(st.sampled_from(Phase)), draw(st.integers(-1, 3))) for position in positions]
    return Trace(
        tuple(tensors),
        tuple(events),
        tuple(calls),
        tuple(marks),
        draw(st.dictionaries(names, st.integers(1, 9))),
        tuple(draw(st.lists(names, max_size=2))),
        draw(st.dictionaries(names, names)),
        draw(json_data),
        plan_is_modelled=draw(st.booleans()),
    )


@settings(max_examples=150, deadline=None)
@given(traces())
def test_a_trace_comes_back_exactly(trace: Trace) -> None:
    data = trace_to_bytes(trace)
    again = trace_from_bytes(data)
    assert again == trace
    assert all(type(event) is Event and type(event.kind) is EventKind for event in again.events)
    assert trace_to_bytes(again) == data


def example() -> Trace:
    tensor = Allocation(
        512, Category.ACTIVATION, Phase.FORWARD, 0, "aten.add", "layer", "train.py:3", (2, 64), "float32"
    )
    return Trace(
        (tensor, tensor),
        (Event(EventKind.ALLOCATE, 0), Event(EventKind.KERNEL, 0), Event(EventKind.FREE, 0)),
        (KernelCall("aten.mm", (Operand((2, 64), (64, 1), "float32"),), (("groups", 1),)),),
        (Mark(0, Phase.FORWARD, 0),),
    )


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "job.trace"
    write_trace(example(), path)
    assert read_trace(path) == example()


def test_a_file_that_cannot_be_written_or_found_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="missing"):
        write_trace(example(), tmp_path / "missing" / "job.trace")
    with pytest.raises(UnreadableFile, match="nothing"):
        read_trace(tmp_path / "nothing.trace")


def test_strings_are_written_once() -> None:
    text = gzip.decompress(trace_to_bytes(example())).decode()
    assert text.count("train.py:3") == text.count("aten.add") == 1


def changed(*path: str | int, to: Any) -> bytes:
    document = json.loads(gzip.decompress(trace_to_bytes(example())))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return gzip.compress(json.dumps(document).encode(), mtime=0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        trace_to_bytes(example())[:-20],
        trace_to_bytes(example())[:12],
        gzip.compress(b"{", mtime=0),
        gzip.compress(b"[]", mtime=0),
        gzip.compress(b"[" * 100_000, mtime=0),
        gzip.compress(b"\xff\xfe", mtime=0),
        gzip.compress(json.dumps({"format": "another"}).encode(), mtime=0),
        changed("version", to="1"),
        changed("version", to=True),
        changed("allocations", "nbytes", to=[1]),
        changed("allocations", "nbytes", to=[1, "2"]),
        changed("allocations", "nbytes", to=[1, 2.5]),
        changed("allocations", "module", to=[0, 999]),
        changed("allocations", "module", to=[0, -1]),
        changed("allocations", "category", to=[0, 4]),
        changed("allocations", to=[]),
        changed("events", "kind", to="00"),
        changed("events", "kind", to="029"),
        changed("events", "index", to=[0, 0, 1]),
        changed("events", "index", to=[0, 0, None]),
        changed("marks", to=[[9, 1, 0]]),
        changed("marks", to=5),
        changed("kernels", to=[[0]]),
        changed("strings", to=[1]),
        changed("shapes", to=[["a"]]),
        changed("operands", to=[[-1, 0, 0]]),
        changed("unsupported", to=[]),
        changed("workload", to=7),
    ],
)
def test_damaged_files_are_refused_in_one_sentence(data: bytes) -> None:
    with pytest.raises(UnreadableFile) as caught:
        trace_from_bytes(data, name="job.trace")
    assert str(caught.value).startswith("job.trace ")
    assert str(caught.value).endswith(".")


def test_a_newer_file_says_so() -> None:
    with pytest.raises(UnreadableFile, match="newer oomcast"):
        trace_from_bytes(changed("version", to=TRACE_VERSION + 1))


def test_a_truncated_file_says_so() -> None:
    with pytest.raises(UnreadableFile, match="truncated"):
        trace_from_bytes(trace_to_bytes(example())[:-20])


def test_a_trace_that_cannot_have_happened_says_what() -> None:
    with pytest.raises(UnreadableFile, match="frees allocation 1 before"):
        trace_from_bytes(changed("events", "index", to=[0, 0, 1]))


def test_what_a_rank_exchanged_is_kept() -> None:
    builder = TraceBuilder()
    builder.free(builder.allocate(512, None, "aten.mm"))
    trace = dataclasses.replace(
        builder.trace(),
        settings=ProcessSettings(nccl=(("NCCL_BUFFSIZE", "1048576"),)),
        communicators=(Communicator(8, 1, ("shards", "sums")), Communicator(4, 2, ("neighbours",), 1)),
    )
    assert trace_from_bytes(trace_to_bytes(trace)) == trace
