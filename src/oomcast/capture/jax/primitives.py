"""What JAX's primitives are to XLA: which can be part of a fusion, which cost too much to be computed twice.

Matrix products and convolutions among them: which operands are put into another order first, and as which kernels
they run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ...trace import KernelCall, Operand, Phase
from ..tensors import dense_strides
from .graph import Form, Graph, Value

if TYPE_CHECKING:
    from .lower import Builder

__all__ = [
    "ALIASES",
    "CHEAP",
    "EXPENSIVE",
    "FUSIBLE",
    "KNOWN_OPAQUE",
    "MOVES",
    "REDUCTIONS",
    "TREE_WINDOW",
    "lower_convolution",
    "lower_dot",
    "simplify",
]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


CHEAP = _names(
    "abs add add_any and bitcast_convert_type ceil clamp clz complex conj convert_element_type copy copy_p "
    "cos eq floor ge gt imag integer_pow is_finite le lt max min mul ne neg nextafter not or population_count "
    "real reduce_precision round select_n shift_left shift_right_arithmetic shift_right_logical sign sin "
    "square stop_gradient sub tan xor"
)
"""Elementwise, and cheap to compute once more."""

EXPENSIVE = _names(
    "acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt cosh digamma div erf erf_inv erfc exp "
    "exp2 expm1 igamma igammac lgamma log log1p logistic pow regularized_incomplete_beta rem rsqrt sinh sqrt "
    "tanh zeta"
)
"""Elementwise; a fusion takes them in only if they are needed nowhere else."""

REDUCTIONS = _names("reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor")

ALIASES = _names("reshape squeeze expand_dims sharding_constraint random_wrap random_unwrap")
"""The same bytes under another shape."""

MOVES = {
    "slice": "slice",
    "dynamic_slice": "dynamic_slice",
    "dynamic_update_slice": "dynamic_update_slice",
    "gather": "gather",
    "scatter": "scatter",
    "scatter-add": "scatter",
    "scatter_add": "scatter",
    "scatter-mul": "scatter",
    "scatter_mul": "scatter",
    "scatter-min": "scatter",
    "scatter_min": "scatter",
    "scatter-max": "scatter",
    "scatter_max": "scatter",
    "concatenate": "concatenate",
    "pad": "pad",
    "rev": "reverse",
    "reduce_window": "reduce_window",
    "reduce_window_sum": "reduce_window",
    "reduce_window_max": "reduce_window",
    "reduce_window_min": "reduce_window",
    "cumsum": "reduce_window",
    "cumprod": "reduce_window",
    "cummax": "reduce_window",
    "cummin": "reduce_window",
    "cumlogsumexp": "reduce_window",
    "argmax": "argmax",
    "argmin": "argmax",
}
"""Primitive → instruction."""

FUSIBLE = _names(
    "broadcast concatenate dynamic_slice dynamic_update_slice gather iota pad reduce reshape reverse slice transpose"
)
"""With the elementwise ones: what can be part of a loop fusion."""

KNOWN_OPAQUE = _names(
    "sort top_k fft cholesky triangular_solve lu qr eigh svd rng_bit_generator rng_uniform random_seed "
    "random_split random_fold_in threefry2x32 custom_call reduce approx_top_k "
    "copy_start copy_done select_and_gather_add create_token psum"
)
"""Whose outputs are all of the memory that they are known to take."""

TREE_WINDOW = 32
"""Extent from which XLA's CPU compiler splits a reduction."""


# -------- Rewritings of XLA's algebraic simplifier that decide what lies in memory


def simplify(graph: Graph) -> Graph:
    """In place: what is added to zeros at some places, and then to a whole, is added to the whole at once."""
    readers = Counter(value[0] for node in graph.nodes for value in node.inputs)
    readers.update(value[0] for value in graph.results)
    for node in graph.nodes:
        if node.op not in ("add", "add_any"):
            continue
        for scattered, whole in (node.inputs, node.inputs[::-1]):
            made = graph.nodes[scattered[0]]
            if made.op == "scatter" and readers[scattered[0]] == 1 and _is_zero(graph, made.inputs[0]):
                node.op, node.inputs, node.updates = "scatter", (whole, *made.inputs[1:]), made.updates
                break
    return graph


def _is_zero(graph: Graph, value: Value) -> bool:
    node = graph.nodes[value[0]]
    if node.op in ("broadcast", "reshape", "convert_element_type"):
        return _is_zero(graph, node.inputs[0])
    return node.op == "constant" and node.detail in ("0", "0.0")


def lower_dot(builder: Builder, inputs: list[Value], form: Form, dimensions: Any) -> Value:
    """A product wants its batch dimensions first and each other kind in one block; else a transposed copy is made."""
    (contracting, batch) = dimensions
    operands = [
        _in_blocks(builder, value, tuple(contracting[side]), tuple(batch[side])) for side, value in enumerate(inputs)
    ]
    return builder.make("dot", operands, form, detail=str(dimensions), expensive=True)


def _in_blocks(builder: Builder, value: Value, contracting: tuple[int, ...], batch: tuple[int, ...]) -> Value:
    shape = builder.graph.form(value).shape
    free = tuple(axis for axis in range(len(shape)) if axis not in contracting and axis not in batch)

    def in_order(order: tuple[int, ...]) -> bool:
        real = [axis for axis in order if shape[axis] != 1]
        return real == sorted(real)

    if in_order((*batch, *free, *contracting)) or in_order((*batch, *contracting, *free)):
        return value
    return builder.transpose(value, (*batch, *free, *contracting))


def lower_convolution(builder: Builder, inputs: list[Value], form: Form, parameters: Any) -> Value:
    """On a CPU, operands are put into channels-last order first; on a GPU, cuDNN takes any order."""
    numbers = parameters["dimension_numbers"]
    detail = tuple((key, str(value)) for key, value in sorted(parameters.items()) if key != "sharding")
    if builder.on_gpu:
        result = builder.make("convolution", inputs, form, detail=detail, expensive=True)
        node = builder.graph.nodes[result[0]]
        node.kernel = _kernel(builder, inputs, form, parameters, node.place.phase)
        return result
    image, output = _channels_last(numbers.lhs_spec), _channels_last(numbers.out_spec)
    # A kernel's specification names the outputs first, then the inputs: its order is the window, inputs, outputs.
    kernel = (*numbers.rhs_spec[2:], numbers.rhs_spec[1], numbers.rhs_spec[0])
    operands = (builder.transpose(inputs[0], image), builder.transpose(inputs[1], kernel))
    shape = tuple(form.shape[axis] for axis in output)
    result = builder.make("convolution", operands, form._replace(shape=shape), detail=detail, expensive=True)
    back = tuple(output.index(axis) for axis in range(len(output)))
    return builder.transpose(result, back)


def _channels_last(spec: tuple[int, ...]) -> tuple[int, ...]:
    return (spec[0], *spec[2:], spec[1])


def _kernel(builder: Builder, inputs: list[Value], form: Form, parameters: Any, phase: Phase) -> KernelCall:
    """As cuDNN has it: image, filter, output, whichever of them is computed."""
    numbers = parameters["dimension_numbers"]
    left, right = (builder.graph.form(value) for value in inputs)
    lhs = _permuted(left, numbers.lhs_spec)
    rhs = _permuted(right, numbers.rhs_spec)
    out = _permuted(form, numbers.out_spec)
    lows = tuple(pair[0] for pair in parameters["padding"])
    if phase is not Phase.BACKWARD:
        kind, tensors, stride, padding = "conv_fprop", (lhs, rhs, out), parameters["window_strides"], lows
    elif numbers.lhs_spec[1] == 0:  # it sums over the batch
        image, gradient = _swapped(lhs), _swapped(rhs)
        kind, tensors = "conv_wgrad", (image, _swapped(out), gradient)
        stride, padding = parameters["rhs_dilation"], lows
    else:
        kind, tensors, stride = "conv_dgrad", (out, _swapped(rhs), lhs), parameters["lhs_dilation"]
        padding = tuple(extent - 1 - low for extent, low in zip(rhs[2:], lows, strict=True))
    dilation = (1,) * len(lows) if kind == "conv_wgrad" else tuple(parameters["rhs_dilation"])
    groups = max(parameters["feature_group_count"], parameters["batch_group_count"])
    if kind == "conv_wgrad" and groups > 1:
        tensors = (tensors[0], (tensors[2][1], tensors[0][1] // groups, *tensors[1][2:]), tensors[2])
    attributes = (
        ("stride", tuple(stride)),
        ("padding", tuple(max(low, 0) for low in padding)),
        ("dilation", dilation),
        ("groups", groups),
    )
    # Channels last: XLA's choice for cards with tensor cores, and JAX's own usual order.
    operands = (Operand(shape, dense_strides(shape, channels_last=True), form.dtype) for shape in tensors)
    return KernelCall(kind, tuple(operands), attributes)


def _permuted(form: Form, spec: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(form.shape[axis] for axis in spec)


def _swapped(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[1], shape[0], *shape[2:])
