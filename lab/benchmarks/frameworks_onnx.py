"""ONNX's part of `bench frameworks`: the models as ONNX graphs, and what ONNX Runtime takes for one run of them.

`python -m lab.benchmarks.frameworks_onnx MODEL BATCH` prints one line of JSON. Weights are zeros: only sizes matter.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

VOCABULARY = 10_000


class Builder:
    """A graph in the making; values are known by name and shape, the batch stands first."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: list[Any] = []
        self._count = 0

    def input(self, *sample: int, kind: str = "FLOAT") -> str:
        from onnx import TensorProto, helper

        name = f"input{len(self.inputs)}"
        shape = [self.batch_size, *sample]
        self.inputs.append(helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape))
        return name

    def weight(self, *shape: int) -> str:
        import numpy
        from onnx import numpy_helper

        self._count += 1
        name = f"weight{self._count}"
        self.weights.append(numpy_helper.from_array(numpy.zeros(shape, "float32"), name))
        return name

    def whole(self, *values: int) -> str:
        """A constant list of whole numbers."""
        import numpy
        from onnx import numpy_helper

        self._count += 1
        name = f"numbers{self._count}"
        self.weights.append(numpy_helper.from_array(numpy.array(values, "int64"), name))
        return name

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        from onnx import helper

        self._count += 1
        names = [f"{kind.lower()}{self._count}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def conv(
        self, x: str, into: int, out: int, window: Any = 3, stride: int = 1, group: int = 1, pad: Any = None
    ) -> str:
        high, wide = (window, window) if isinstance(window, int) else window
        pads = (high // 2, wide // 2) if pad is None else pad
        filters = self.weight(out, into // group, high, wide)
        return str(self.add("Conv", x, filters, strides=[stride] * 2, pads=[*pads, *pads], group=group))

    def norm(self, x: str, width: int) -> str:
        return str(self.add("BatchNormalization", x, *(self.weight(width) for _ in range(4))))

    def unit(
        self, x: str, into: int, out: int, window: Any = 3, stride: int = 1, group: int = 1, pad: Any = None
    ) -> str:
        return str(self.add("Relu", self.norm(self.conv(x, into, out, window, stride, group, pad), out)))

    def pool(self, kind: str, x: str, window: int = 2, stride: int = 2, pad: int = 0) -> str:
        return str(self.add(kind, x, kernel_shape=[window] * 2, strides=[stride] * 2, pads=[pad] * 4))

    def dense(self, x: str, into: int, out: int) -> str:
        return str(self.add("Add", self.add("MatMul", x, self.weight(into, out)), self.weight(out)))

    def head(self, x: str, into: int, classes: int = 1000) -> str:
        return self.dense(str(self.add("Flatten", self.add("GlobalAveragePool", x))), into, classes)

    def model(self, output: str) -> Any:
        from onnx import TensorProto, helper

        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "model", self.inputs, [result], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def vgg16(b: Builder) -> str:
    x, into = b.input(3, 224, 224), 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x, into = str(b.add("Relu", b.conv(x, into, width))), width
        x = b.pool("MaxPool", x)
    x = str(b.add("Flatten", x))
    x = str(b.add("Relu", b.dense(x, 512 * 49, 4096)))
    return b.dense(str(b.add("Relu", b.dense(x, 4096, 4096))), 4096, 1000)


def resnet50(b: Builder) -> str:
    x = b.pool("MaxPool", b.unit(b.input(3, 224, 224), 3, 64, 7, 2), 3, 2, 1)
    into = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for number in range(depth):
            stride = 2 if stage and not number else 1
            y = b.unit(b.unit(x, into, width, 1), width, width, 3, stride)
            y = b.norm(b.conv(y, width, 4 * width, 1), 4 * width)
            if into != 4 * width or stride > 1:
                x = b.norm(b.conv(x, into, 4 * width, 1, stride), 4 * width)
            x, into = str(b.add("Relu", b.add("Add", x, y))), 4 * width
    return b.head(x, into)


def inception_v3(b: Builder) -> str:
    def join(*parts: str) -> str:
        return str(b.add("Concat", *parts, axis=1))

    def even(x: str) -> str:
        return b.pool("AveragePool", x, 3, 1, 1)

    def down(x: str) -> str:
        return b.pool("MaxPool", x, 3, 2)

    none = (0, 0)
    x = b.unit(b.unit(b.unit(b.input(3, 299, 299), 3, 32, 3, 2, pad=none), 32, 32, 3, pad=none), 32, 64)
    x = down(b.unit(b.unit(down(x), 64, 80, 1), 80, 192, 3, pad=none))
    into = 192
    for width in (32, 64, 64):
        wide = b.unit(b.unit(x, into, 48, 1), 48, 64, 5)
        deep = b.unit(b.unit(b.unit(x, into, 64, 1), 64, 96), 96, 96)
        x = join(b.unit(x, into, 64, 1), wide, deep, b.unit(even(x), into, width, 1))
        into = 64 + 64 + 96 + width
    deep = b.unit(b.unit(b.unit(x, into, 64, 1), 64, 96), 96, 96, 3, 2, pad=none)
    x, into = join(b.unit(x, into, 384, 3, 2, pad=none), deep, down(x)), into + 480
    for width in (128, 160, 160, 192):
        wide = b.unit(b.unit(b.unit(x, into, width, 1), width, width, (1, 7)), width, 192, (7, 1))
        deep = b.unit(b.unit(b.unit(x, into, width, 1), width, width, (7, 1)), width, width, (1, 7))
        deep = b.unit(b.unit(deep, width, width, (7, 1)), width, 192, (1, 7))
        x, into = join(b.unit(x, into, 192, 1), wide, deep, b.unit(even(x), into, 192, 1)), 768
    deep = b.unit(b.unit(b.unit(x, into, 192, 1), 192, 192, (1, 7)), 192, 192, (7, 1))
    deep = b.unit(deep, 192, 192, 3, 2, pad=none)
    x = join(b.unit(b.unit(x, into, 192, 1), 192, 320, 3, 2, pad=none), deep, down(x))
    into = 1280
    for _ in range(2):
        wide = b.unit(x, into, 384, 1)
        wide = join(b.unit(wide, 384, 384, (1, 3)), b.unit(wide, 384, 384, (3, 1)))
        deep = b.unit(b.unit(x, into, 448, 1), 448, 384)
        deep = join(b.unit(deep, 384, 384, (1, 3)), b.unit(deep, 384, 384, (3, 1)))
        x, into = join(b.unit(x, into, 320, 1), wide, deep, b.unit(even(x), into, 192, 1)), 2048
    return b.head(x, into)


def mobilenet_v2(b: Builder) -> str:
    x, into = b.unit(b.input(3, 224, 224), 3, 32, 3, 2), 32
    plan = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for factor, width, count, first in plan:
        for number in range(count):
            wide, stride = factor * into, first if number == 0 else 1
            y = b.unit(x, into, wide, 1) if factor > 1 else x
            y = b.unit(y, wide, wide, 3, stride, wide)
            y = b.norm(b.conv(y, wide, width, 1), width)
            x, into = (str(b.add("Add", x, y)) if into == width and stride == 1 else y), width
    return b.head(b.unit(x, into, 1280, 1), 1280)


def unet(b: Builder) -> str:
    def block(x: str, into: int, width: int) -> str:
        return b.unit(b.unit(x, into, width), width, width)

    x, into, skips = b.input(3, 128, 128), 3, []
    for width in (32, 64, 128):
        x, into = block(x, into, width), width
        skips.append(x)
        x = b.pool("MaxPool", x)
    x, into = block(x, into, 256), 256
    for width, skip in zip((128, 64, 32), reversed(skips), strict=True):
        up = b.add("ConvTranspose", x, b.weight(into, width, 2, 2), strides=[2, 2])
        x, into = block(str(b.add("Concat", up, skip, axis=1)), 2 * width, width), width
    return b.conv(x, into, 4, 1)


def mlp(b: Builder) -> str:
    x, into = b.input(784), 784
    for _ in range(2):
        x, into = str(b.add("Relu", b.dense(x, into, 2048))), 2048
    return b.dense(x, into, 10)


def lenet(b: Builder) -> str:
    x, into = b.input(3, 32, 32), 3
    for width in (32, 64):
        x, into = b.pool("MaxPool", str(b.add("Relu", b.conv(x, into, width, 5)))), width
    return b.dense(str(b.add("Relu", b.dense(str(b.add("Flatten", x)), 4096, 1024))), 1024, 10)


def lstm_lm(b: Builder, units: int = 512) -> str:
    x = str(b.add("Transpose", b.add("Gather", b.weight(VOCABULARY, units), b.input(64, kind="INT64")), perm=[1, 0, 2]))
    for _ in range(2):
        weights = b.weight(1, 4 * units, units), b.weight(1, 4 * units, units), b.weight(1, 8 * units)
        x = str(b.add("Squeeze", b.add("LSTM", x, *weights, hidden_size=units), b.whole(1)))
    return b.dense(x, units, VOCABULARY)


def gru_classifier(b: Builder, units: int = 256) -> str:
    x, into = str(b.add("Transpose", b.input(64, 64), perm=[1, 0, 2])), 64
    for _ in range(2):
        weights = b.weight(1, 3 * units, into), b.weight(1, 3 * units, units), b.weight(1, 6 * units)
        x, into = str(b.add("Squeeze", b.add("GRU", x, *weights, hidden_size=units), b.whole(1))), units
    return b.dense(str(b.add("ReduceMean", x, axes=[0], keepdims=0)), units, 100)


def separable_cnn(b: Builder) -> str:
    x, into = b.input(3, 96, 96), 3
    for width in (64, 128, 256):
        x = b.norm(b.conv(b.conv(x, into, into, 3, 2, into), into, width, 1), width)
        x, into = str(b.add("Mul", x, b.add("Sigmoid", x))), width
    return b.head(x, into)


def transformer(b: Builder) -> str:
    return _encoder(b, 256, 4, 4, 128, VOCABULARY)


def bert_base(b: Builder) -> str:
    return _encoder(b, 768, 12, 12, 64, 30_522)


def _encoder(b: Builder, width: int, heads: int, depth: int, length: int, words: int) -> str:
    def split(x: str, order: list[int]) -> str:
        shape = b.whole(0, length, heads, width // heads)
        return str(b.add("Transpose", b.add("Reshape", x, shape), perm=order))

    def norm(x: str) -> str:
        return str(b.add("LayerNormalization", x, b.weight(width), b.weight(width)))

    x = str(b.add("Gather", b.weight(words, width), b.input(length, kind="INT64")))
    scale = b.weight(1)
    for _ in range(depth):
        query = split(b.dense(x, width, width), [0, 2, 1, 3])
        key = split(b.dense(x, width, width), [0, 2, 3, 1])
        value = split(b.dense(x, width, width), [0, 2, 1, 3])
        weights = b.add("Softmax", b.add("Mul", b.add("MatMul", query, key), scale), axis=-1)
        mixed = b.add("Transpose", b.add("MatMul", weights, value), perm=[0, 2, 1, 3])
        mixed = str(b.add("Reshape", mixed, b.whole(0, length, width)))
        x = norm(str(b.add("Add", x, b.dense(mixed, width, width))))
        wide = b.dense(x, width, 4 * width)
        wide = str(b.add("Mul", wide, b.add("Sigmoid", wide)))
        x = norm(str(b.add("Add", x, b.dense(wide, 4 * width, width))))
    return b.dense(x, width, words)


MODELS: dict[str, tuple[Callable[[Builder], str], tuple[int, ...]]] = {
    "vgg16": (vgg16, (1, 4, 8)),
    "resnet50": (resnet50, (1, 4, 16)),
    "inception-v3": (inception_v3, (1, 4, 8)),
    "lstm-lm": (lstm_lm, (4, 16, 64)),
    "transformer": (transformer, (2, 8, 32)),
    "bert-base": (bert_base, (1, 4, 8)),
    "mobilenet-v2": (mobilenet_v2, (1, 4, 16)),
    "unet": (unet, (1, 4, 8)),
    "mlp": (mlp, (32, 256, 4096)),
    "lenet": (lenet, (16, 64, 256)),
    "gru-classifier": (gru_classifier, (8, 32, 128)),
    "separable-cnn": (separable_cnn, (4, 16, 64)),
}
"""Name → how it is built, and the batch sizes that a small machine runs in some seconds."""


def build(name: str, batch_size: int) -> Any:
    builder = Builder(batch_size)
    return builder.model(MODELS[name][0](builder))


def measure(name: str, batch_size: int) -> dict[str, Any]:
    """The run's bytes, by oomcast and by ONNX Runtime."""
    from ..checks.onnx_check import figures_of_run

    return {"model": name, "batch_size": batch_size, **figures_of_run(build(name, batch_size), batch_size)}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
