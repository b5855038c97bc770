"""What ONNX operators do with memory: which hand their input on, which write over it, what their gradients read."""

from __future__ import annotations

from .read import Node

__all__ = ["IN_PLACE", "IN_PLACE_ON_GPU", "VIEWS", "needed_by_gradient", "passes_gradient"]

VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""The same bytes under another shape."""

IN_PLACE = frozenset(
    {"Relu", "LeakyRelu", "Elu", "Selu", "Sigmoid", "Tanh", "Clip", "Exp", "Log", "Sqrt", "Abs", "Neg", "Reciprocal"}
    | {"Ceil", "Floor", "Softplus", "Softsign", "ThresholdedRelu", "HardSigmoid", "Not"}
)
"""They write over an input that nobody else needs."""

IN_PLACE_ON_GPU = frozenset(
    {"Add", "Sub", "Mul", "Div", "Erf", "Gelu", "HardSwish", "Pow", "Softmax", "Sum", "BatchNormalization"}
)
"""The same, only in kernels for CUDA."""

_INPUTS: dict[str, tuple[int, ...]] = {
    "Conv": (0, 1),
    "ConvTranspose": (0, 1),
    "Gemm": (0, 1),
    "MatMul": (0, 1),
    "Mul": (0, 1),
    "Div": (0, 1),
    "Pow": (0, 1),
    "BatchNormalization": (0, 1),
    "InstanceNormalization": (0, 1),
    "LayerNormalization": (0, 1),
    "GroupNormalization": (0, 1),
    "Gather": (1,),
    "GatherElements": (1,),
    "GatherND": (1,),
    "Where": (0,),
    "Erf": (0,),
    "Gelu": (0,),
    "HardSwish": (0,),
    "Log": (0,),
    "Abs": (0,),
    "Clip": (0,),
    "LeakyRelu": (0,),
    "Softplus": (0,),
    "LSTM": (0, 1, 2),
    "GRU": (0, 1, 2),
    "RNN": (0, 1, 2),
    "Einsum": (0, 1),
    "Max": (0, 1),
    "Min": (0, 1),
}
"""Operator → the inputs that its gradient reads."""

_OUTPUTS: dict[str, tuple[int, ...]] = {
    "Relu": (0,),
    "Sigmoid": (0,),
    "Tanh": (0,),
    "Exp": (0,),
    "Sqrt": (0,),
    "Reciprocal": (0,),
    "Softmax": (0,),
    "LogSoftmax": (0,),
    "Elu": (0,),
    "Selu": (0,),
    "Dropout": (1,),
    "MaxPool": (1,),  # where the largest ones were
    "LSTM": (0, 1, 2),
    "GRU": (0, 1),
    "RNN": (0, 1),
    "Max": (0,),
    "Min": (0,),
}
"""Operator → the outputs that its gradient reads."""

_NOTHING = frozenset(
    {
        "Add",
        "Sub",
        "Sum",
        "Neg",
        "Identity",
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Transpose",
        "Concat",
        "Split",
    }
    | {
        "Slice",
        "Pad",
        "AveragePool",
        "GlobalAveragePool",
        "ReduceMean",
        "ReduceSum",
        "Expand",
        "Cast",
        "Tile",
        "Resize",
    }
    | {"Upsample", "DepthToSpace", "SpaceToDepth", "Mean"}
)
"""Their gradients read only the gradient of the output."""

_NO_GRADIENT = frozenset(
    {"Shape", "Constant", "ConstantOfShape", "ArgMax", "ArgMin", "Equal", "Greater", "Less", "GreaterOrEqual", "Not"}
    | {"LessOrEqual", "And", "Or", "NonZero", "Range", "OneHot", "Floor", "Ceil", "Round", "Sign", "Size", "TopK"}
)


def needed_by_gradient(node: Node) -> tuple[set[str], bool]:
    """The values that a node's gradient reads, and whether that is known; what is not known reads everything."""
    if node.type in _NOTHING or node.type in _NO_GRADIENT:
        return set(), True
    if node.type not in _INPUTS and node.type not in _OUTPUTS:
        return {name for name in (*node.inputs, *node.outputs) if name}, False
    found = {node.inputs[place] for place in _INPUTS.get(node.type, ()) if place < len(node.inputs)}
    found |= {node.outputs[place] for place in _OUTPUTS.get(node.type, ()) if place < len(node.outputs)}
    return found - {""}, True


def passes_gradient(node: Node) -> bool:
    return node.type not in _NO_GRADIENT
