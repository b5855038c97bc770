"""What learned estimators look at: layers counted in a Trace, and what the simulator found.

Both are pure functions of their argument. The layers are those that GPUMemNet's hooks on leaf modules list; sums, joins
and copies between them are none. In-place layers take no memory, leave no allocation, and are not seen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from ...trace import Allocation, Category, EventKind, Phase, Trace
from .._estimate import Estimate

__all__ = [
    "ACTIVATION_FUNCTIONS",
    "KINDS",
    "Layer",
    "LayerFeatures",
    "SimulatorFeatures",
    "activation_code",
    "layer_features",
    "layer_features_of_layers",
    "simulator_features",
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
_FUNCTIONS = {"_prelu_kernel": "prelu"}
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
    """Of one sample, all layers together."""
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
    """Reserved and not allocated."""
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
    """Among the layers, from 0 to 1; so are the next two."""
    normalizations: float
    dropouts: float
    depth: float
    """Layers."""

    def values(self) -> tuple[float, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))


def layer_features(trace: Trace) -> LayerFeatures:
    """Of the first forward pass that a backward pass follows."""
    batch_size = int(trace.workload.get("batch_size", 1))
    parameters = _parameters_by_module(trace)
    layers, functions = [], Counter[str]()
    used: set[str] = set()
    for made in _outputs(trace):
        name = _operator(made)
        kind = _LAYERS.get(name, made.operator)
        if kind == "activation":
            functions[_FUNCTIONS.get(name, name)] += 1
        own = 0 if made.module in used else parameters.get(made.module, 0)
        used.add(made.module)
        layers.append(Layer(kind, _values(made) // batch_size, own))
    return layer_features_of_layers(layers, functions, batch_size, sum(parameters.values()))


def layer_features_of_layers(
    layers: Sequence[Layer], functions: Mapping[str, int], batch_size: int, parameters: int
) -> LayerFeatures:
    """For data sets that list the layers themselves."""
    return LayerFeatures(
        layers=tuple(layers),
        batch_size=batch_size,
        parameters=parameters,
        activations=sum(layer.activations for layer in layers),
        activation_function=max(sorted(functions), key=lambda name: functions[name], default="identity"),
    )


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


def _parameters_by_module(trace: Trace) -> dict[str, int]:
    """A parameter's path is its module's with its own name behind."""
    found: Counter[str] = Counter()
    for made in trace.allocations:
        if made.category is Category.PARAMETER:
            found[made.module.rpartition(".")[0]] += made.nbytes // _ITEMSIZE.get(made.dtype, 4)
    return dict(found)


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
    """`aten.mean.dim` is `mean`."""
    return made.operator.removeprefix("aten.").partition(".")[0]


def _values(made: Allocation) -> int:
    return math.prod(made.shape)
