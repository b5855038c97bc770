"""An inference's bytes as oomcast sees them, beside what ONNX Runtime's arena takes for it on this machine's CPU.

The arena is told to take exactly what it is asked for, and to give everything back after each run; it logs what it
takes. So the sum of what it took in one run is what that run needs. From the second run on, ONNX Runtime takes one
block for all values whose place it has planned. Graph optimizations are off: they fuse nodes for the CPU and reorder
its layouts.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Mapping
from typing import Any

import onnx
import onnx.inliner
import onnxruntime

from oomcast.capture.onnx.lives import Lives
from oomcast.capture.onnx.read import to_graph
from oomcast.capture.onnx.run import follow_inference
from oomcast.spec import Workload
from oomcast.trace.builder import peak_of

__all__ = ["figures_of_run", "taken_in_a_run"]

_ALIGNMENT = 256
_TAKEN = re.compile(r"Extended allocation by (\d+) bytes")

_WITHOUT_KERNELS = [("", "HardSwish")]
"""What is run by the steps of its definition on a CPU, where CUDA has a kernel since 1.23 (its pull request 25562)."""


class _Job:
    """A job in name only."""

    @staticmethod
    def model() -> None: ...

    @staticmethod
    def batch(batch_size: int) -> None: ...


def figures_of_run(
    model: Any, batch_size: int, *, seq_len: int | None = None, forms: Mapping[str, tuple[int, ...]] | None = None
) -> dict[str, Any]:
    """`estimated` and `measured`: bytes of weights, inputs, outputs and the values in between, at most at a time.

    `planned` is what was measured without the scratch of kernels, which are others on a GPU.
    """
    import numpy

    expanded = onnx.inliner.inline_selected_functions(model, _WITHOUT_KERNELS, inline_schema_functions=True)
    graph = to_graph(expanded, Workload.create(_Job, batch_size=batch_size, seq_len=seq_len), forms)
    estimated = peak_of(follow_inference(graph, 1, on_gpu=False, versions={}, workload={}))
    feeds = {
        name: numpy.zeros(graph.tensors[name].shape, graph.tensors[name].dtype.replace("double", "float64"))
        for name in graph.inputs
    }
    resident = sum(graph.tensors[name].nbytes for name in (*graph.weights, *graph.inputs))
    taken = _takings(model, feeds)
    outputs = sum(-(-graph.tensors[name].nbytes // _ALIGNMENT) * _ALIGNMENT for name in graph.outputs)
    block = taken[0] if Lives(graph, on_gpu=False).block() else 0  # it is taken before any node runs
    return {
        "estimated": estimated,
        "measured": resident + sum(taken),
        "planned": resident + block + outputs,
        "weights": sum(graph.tensors[name].nbytes for name in graph.weights),
        "parameters": sum(math.prod(graph.tensors[name].shape) for name in graph.weights),
    }


def taken_in_a_run(model: Any, feeds: dict[str, Any]) -> int:
    """Bytes that the arena had to take in the second run: the values in between, the outputs, kernels' scratch."""
    return sum(_takings(model, feeds))


def _takings(model: Any, feeds: dict[str, Any]) -> list[int]:
    """The same, one after the other."""
    state = onnxruntime.capi._pybind_state
    onnxruntime.set_default_logger_severity(1)
    memory = state.OrtMemoryInfo("Cpu", state.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, state.OrtMemType.DEFAULT)
    as_requested = {"arena_extend_strategy": 1, "initial_chunk_size_bytes": 256}
    onnxruntime.create_and_register_allocator(memory, state.OrtArenaCfg(as_requested))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.use_env_allocators", "1")
    shrinking = onnxruntime.RunOptions()
    shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    kept = session.run(None, feeds, shrinking)  # else the second run would find its outputs' memory free
    with tempfile.TemporaryFile() as log:
        before = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            session.run(None, feeds, shrinking)
        finally:
            os.dup2(before, 2)
            os.close(before)
        log.seek(0)
        taken = _TAKEN.findall(log.read().decode(errors="replace"))
    onnxruntime.set_default_logger_severity(2)
    del kept
    return [int(nbytes) for nbytes in taken]
