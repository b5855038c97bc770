"""Models and jobs for ONNX: name of a file → its text."""

# ruff: noqa: E501
# The text of a job decides its trace: it is not to be reformatted.

from __future__ import annotations

__all__ = ["FILES"]

FILES: dict[str, str] = {}

FILES["make_onnx.py"] = """
import sys
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(sys.argv[1])
node = helper.make_node


def weight(name, *shape):
    return numpy_helper.from_array(numpy.zeros(shape, "float32"), name)


def whole(name, *values):
    return numpy_helper.from_array(numpy.array(values, "int64"), name)


def save(name, nodes, weights, shape, kind=TensorProto.FLOAT):
    x = helper.make_tensor_value_info("x", kind, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "model", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), FOLDER / name)


mlp = [node("MatMul", ["x", "w0"], ["a"]), node("Relu", ["a"], ["b"]), node("MatMul", ["b", "w1"], ["y"])]
mlp_weights = [weight("w0", 64, 512), weight("w1", 512, 10)]
save("mlp.onnx", mlp, mlp_weights, ["batch", 64])
save("mlp_open.onnx", mlp, mlp_weights, ["batch", "length"])
save("mlp_fixed.onnx", mlp, mlp_weights, [1, 64])
save("no_weight.onnx", mlp, mlp_weights[1:], ["batch", 64])

norm = [weight(n, 16) for n in ("scale", "bias", "mean", "var")]
save("cnn.onnx", [
    node("Conv", ["x", "k0"], ["a"], pads=[1, 1, 1, 1]),
    node("BatchNormalization", ["a", "scale", "bias", "mean", "var"], ["b"]),
    node("Relu", ["b"], ["c"]),
    node("Conv", ["c", "k1"], ["d"], pads=[1, 1, 1, 1], group=16),
    node("Add", ["c", "d"], ["e"]),
    node("MaxPool", ["e"], ["f"], kernel_shape=[2, 2], strides=[2, 2]),
    node("ConvTranspose", ["f", "k2"], ["g"], strides=[2, 2]),
    node("GlobalAveragePool", ["g"], ["h"]),
    node("Flatten", ["h"], ["i"]),
    node("Gemm", ["i", "w", "v"], ["y"]),
], [*norm, weight("k0", 16, 3, 3, 3), weight("k1", 16, 1, 3, 3), weight("k2", 16, 8, 2, 2), weight("w", 8, 10), weight("v", 10)],
    ["batch", 3, 64, 64])

save("attention.onnx", [
    node("Gather", ["words", "x"], ["a"]),
    node("MatMul", ["a", "wq"], ["q"]), node("MatMul", ["a", "wk"], ["k"]), node("MatMul", ["a", "wv"], ["v"]),
    node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
    node("MatMul", ["q", "kt"], ["s"]), node("Softmax", ["s"], ["p"], axis=-1),
    node("MatMul", ["p", "v"], ["o"]), node("Add", ["a", "o"], ["r"]),
    node("LayerNormalization", ["r", "g", "b"], ["n"]),
    node("MatMul", ["n", "wo"], ["y"]),
], [weight("words", 1000, 64), *(weight(n, 64, 64) for n in ("wq", "wk", "wv")), weight("g", 64), weight("b", 64),
    weight("wo", 64, 1000)], ["batch", "length"], TensorProto.INT64)

save("lstm.onnx", [
    node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
    node("LSTM", ["t", "w", "r", "b"], ["h", "last"], hidden_size=48),
    node("Squeeze", ["last", "axes"], ["s"]),
    node("MatMul", ["s", "wo"], ["y"]),
], [weight("w", 1, 192, 32), weight("r", 1, 192, 48), weight("b", 1, 384), weight("wo", 48, 5), whole("axes", 0)],
    ["batch", 20, 32])

save("determinant.onnx", [node("MatMul", ["x", "w"], ["a"]), node("Det", ["a"], ["y"])], [weight("w", 32, 32)], ["batch", 32, 32])
save("nonzero.onnx", [node("NonZero", ["x"], ["a"]), node("Cast", ["a"], ["y"], to=TensorProto.FLOAT)], [], ["batch", 64])
"""
FILES["onnx_job.py"] = """
import os

import numpy
import onnx

def model():
    return onnx.load(os.path.join(os.path.dirname(__file__), "mlp.onnx"))

def batch(batch_size):
    return [numpy.zeros((batch_size, 64), "float32")]
"""
FILES["damaged.onnx"] = "this is not a model"
