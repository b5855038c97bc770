"""What a captured job looks like to a learner: the layers of its first forward pass, and the simulator's figures.

Both also as the numbers that networks take: logarithms for orders of magnitude, GiB for sums.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from ...estimation import Estimate
from ...simulate import DeviceFacts, WorkspaceTable, simulate
from ...simulate.cudnn import has_convolutions
from ...trace import Allocation, Category, EventKind, Phase, Trace

if TYPE_CHECKING:
    from ...estimation import Target

__all__ = [
    "ACTIVATION_FUNCTIONS",
    "KINDS",
    "TOKEN_NAMES",
    "VECTOR_NAMES",
    "Layer",
    "LayerFeatures",
    "SimulatorFeatures",
    "activation_code",
    "feature_vector",
    "kind_of_operator",
    "layer_features",
    "layer_features_of_layers",
    "layers_with_memory",
    "parameters_by_module",
    "reserved_without_workspaces",
    "simulator_features",
    "token_vectors",
]

KINDS = ("linear", "convolution", "batch_norm", "layer_norm", "dropout", "activation", "softmax", "pooling",
         "embedding", "attention")  # fmt: skip
"""The kinds of layers that operators of a Trace are told by; any other layer is named by its operator."""

ACTIVATION_FUNCTIONS = ("elu", "gelu", "identity", "leaky_relu", "mish", "prelu", "relu", "selu", "silu", "softplus",
                        "tanh")  # fmt: skip
"""Their order is part of the cos/sin code."""

_LAYERS: Mapping[str, str] = {
    "addmm": "linear",
    "mm": "linear",
    "convolution": "convolution",
    "cudnn_batch_norm": "batch_norm",
    "native_batch_norm": "batch_norm",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "layer_norm",
    "_fused_rms_norm": "layer_norm",
    "native_dropout": "dropout",
    "_softmax": "softmax",
    "_safe_softmax": "softmax",
    "_log_softmax": "softmax",
    "mean": "pooling",
    "avg_pool2d": "pooling",
    "_adaptive_avg_pool2d": "pooling",
    "max_pool2d_with_indices": "pooling",
    "embedding": "embedding",
    "bmm": "attention",
    "baddbmm": "attention",
    "_scaled_dot_product_efficient_attention": "attention",
    "_scaled_dot_product_flash_attention": "attention",
    "_scaled_dot_product_cudnn_attention": "attention",
    **dict.fromkeys(
        ("relu", "leaky_relu", "_prelu_kernel", "elu", "gelu", "tanh", "silu", "softplus", "mish", "sigmoid",
         "hardtanh", "hardswish", "hardsigmoid"), "activation"),
}  # fmt: skip
_FUNCTIONS = {"_prelu_kernel": "prelu", "hardtanh": "relu", "hardswish": "silu"}
"""Names of the code, where they are not the operator's; ReLU6 runs as hardtanh. The nearest for what it has not."""
_BACKWARDS = {
    "threshold_backward": "relu",
    **{f"{name}_backward": name for name in ("leaky_relu", "elu", "silu", "hardtanh", "hardswish", "hardsigmoid",
                                             "sigmoid", "tanh", "mish", "gelu", "softplus")},
}  # fmt: skip
"""The gradient's operator of each activation → the activation."""
_BETWEEN_LAYERS = frozenset(
    ("add", "sub", "mul", "div", "neg", "pow", "sqrt", "rsqrt", "cat", "stack", "clone", "copy", "_to_copy",
     "contiguous", "constant_pad_nd", "index", "index_select", "slice", "select", "repeat", "expand", "where",
     "masked_fill", "fill", "zeros",
     "ones", "full", "empty", "arange", "zeros_like", "ones_like", "empty_like", "full_like", "addcmul",
     "sum", "amax", "amin", "roll", "flip", "split", "bernoulli", "new_empty", "new_zeros", "new_ones", "gather",
     "scalar_tensor", "lift_fresh", "to_device")
)  # fmt: skip
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1}


@dataclass(frozen=True)
class Layer:
    kind: str
    """One of `KINDS`, or the operator where it is none of them."""
    activations: int
    """Values it puts out for one sample."""
    parameters: int


@dataclass(frozen=True)
class LayerFeatures:
    """GPUMemNet's features of a network."""

    layers: tuple[Layer, ...]
    batch_size: int
    parameters: int
    activations: int
    """Values that all layers together put out for one sample."""
    activation_function: str
    """The one that most layers have; `identity` where there is none."""

    @property
    def counts(self) -> Mapping[str, int]:
        return Counter(layer.kind for layer in self.layers)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(sorted({layer.kind for layer in self.layers}))

    @property
    def batch_activations(self) -> int:
        return self.activations * self.batch_size


@dataclass(frozen=True)
class SimulatorFeatures:
    """What the simulator found, without units where it can be: shares of the device total, ratios, counts."""

    device_total: float
    """Bytes."""
    reserved: float
    """Bytes."""
    context: float
    cache: float
    """Bytes that the allocator has reserved and not handed out, over the device total."""
    workspace: float
    """In use at the peak."""
    bare: float
    """The device total without convolution workspaces: these leave blocks behind in the cache."""
    parameters: float
    gradients: float
    optimizer: float
    inputs: float
    activations: float
    temporaries: float
    least: float
    """The least device memory on which it runs, over the device total."""
    full: float
    """The device total over what the device has."""
    growth: float
    """Reserved at the end over reserved at the end of the first step."""
    largest: float
    """The largest block in use at the peak."""
    convolutions: float
    """The share of convolutions among the layers, from 0 to 1; so are the next two."""
    normalizations: float
    dropouts: float
    depth: float
    """The number of layers."""

    def values(self) -> tuple[float, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))


def layer_features(trace: Trace) -> LayerFeatures:
    """GPUMemNet's features, of the first forward pass that a backward pass follows: the layers as a list of modules
    shows them, activations that work in place among them."""
    return _layer_features(trace, _with_in_place(trace))


def layers_with_memory(trace: Trace) -> LayerFeatures:
    """The same without activations that work in place: they take no memory."""
    return _layer_features(trace, _outputs(trace))


def _layer_features(trace: Trace, outputs: Iterable[Allocation]) -> LayerFeatures:
    batch_size = int(trace.workload.get("batch_size", 1))
    parameters = parameters_by_module(trace)
    layers, functions = [], Counter[str]()
    used: set[str] = set()
    for made in outputs:
        name = _forward_operator(made.operator)
        kind = kind_of_operator(made.operator)
        if kind == "activation":
            functions[_FUNCTIONS.get(name, name)] += 1
        own = 0 if made.module in used else parameters.get(made.module, 0)
        used.add(made.module)
        layers.append(Layer(kind, _values(made) // batch_size, own))
    return layer_features_of_layers(layers, functions, batch_size, sum(parameters.values()))


def layer_features_of_layers(
    layers: Sequence[Layer], functions: Mapping[str, int], batch_size: int, parameters: int
) -> LayerFeatures:
    """GPUMemNet's features where a data set lists the layers itself."""
    return LayerFeatures(
        layers=tuple(layers),
        batch_size=batch_size,
        parameters=parameters,
        activations=sum(layer.activations for layer in layers),
        activation_function=max(sorted(functions), key=lambda name: functions[name], default="identity"),
    )


def kind_of_operator(operator: str) -> str:
    """One of `KINDS`, or the operator itself where it is none of them; an activation's gradient is of its kind."""
    return _LAYERS.get(_forward_operator(operator), operator)


def activation_code(function: str) -> tuple[float, float]:
    """Sine and cosine of its place on half a circle. torch runs SELU by ELU's kernel: both have one place."""
    name = "elu" if function == "selu" else function
    place = ACTIVATION_FUNCTIONS.index(name) if name in ACTIVATION_FUNCTIONS else ACTIVATION_FUNCTIONS.index("identity")
    angle = place * math.pi / len(ACTIVATION_FUNCTIONS)
    return math.sin(angle), math.cos(angle)


def simulator_features(
    estimate: Estimate, layers: LayerFeatures, bare_reserved: int | None = None
) -> SimulatorFeatures:
    """Of the simulator's own answer: its breakdown at the peak and the way there.

    `bare_reserved` is what `reserved_without_workspaces` found; jobs without convolutions need none.
    """
    total = max(estimate.device_total, 1)
    bare = estimate.peak_reserved if bare_reserved is None else bare_reserved
    part = {name: value / total for name, value in estimate.breakdown.items()}
    counts, depth = layers.counts, max(len(layers.layers), 1)
    reserved = [reserved for *_, reserved in estimate.phase_peaks]
    first = [reserved for step, _, _, reserved in estimate.phase_peaks if step <= 0]
    return SimulatorFeatures(
        device_total=float(estimate.device_total),
        reserved=float(estimate.peak_reserved),
        context=part.get("context", 0.0),
        cache=part.get("allocator_cache", 0.0),
        workspace=part.get(Category.WORKSPACE.value, 0.0),
        bare=(estimate.device_total - estimate.peak_reserved + bare) / total,
        parameters=part.get(Category.PARAMETER.value, 0.0),
        gradients=part.get(Category.GRADIENT.value, 0.0),
        optimizer=part.get(Category.OPTIMIZER_STATE.value, 0.0),
        inputs=part.get(Category.INPUT.value, 0.0),
        activations=part.get(Category.ACTIVATION.value, 0.0),
        temporaries=part.get(Category.TEMPORARY.value, 0.0),
        least=estimate.least_capacity / total,
        full=estimate.device_total / max(estimate.device_usable, 1),
        growth=max(reserved, default=1) / max(max(first, default=1), 1),
        largest=max((tensor.nbytes for tensor in estimate.top_tensors), default=0) / total,
        convolutions=counts.get("convolution", 0) / depth,
        normalizations=(counts.get("batch_norm", 0) + counts.get("layer_norm", 0)) / depth,
        dropouts=counts.get("dropout", 0) / depth,
        depth=float(depth),
    )


def parameters_by_module(trace: Trace) -> dict[str, int]:
    """A parameter's path is its module's with its own name behind."""
    counts: Counter[str] = Counter()
    for made in trace.allocations:
        if made.category is Category.PARAMETER:
            counts[made.module.rpartition(".")[0]] += made.nbytes // _ITEMSIZE.get(made.dtype, 4)
    return dict(counts)


def _outputs(trace: Trace) -> Iterator[Allocation]:
    """What layers put out; masks, statistics and indices beside it are left out, and so is the loss."""
    before = ("", "")
    shape: tuple[int, ...] = ()
    for made in _first_forward(trace):
        call = (made.module, made.operator)
        beside = call == before and (made.shape != shape or made.dtype not in _FLOATS)
        if beside or not made.module or _operator(made) in _BETWEEN_LAYERS:
            continue
        before, shape = call, made.shape
        yield made


def _with_in_place(trace: Trace) -> list[Allocation]:
    """What layers put out, in place too.

    An operator in place leaves no trace in the forward pass, but its gradient does: it takes memory of the output's
    shape, right before the gradient of the layer whose output was overwritten. A gradient for which no activation of
    that function and shape took memory stands for one in place here.
    """
    outputs = list(_outputs(trace))
    last = {made.module: number for number, made in enumerate(outputs)}
    took = Counter((_operator(made), made.shape) for made in outputs)
    after: dict[int, list[Allocation]] = {}
    waiting: list[Allocation] = []
    for made in _first_backward(trace):
        function = _BACKWARDS.get(_operator(made))
        if function is not None:
            took[function, made.shape] -= 1
            if took[function, made.shape] < 0:
                waiting.append(made)
        elif made.module in last and waiting:
            after.setdefault(last[made.module], [])[:0] = reversed(waiting)
            waiting = []
    for made in waiting:  # the first layers of a network have no gradient of their input
        place = next((number for number, own in enumerate(outputs) if own.shape == made.shape), 0)
        after.setdefault(place, []).insert(0, made)
    return [output for number, made in enumerate(outputs) for output in (made, *after.get(number, ()))]


def _first_backward(trace: Trace) -> Iterator[Allocation]:
    marks = list(trace.marks)
    first = next((i for i, mark in enumerate(marks) if mark.phase is Phase.BACKWARD), None)
    if first is None:
        return
    end = marks[first + 1].position if first + 1 < len(marks) else len(trace.events)
    for kind, index in trace.events[marks[first].position : end]:
        if kind == EventKind.ALLOCATE:
            yield trace.allocations[index]


def _first_forward(trace: Trace) -> Iterator[Allocation]:
    marks = list(trace.marks)
    backward = next((i for i, mark in enumerate(marks) if mark.phase is Phase.BACKWARD), None)
    if backward is None:
        backward = len(marks)
    forward = next((i for i in range(backward - 1, -1, -1) if marks[i].phase is Phase.FORWARD), None)
    if forward is None:
        return
    end = marks[backward].position if backward < len(marks) else len(trace.events)
    for kind, index in trace.events[marks[forward].position : end]:
        if kind == EventKind.ALLOCATE:
            yield trace.allocations[index]


def _operator(made: Allocation) -> str:
    return _short(made.operator)


def _short(operator: str) -> str:
    """`aten.mean.dim` is `mean`."""
    return operator.removeprefix("aten.").partition(".")[0]


def _forward_operator(operator: str) -> str:
    """Of an activation's gradient the activation, of any other operator itself."""
    name = _short(operator)
    return _BACKWARDS.get(name, name)


def _values(made: Allocation) -> int:
    return math.prod(made.shape)


def reserved_without_workspaces(trace: Trace, target: Target) -> int | None:
    """Peak reserved bytes on a device without end; None for a job without convolutions, where nothing changes."""
    if not has_convolutions(trace):
        return None
    facts = DeviceFacts(target.gpu.compute_capability, target.stack.version)
    timeline = simulate(
        trace, settings=target.settings, workspace=WorkspaceTable(facts), device_total=target.gpu.total_memory
    )
    return timeline.peak_reserved


_FLOAT = 4
_GIB = 2.0**30
_MOST_GIB = 64.0
"""Beyond it every job is out of memory, and a network would only be led astray."""

VECTOR_NAMES = (
    *(f"log {kind} layers" for kind in KINDS),
    "log batch size",
    "log parameters",
    "log activations",
    "log activations x batch",
    "GiB of parameters",
    "GiB of activations",
    "GiB of the largest layer",
    "activation sine",
    "activation cosine",
)
TOKEN_NAMES = (*KINDS, "another kind", "log activations", "log parameters", "log activations x batch")


def feature_vector(features: LayerFeatures) -> tuple[float, ...]:
    counts = features.counts
    return (
        *(math.log2(1 + counts.get(kind, 0)) for kind in KINDS),
        math.log2(1 + features.batch_size),
        math.log2(1 + features.parameters),
        math.log2(1 + features.activations),
        math.log2(1 + features.batch_activations),
        _gib(features.parameters),
        _gib(features.batch_activations),
        _gib(features.batch_size * max((layer.activations for layer in features.layers), default=0)),
        *activation_code(features.activation_function),
    )


def token_vectors(features: LayerFeatures, most: int | None = None) -> tuple[tuple[float, ...], ...]:
    """Every layer: its kind, what it puts out for a sample and for the batch, and its parameters; the first `most`."""
    return tuple(
        (
            *(float(layer.kind == kind) for kind in KINDS),
            float(layer.kind not in KINDS),
            math.log2(1 + layer.activations),
            math.log2(1 + layer.parameters),
            math.log2(1 + layer.activations * features.batch_size),
        )
        for layer in features.layers[:most]
    )


def _gib(values: int) -> float:
    return min(values * _FLOAT / _GIB, _MOST_GIB)
