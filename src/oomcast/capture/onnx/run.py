"""The Trace of an ONNX model: inferences, or training steps through its gradient graph."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import onnx

from ...errors import BadInput
from ...spec import JobPhase, Precision, Workload, missing_optimizer
from ...trace import Category, Phase, Trace, TraceBuilder
from ..frameworks import check_framework
from ..job_files import job_functions
from ..only_torch import refuse_options_of_torch
from ..tensors import Tensor
from .lives import Lives
from .operators import needed_by_gradient, passes_gradient
from .read import Graph, Node, convolution, read_model, to_graph

__all__ = ["SLOTS", "capture_here", "follow_inference", "follow_training", "graph_of"]

SLOTS: dict[str, int] = {"sgd": 0, "sgd-momentum": 1, "adam": 2, "adamw": 2, "rmsprop": 1, "adagrad": 1}
"""Optimizer → tensors of state for each weight."""


class _Runner:
    """A graph's forward pass, block by block."""

    def __init__(self, graph: Graph, *, on_gpu: bool, kept: frozenset[str] = frozenset()) -> None:
        self.graph = graph
        self.record = TraceBuilder()
        self.lives = Lives(graph, on_gpu=on_gpu, kept=kept)
        self.blocks: dict[str, int | None] = {}
        self._on_gpu = on_gpu
        self._at_the_highest = self._live_at_the_highest()
        self._gaps = self.lives.block() - sum(graph.tensors[name].nbytes for name in self._at_the_highest)
        for name in graph.weights:
            self.blocks[name] = self.make(name, Category.PARAMETER, "initializer")

    def make(self, name: str, category: Category, operator: str, module: str = "") -> int | None:
        tensor = self.graph.tensors[name]
        return self.allocate(tensor, category, operator, module or name)

    def allocate(self, tensor: Tensor, category: Category, operator: str, module: str) -> int | None:
        return self.record.allocate(tensor.nbytes, category, operator, module, "", tensor.shape, tensor.dtype)

    def inputs(self, step: int) -> None:
        self.record.enter(Phase.INPUT, step)
        for name in self.graph.inputs:
            self.blocks[name] = self.make(name, Category.INPUT, "input")

    def forward(self, step: int) -> None:
        self.record.enter(Phase.FORWARD, step)
        gaps = self.record.allocate(max(self._gaps, 0), Category.TEMPORARY, "gaps in the planned block")
        for node, gone in zip(self.graph.nodes, self.lives.freed_after, strict=True):
            for name in self.lives.made_by(node):
                category = Category.ACTIVATION if name in self.lives.stays else Category.TEMPORARY
                self.blocks[name] = self.make(name, category, node.type, node.name or name)
            self.kernel(node)
            for place in gone:
                self.free(place)
        self.record.free(gaps)

    def planned_run(self, step: int) -> None:
        """The block for all values with a known life is there from the first node to the last.

        It is told by what lies in it at the highest moment. Outputs and kernels' scratch come on top.
        """
        self.record.enter(Phase.FORWARD, step)
        maker = {name: node for node in self.graph.nodes for name in node.outputs}
        block = [self.record.allocate(max(self._gaps, 0), Category.TEMPORARY, "gaps in the planned block")]
        for name in self._at_the_highest:
            node = maker[name]
            block.append(self.make(name, Category.TEMPORARY, node.type, node.name or name))
        for node in self.graph.nodes:
            for name in self.lives.made_by(node):
                if name in self.lives.stays:
                    self.blocks[name] = self.make(name, Category.ACTIVATION, node.type, node.name or name)
            self.kernel(node)
        for part in block:
            self.record.free(part)

    def _live_at_the_highest(self) -> list[str]:
        """The planned values that are there when they hold the most together."""
        live: dict[str, int] = {}
        highest, found = 0, list(live)
        for node, gone in zip(self.graph.nodes, self.lives.freed_after, strict=True):
            made = (name for name in self.lives.made_by(node) if name not in self.lives.stays)
            live.update((name, self.graph.tensors[name].nbytes) for name in made)
            if sum(live.values()) > highest:
                highest, found = sum(live.values()), list(live)
            for name in gone:
                live.pop(name, None)
        return found

    def kernel(self, node: Node, kind: str = "conv_fprop") -> None:
        call = convolution(self.graph, node, kind) if self._on_gpu else None
        if call is not None:
            self.record.kernel(call)
        scratch = node.scratch + (0 if self._on_gpu else _gates(self.graph, node))
        self.record.free(self.record.allocate(scratch, Category.TEMPORARY, f"{node.type}: while it runs", node.name))

    def free(self, place: str) -> None:
        self.record.free(self.blocks.pop(place, None))

    def end_of_step(self) -> None:
        for name in [name for name in self.blocks if name not in self.graph.weights]:
            self.free(name)


def follow_inference(
    graph: Graph,
    steps: int,
    *,
    on_gpu: bool = True,
    versions: dict[str, str],
    workload: dict[str, object],
    assumptions: Iterable[str] = (),
) -> Trace:
    """Each run as those after the first, for which all memory is planned; outputs live until the caller drops them."""
    runner = _Runner(graph, on_gpu=on_gpu)
    for step in range(steps):
        runner.inputs(step)
        runner.planned_run(step)
        runner.end_of_step()
    runner.record.note_all(graph.unsupported, assumptions)
    return runner.record.trace(versions, workload)


def follow_training(
    graph: Graph,
    steps: int,
    optimizer: str,
    *,
    on_gpu: bool = True,
    versions: dict[str, str],
    workload: dict[str, object],
    assumptions: Iterable[str] = (),
) -> Trace:
    """Forward, then every node's gradient in turn, then the optimizer on all weights.

    A value lives until the last gradient that reads it; the gradient of a value that several nodes read is summed in
    one place. Gradients of weights live to the end of the backward pass; then they are added to arrays that stay, as
    ONNX Runtime's training does it, and the optimizer reads those.
    """
    graph = _with_indices(graph)
    unsupported: Counter[str] = Counter(graph.unsupported)
    path = _with_gradient(graph)
    needed: dict[str, int] = {}  # value → number of the last gradient that reads it, counted backwards
    for number, node in enumerate(graph.nodes):
        if not path.intersection(node.outputs):
            continue
        names, is_known = needed_by_gradient(node)
        if not is_known:
            unsupported[f"gradient of {node.type}"] += 1
        for name in names:
            needed[name] = min(needed.get(name, number), number)
    keep = frozenset(name for name in needed if name in graph.tensors)
    runner = _Runner(graph, on_gpu=on_gpu, kept=keep)
    record = runner.record
    trained = [name for name in graph.weights if name in path]
    for name in trained:
        runner.allocate(graph.tensors[name], Category.GRADIENT, "accumulated gradient", name)
        for _ in range(SLOTS[optimizer]):
            runner.allocate(graph.tensors[name], Category.OPTIMIZER_STATE, optimizer, name)
    for step in range(steps):
        runner.inputs(step)
        runner.forward(step)
        _backward(runner, step, path, needed)
        for name in trained:
            runner.free(f"gradient of {name}")
        record.enter(Phase.OPTIMIZER, step)
        runner.end_of_step()
    record.note_all(unsupported, assumptions)
    return record.trace(versions, workload)


def _gates(graph: Graph, node: Node) -> int:
    """What the CPU's kernels of recurrent layers take for the gates of all steps."""
    count = {"LSTM": 4, "GRU": 3, "RNN": 1}.get(node.type, 0)
    if not count:
        return 0
    length, batch, _ = graph.tensors[node.inputs[0]].shape
    return length * batch * count * int(node.attributes["hidden_size"]) * graph.tensors[node.inputs[0]].itemsize


def _with_indices(graph: Graph) -> Graph:
    """Max pooling that is trained also tells where the largest ones were, as ONNX Runtime's gradient wants it."""
    tensors = dict(graph.tensors)
    nodes = []
    for node in graph.nodes:
        if node.type == "MaxPool" and len(node.outputs) == 1:
            indices = f"indices of {node.outputs[0]}"
            tensors[indices] = Tensor(tensors[node.outputs[0]].shape, "int64", 8)
            node = replace(node, outputs=(node.outputs[0], indices))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _with_gradient(graph: Graph) -> frozenset[str]:
    """Values that a gradient is taken for: real weights, and what is computed from them."""
    found = {
        name for name in graph.weights if graph.tensors[name].dtype in ("float32", "float16", "bfloat16", "double")
    }
    statistics = {name for node in graph.nodes if node.type == "BatchNormalization" for name in node.inputs[3:5]}
    found -= statistics
    for node in graph.nodes:
        if passes_gradient(node) and found.intersection(node.inputs):
            found.update(name for name in node.outputs if name)
    return frozenset(found)


def _backward(runner: _Runner, step: int, path: frozenset[str], needed: dict[str, int]) -> None:
    graph, record = runner.graph, runner.record
    record.enter(Phase.BACKWARD, step)
    gone: dict[int, list[str]] = {}
    for name, number in needed.items():
        place = runner.lives.home.get(name, name)
        gone.setdefault(number, []).append(place)
    still = Counter(runner.lives.home.get(name, name) for name in needed)
    protected = {*graph.weights, *graph.inputs}
    for name in graph.outputs:
        if name in path:
            runner.blocks[f"gradient of {name}"] = runner.make(name, Category.TEMPORARY, "loss")
    for number in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[number]
        if path.intersection(node.outputs):
            for name in dict.fromkeys(node.inputs):
                key = f"gradient of {name}"
                if name in path and key not in runner.blocks:
                    runner.blocks[key] = runner.make(name, Category.TEMPORARY, f"{node.type}Grad", node.name or name)
            if node.type in ("Conv", "ConvTranspose"):
                if node.inputs[0] in path:
                    runner.kernel(node, "conv_dgrad")
                runner.kernel(node, "conv_wgrad")
        for name in node.outputs:
            runner.free(f"gradient of {name}")
        for place in gone.get(number, ()):
            still[place] -= 1
            if still[place] == 0 and place not in protected:
                runner.free(place)


_INFERENCE = "without --optimizer an ONNX model is run, not trained; with one, a training step is followed"
_TRAINING = (
    "the training step follows from the forward graph: every operator's gradient keeps what it must read, and weights "
    "that are not batch statistics are all trained"
)


def capture_here(workload: Workload, *, on_gpu: bool = True) -> Trace:
    """The Trace of a workload, captured in this process; with `on_gpu` false, as ONNX Runtime runs it on a CPU."""
    _check_options(workload)
    graph = graph_of(workload)
    facts: dict[str, Any] = {
        "on_gpu": on_gpu,
        "versions": {"python": platform.python_version(), "onnx": onnx.__version__},
        "workload": workload.as_dict(),
    }
    if workload.optimizer is None:
        return follow_inference(graph, workload.steps, assumptions=[_INFERENCE], **facts)
    if workload.optimizer not in SLOTS:
        raise missing_optimizer("ONNX Runtime's training", workload.optimizer, SLOTS)
    return follow_training(graph, workload.steps, workload.optimizer, assumptions=[_TRAINING], **facts)


def graph_of(workload: Workload) -> Graph:
    job = workload.job
    if job.name.endswith(".onnx"):
        return to_graph(read_model(job.name), workload)
    functions = job_functions(workload, (JobPhase.TRAINING, JobPhase.INFERENCE))
    model = functions.model()
    check_framework(model, "onnx")
    if isinstance(model, str):
        model = read_model(model)
    if not isinstance(model, onnx.ModelProto):
        raise BadInput(f"model() in {job.name} returned {type(model).__name__}; return an onnx.ModelProto or a path.")
    names = [item.name for item in model.graph.input if item.name not in {w.name for w in model.graph.initializer}]
    batch = functions.batch()
    given = batch if isinstance(batch, dict) else dict(zip(names, batch, strict=False))
    try:
        forms = {name: tuple(int(extent) for extent in array.shape) for name, array in given.items()}
    except (AttributeError, TypeError) as error:
        raise BadInput(
            f"batch() in {job.name} returned something without a shape; return arrays, in the order of the model's "
            "inputs or by their names."
        ) from error
    return to_graph(model, workload, forms)


def _check_options(workload: Workload) -> None:
    refuse_options_of_torch(workload, "ONNX")
    if workload.phase not in (JobPhase.TRAINING, JobPhase.INFERENCE):
        raise BadInput(f"--phase {workload.phase.value} is not followed for ONNX: without --optimizer a model is run.")
    if workload.phase is JobPhase.INFERENCE and workload.optimizer is not None:
        raise BadInput("--phase inference and --optimizer were both given; with an optimizer an ONNX model is trained.")
    for given, option in (
        (workload.accumulation > 1, "--accumulation"),
        (workload.checkpointing, "--checkpointing"),
        (workload.precision not in (Precision.FP32, Precision.TF32), "--precision"),
    ):
        if given:
            raise BadInput(
                f"{option} is not followed for ONNX; the model file says what is computed, and in which type."
            )
