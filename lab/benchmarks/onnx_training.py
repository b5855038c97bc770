"""`python -m lab bench onnx_training MODEL BATCH`: a training step by oomcast, and by ONNX Runtime's training.

It runs in an environment of its own: onnxruntime-training 1.19.2, onnx 1.16.2, numpy 1.26.4 and any torch, which that
package loads. The step is the graph that it derives (`artifacts.generate_artifacts`), run by ONNX Runtime on the CPU:
weights, batch, accumulated gradients and Adam's two states are counted by their sizes, the rest by what the arena takes
in the second run. Prints one line of JSON. Not all of the models can be run: some operators have no gradient there, or
none for a CPU.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

from .frameworks_onnx import build


class _Job:
    """A job in name only."""

    @staticmethod
    def model() -> None: ...

    @staticmethod
    def batch(batch_size: int) -> None: ...


def measure(name: str, batch_size: int) -> dict[str, Any]:
    """The most bytes of a step: as oomcast follows it, and as ONNX Runtime holds them."""
    from oomcast.capture.onnx.read import to_graph
    from oomcast.capture.onnx.run import follow_training
    from oomcast.spec import Workload
    from oomcast.trace.builder import peak_of

    model = build(name, batch_size)
    graph = to_graph(model, Workload.create(_Job, batch_size=batch_size))
    estimated = peak_of(follow_training(graph, 1, "adam", on_gpu=False, versions={}, workload={}))
    trained, step = _training_graph(model, graph.tensors[graph.outputs[0]].shape)
    return {
        "model": name,
        "batch_size": batch_size,
        "estimated": estimated,
        "measured": _held(step) + 2 * trained,
    }


def _training_graph(model: Any, output: tuple[int, ...]) -> tuple[int, Any]:
    """Bytes of the trained weights, and the graph of the forward and the backward pass."""
    import onnx
    from onnx import TensorProto, helper
    from onnxruntime.training import artifacts

    result = model.graph.output[0].name
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(result, TensorProto.FLOAT, list(output)))
    statistics = {name for node in model.graph.node if node.op_type == "BatchNormalization" for name in node.input[3:5]}
    weights = [item for item in model.graph.initializer if item.data_type == TensorProto.FLOAT]
    trained = [item for item in weights if item.name not in statistics]
    with tempfile.TemporaryDirectory() as folder:
        artifacts.generate_artifacts(
            model,
            requires_grad=[item.name for item in trained],
            frozen_params=sorted(statistics),
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=artifacts.OptimType.AdamW,
            artifact_directory=folder,
        )
        step = onnx.load(Path(folder) / "training_model.onnx")
    return sum(4 * math.prod(item.dims) for item in trained), step


def _held(step: Any) -> int:
    """Inputs, initialisers, and what the arena takes in a run."""
    import numpy
    from onnx import helper

    from ..checks.onnx_check import taken_in_a_run

    feeds = {}
    for item in step.graph.input:
        kind = item.type.tensor_type
        shape = [dimension.dim_value for dimension in kind.shape.dim]
        feeds[item.name] = numpy.zeros(shape, helper.tensor_dtype_to_np_dtype(kind.elem_type))
        if feeds[item.name].dtype == bool:
            feeds[item.name][...] = True  # gradients replace what was accumulated
    fixed = sum(4 * math.prod(item.dims) for item in step.graph.initializer)
    return fixed + sum(array.nbytes for array in feeds.values()) + taken_in_a_run(step, feeds)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
