"""From a traced graph to the Python code that Inductor would run on the target: its own passes, lowering, fusion,
scheduling and plan of buffers, without building a kernel.

`inductor_code` is what Inductor's `compile_fx` calls for each graph instead of its own inner compiler. Until there, the
tensors of the graph are on the stand-in (`devices.py`), since autograd in C++ knows no CUDA here; from there on they
are fake CUDA tensors, which serve as long as nobody differentiates.
"""

from __future__ import annotations

import ast
import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx
from torch._functorch import partitioners
from torch._guards import detect_fake_mode
from torch._inductor import compile_fx as _compile_fx
from torch._inductor.debug import DebugContext
from torch._inductor.fx_passes.post_grad import view_to_reshape
from torch._inductor.graph import GraphLowering
from torch._inductor.ir import ExternKernelOut, IRNode
from torch._inductor.utils import set_tracing_context_output_strides
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv, SymExprPrinter, free_unbacked_symbols
from torch.utils._pytree import tree_leaves, tree_map

from ..devices import is_virtual
from ..patches import Patches
from ..scope import is_user_file
from .plan import Plan, plan_of
from .shortcuts import without_symbols
from .steps import can_be_followed

__all__ = [
    "GraphCode",
    "inductor_code",
    "on_target",
    "partitioning_on",
    "places_of",
    "report_strides",
    "source_line",
]


@dataclass(frozen=True)
class GraphCode:
    """What Inductor wrote for one graph."""

    source: str
    """A Python module whose `call(args)` runs the graph."""
    made_for: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By the name of a buffer: the module and the source line that it was made for; no line where all of it is torch's
    own code."""
    constants: dict[str, Any] = field(default_factory=dict)
    """Tensors that the graph holds, by the names that the code knows them by."""
    products: tuple[tuple[int, ...], ...] = ()
    """For each matmul that is left to a library: the bytes of its operands and of its result."""
    made_by: dict[str, str] = field(default_factory=dict)
    """By the name of a buffer: the kernel that first writes it. Buffers are allocated just before."""
    strides: tuple[tuple[Any, ...] | None, ...] = ()
    """In which layout each output is left; None where it is no tensor."""
    plan: Plan | None = None
    """What the code does, as data; None: it is to be run as Python."""


def inductor_code(graph: fx.GraphModule, inputs: Sequence[Any], *, is_backward: bool, is_inference: bool) -> GraphCode:
    """As `compile_fx`'s own inner compiler does it (`codegen_and_compile`), up to where kernels would be built.

    Graph and inputs are on the target already.
    """
    view_to_reshape(graph)
    with torch.no_grad():
        fake_mode = _compile_fx.fake_tensor_prop(graph, inputs)
    _compile_fx._recursive_record_original_output_strides(graph)
    with V.set_fake_mode(fake_mode), V.set_debug_handler(DebugContext()), without_symbols(_is_static(graph)):
        _compile_fx._recursive_post_grad_passes(graph, is_inference=is_inference)
        with _compile_fx.maybe_disable_comprehensive_padding(inputs):
            lowering = GraphLowering(
                graph,
                example_inputs=inputs,
                shape_env=_shape_env(inputs),
                is_inference=is_inference,
                is_backward=is_backward,
            )
            lowering.freeze_runtime_asserts()
            with V.set_graph_handler(lowering), V.set_extern_kernel_nodes([]):
                lowering.run(*inputs)
                strides = _strides(lowering)
                wrapper, _ = lowering.codegen()
        source: str = wrapper.value
        plan = plan_of(source)
        return GraphCode(
            source,
            _origins(lowering),
            dict(lowering.constants),
            _products(lowering),
            _kernel_names(source),
            strides,
            plan if plan is not None and can_be_followed(plan) else None,
        )


def _is_static(graph: fx.GraphModule) -> bool:
    """Whether all sizes are numbers."""
    values = [leaf for node in graph.graph.nodes for leaf in tree_leaves(node.meta.get("val"))]
    sizes = [size for value in values if isinstance(value, torch.Tensor) for size in (*value.shape, *value.stride())]
    return not any(isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) for value in (*values, *sizes))


def on_target(graph: fx.GraphModule, inputs: Sequence[Any], device_type: str) -> list[Any]:
    """The graph is moved there; what is returned are the inputs there."""
    _move(graph, device_type)
    return [_moved(value, device_type) for value in inputs]


def _strides(lowering: GraphLowering) -> tuple[tuple[Any, ...] | None, ...]:
    return tuple(
        tuple(int(stride) if getattr(stride, "is_Integer", False) else stride for stride in output.get_layout().stride)
        if isinstance(output, IRNode) and output.has_tensor_output() and not free_unbacked_symbols(output.get_stride())
        else None
        for output in lowering.graph_outputs or []
    )


def report_strides(strides: Sequence[tuple[Any, ...] | None], inputs: Sequence[Any]) -> None:
    """AOTAutograd learns in which layout the forward leaves what it saves: the backward is compiled for that layout.

    Convolutions are turned to channels-last where Inductor finds that faster, and a backward that did not know would
    plan other buffers.
    """
    printer = SymExprPrinter()
    told = [None if one is None else tuple(printer.doprint(stride) for stride in one) for one in strides]
    set_tracing_context_output_strides(inputs, SimpleNamespace(output_strides=told))  # type: ignore[arg-type]


def places_of(graph: fx.GraphModule) -> list[tuple[str, str]]:
    """Of each node, its module and source line."""
    return [_place([node]) for node in graph.graph.nodes]


def _shape_env(inputs: Sequence[Any]) -> ShapeEnv | None:
    mode = detect_fake_mode(inputs)
    return mode.shape_env if mode is not None else None


_MATMULS = ("extern_kernels.mm", "extern_kernels.addmm", "extern_kernels.bmm", "extern_kernels.baddbmm")


def _products(lowering: GraphLowering) -> tuple[tuple[int, ...], ...]:
    found = []
    for operation in lowering.operations:
        if isinstance(operation, ExternKernelOut) and operation.python_kernel_name in _MATMULS:
            tensors = [*operation.inputs, operation]
            found.append(tuple(_nbytes(tensor, lowering) for tensor in tensors if isinstance(tensor, IRNode)))
    return tuple(found)


def _nbytes(tensor: IRNode, lowering: GraphLowering) -> int:
    elements = math.prod(lowering.sizevars.optimization_hints(tensor.get_size()))
    return int(elements) * tensor.get_dtype().itemsize


# -------- From the stand-in to CUDA


def _move(graph: fx.GraphModule, device_type: str) -> None:
    """Every value and every named device of a graph on the target, where it was on the stand-in. Views stay views."""
    for module in graph.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                if "val" in node.meta:
                    node.meta["val"] = tree_map(lambda value: _moved(value, device_type), node.meta["val"])
                node.args = fx.node.map_aggregate(node.args, lambda value: _named(value, device_type))
                node.kwargs = fx.node.map_aggregate(node.kwargs, lambda value: _named(value, device_type))
            module.recompile()


def _named(value: Any, device_type: str) -> Any:
    if not isinstance(value, torch.device) or not _is_gpu(value):
        return value
    return _device(device_type, value.index)


def _is_gpu(device: torch.device) -> bool:
    """By its stand-in, or by the name that AOTAutograd was shown when it made up an input of the backward."""
    return is_virtual(device) or device.type == "cuda"


def _device(device_type: str, index: int | None) -> torch.device:
    return torch.device("cpu") if device_type == "cpu" else torch.device(device_type, index or 0)


def _moved(value: Any, device_type: str) -> Any:
    """The same fake tensor on the target: it shares the storage, so what aliases what is still to be seen."""
    if not isinstance(value, FakeTensor) or not _is_gpu(value.fake_device):
        return value
    if value.fake_device.type == device_type == "cuda":
        return value
    with value.fake_mode, torch.no_grad():
        moved: Any = value.detach()
    moved.fake_device = _device(device_type, value.fake_device.index)
    return moved


@contextlib.contextmanager
def partitioning_on(device_type: str) -> Iterator[None]:
    """The joint graph of forward and backward is on the target when Inductor's passes see it and cut it in two.

    Random operators that run again in backward (attention in a checkpointed block) get the generator's state of their
    forward, which needs CUDA's generators and holds a few bytes: they run without it here.
    """
    partition = _compile_fx.partition_fn

    def on_target(graph: fx.GraphModule, joint_inputs: Any, **options: Any) -> Any:
        _move(graph, device_type)
        return partition(graph, tree_map(lambda value: _moved(value, device_type), joint_inputs), **options)

    with Patches() as patches:
        patches.set(_compile_fx, "partition_fn", on_target)
        patches.set(partitioners, "functionalize_rng_ops", lambda joint, forward, backward, *_: (forward, backward))
        yield


# -------- Whose a buffer is


def _origins(lowering: GraphLowering) -> dict[str, tuple[str, str]]:
    made_for = {}
    for name, buffer in lowering.name_to_buffer.items():
        operation = buffer.get_defining_op()
        nodes = list(getattr(operation, "origins", ()) or getattr(buffer, "origins", ()) or ())
        if nodes:
            made_for[name] = _place(nodes)
    return made_for


def _place(nodes: list[fx.Node]) -> tuple[str, str]:
    """Of the last node that was fused into the kernel: what it computes for."""
    for node in sorted(nodes, key=lambda node: node._sort_key, reverse=True):
        source = source_line(node.meta.get("stack_trace") or "")
        stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
        if source or stack:
            return _module(stack), source
    return "", ""


def source_line(stack_trace: str) -> str:
    """The innermost frame of a stack trace, as torch keeps it, that is not torch's own."""
    lines = [f"{file}:{number}" for file, number in _FRAME.findall(stack_trace) if is_user_file(file)]
    return lines[-1] if lines else ""


_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)


def _module(stack: Any) -> str:
    if not stack:
        return ""
    path: str = list(stack.values())[-1][0]
    return _ROOT.sub("", path)


_ROOT = re.compile(r"^L\['\w+'\]\.?")
"""How Dynamo names what it was called with."""


def _kernel_names(source: str) -> dict[str, str]:
    """By the name of a buffer: the kernel that first writes it. Buffers are allocated just before."""
    made_by: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.id if isinstance(owner, ast.Name) else ""
            if name == "extern_kernels":
                written, kernel = [k.value for k in node.keywords if k.arg == "out"], f"aten.{node.func.attr}"
            elif node.func.attr == "run" and name:
                written, kernel = list(node.args), name
            else:
                continue
            for part in written:
                for inner in ast.walk(part):
                    if isinstance(inner, ast.Name) and inner.id.startswith("buf"):
                        made_by.setdefault(inner.id, kernel)
    return made_by
