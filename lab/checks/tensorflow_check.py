"""A step's live bytes as oomcast sees them, beside what TensorFlow truly allocates when it runs the step on a CPU.

The process must have been started with TF_CPU_ALLOCATOR_USE_BFC=1: the CPU's allocator is then the same best-fit one
that a GPU has, and TensorFlow's profiler writes down every request with the bytes that were asked for. All kernels run
in line in one thread (`inter_op_thread_pool=-1`), as they are started for a GPU: with more threads two nodes run at
once, and the peak varies by a tenth and more from step to step. The batch is fed from addresses that TensorFlow takes
as they are: it copies an array that does not begin at a multiple of 64 bytes, and where numpy puts one is chance.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from oomcast.capture.tensorflow.run import follow
from oomcast.capture.tensorflow.step import model_variables, trace_step
from oomcast.trace.builder import peak_of

__all__ = ["figures_of_step"]

_ALIGNMENT = 64
"""Bytes: Eigen's, of TensorFlow's CPU builds (`EIGEN_MAX_ALIGN_BYTES`)."""


class Change(NamedTuple):
    """One line of the allocator's log."""

    time: int
    nbytes: int
    """What was asked for; negative when it is given back."""
    address: int
    operator: str
    is_scratch: bool
    """Whether a kernel works with it, and no tensor of the graph lies in it."""


def figures_of_step(build: Callable[[], Any], batch: Any, *, rehearsals: int = 2) -> dict[str, Any]:
    """`estimated` and `measured`: peak bytes that tensors asked for in one step, with all that training keeps.

    `with_scratch` adds what the CPU's kernels took for themselves, which says nothing about a GPU's. `build` makes a
    compiled model; `batch` is (x, y) of numpy arrays.
    """
    v1 = tf.compat.v1
    batch = tf.nest.map_structure(_aligned, batch)
    with tf.Graph().as_default() as graph:
        model = build()
        step = trace_step(model, batch)
        feeds = tf.nest.map_structure(lambda array: v1.placeholder(array.dtype, array.shape), batch)
        results = tf.nest.flatten(step.function(*tf.nest.flatten(feeds)))
        variables = model_variables(model)
        initialize = tf.group(*(variable.value.initializer for variable in variables))
    trace = follow(step, rehearsals + 1, on_gpu=False, versions={}, workload={})
    given = dict(zip(tf.nest.flatten(feeds), tf.nest.flatten(batch), strict=True))
    in_line = v1.RunOptions(inter_op_thread_pool=-1)
    with v1.Session(graph=graph) as session:
        session.run(initialize)
        for _ in range(rehearsals):
            session.run(results, given, options=in_line)
        changes = _profiled(lambda: session.run(results, given, options=in_line))
    before = sum(variable.value.dtype.size * variable.value.shape.num_elements() for variable in variables)
    before += sum(array.nbytes for array in tf.nest.flatten(batch))
    scratch = {(change.address, change.time) for change in changes if change.is_scratch}
    return {
        "estimated": peak_of(trace),
        "measured": before + _highest(changes, without=scratch),
        "with_scratch": before + _highest(changes),
        "parameters": sum(variable.value.shape.num_elements() for variable in model.trainable_variables),
        "events": len(changes),
    }


def _aligned(array: Any) -> Any:
    """The same array where it need not be copied before a kernel can read it."""
    room = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    aligned = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    aligned[...] = array
    return aligned


def _highest(changes: list[Change], without: frozenset[Any] | set[Any] = frozenset()) -> int:
    height = highest = 0
    left_out: set[int] = set()
    for change in changes:
        if (change.address, change.time) in without:
            left_out.add(change.address)
            continue
        if change.nbytes < 0 and change.address in left_out:
            left_out.remove(change.address)
            continue
        height += change.nbytes
        highest = max(highest, height)
    return highest


def _profiled(run: Callable[[], Any]) -> list[Change]:
    """What the allocator did meanwhile, in order, from TensorFlow's profiler."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        run()
        tf.profiler.experimental.stop()
        (file,) = Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(file.read_bytes())
    signs = {"MemoryAllocation": 1, "MemoryDeallocation": -1}
    changes = []
    for plane in space.planes:
        names = {number: data.name for number, data in plane.event_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                sign = signs.get(names[event.metadata_id])
                if sign is not None:
                    time = line.timestamp_ns * 1000 + event.offset_ps
                    changes.append(_change(time, sign, _told(event, plane.stat_metadata)))
    return sorted(changes)


def _told(event: Any, stats: Any) -> dict[str, Any]:
    told = {}
    for stat in event.stats:
        text = stat.str_value or (stats[stat.ref_value].name if stat.ref_value else "")
        told[stats[stat.metadata_id].name] = text or stat.int64_value or stat.uint64_value
    return told


def _change(time: int, sign: int, told: dict[str, Any]) -> Change:
    operator = str(told.get("tf_op", ""))
    # A variable that is copied before it is changed goes on to live in its temporary; so do a list's elements, and what
    # an Einsum computes: its kernel, the same on a GPU, hands a temporary on as its output.
    lives_on = any(kind in operator for kind in ("Assign", "TensorList", "Einsum"))
    scratch = told.get("region_type") == "temp" and not lives_on
    return Change(time, sign * int(told["requested_bytes"]), int(told["addr"]), operator, sign > 0 and scratch)
