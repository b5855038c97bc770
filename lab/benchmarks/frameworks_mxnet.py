"""MXNet's part of `bench frameworks`: the models in Gluon, and what three steps of them truly allocate on a CPU.

`python -m lab.benchmarks.frameworks_mxnet MODEL BATCH [ENGINE]` prints one line of JSON. The blocks are hybridized, as
most that are trained in earnest; ENGINE `imperative` leaves them as they are, `static` is
`hybridize(static_alloc=True)`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from .frameworks_forms import FORMS

VOCABULARY = 10_000
TOKENS = ("lstm-lm", "transformer", "bert-base")


def vgg16() -> Any:
    return _zoo("vgg16")


def resnet50() -> Any:
    return _zoo("resnet50_v1")


def inception_v3() -> Any:
    return _zoo("inceptionv3")


def mobilenet_v2() -> Any:
    return _zoo("mobilenetv2_1.0")


def mlp() -> Any:
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    net.add(nn.Dense(2048, activation="relu"), nn.Dropout(0.1), nn.Dense(2048, activation="relu"), nn.Dense(10))
    return net


def lenet() -> Any:
    from mxnet.gluon import nn

    net = nn.HybridSequential()
    for width in (32, 64):
        net.add(nn.Conv2D(width, 5, padding=2, activation="relu"), nn.MaxPool2D())
    net.add(nn.Flatten(), nn.Dense(1024, activation="relu"), nn.Dense(10))
    return net


def unet(classes: int = 4) -> Any:
    from mxnet.gluon import HybridBlock, nn

    def block(width: int) -> Any:
        part = nn.HybridSequential()
        for _ in range(2):
            part.add(nn.Conv2D(width, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"))
        return part

    class UNet(HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.down, self.up, self.joined = (nn.HybridSequential() for _ in range(3))
                for width in (32, 64, 128):
                    self.down.add(block(width))
                self.middle = block(256)
                for width in (128, 64, 32):
                    self.up.add(nn.Conv2DTranspose(width, 2, strides=2))
                    self.joined.add(block(width))
                self.last = nn.Conv2D(classes, 1)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            skips = []
            for part in self.down:
                x = part(x)
                skips.append(x)
                x = F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
            x = self.middle(x)
            for up, part, skip in zip(self.up, self.joined, reversed(skips), strict=True):
                x = part(F.concat(up(x), skip, dim=1))
            return self.last(x)

    return UNet()


def lstm_lm(units: int = 512) -> Any:
    from mxnet.gluon import nn, rnn

    net = nn.HybridSequential()
    net.add(nn.Embedding(VOCABULARY, units))
    net.add(rnn.LSTM(units, num_layers=2, layout="NTC", input_size=units))
    net.add(nn.Dense(VOCABULARY, flatten=False))
    return net


def gru_classifier(units: int = 256) -> Any:
    from mxnet.gluon import nn, rnn

    net = nn.HybridSequential()
    net.add(rnn.GRU(units, num_layers=2, layout="NTC", input_size=64))
    net.add(nn.HybridLambda(lambda F, x: F.mean(x, axis=1)), nn.Dense(100))
    return net


def separable_cnn() -> Any:
    from mxnet.gluon import nn

    net, into = nn.HybridSequential(), 3
    for width in (64, 128, 256):
        net.add(nn.Conv2D(into, 3, strides=2, padding=1, groups=into, in_channels=into), nn.Conv2D(width, 1))
        net.add(nn.BatchNorm(), nn.Swish())
        into = width
    net.add(nn.GlobalAvgPool2D(), nn.Dense(1000))
    return net


def transformer() -> Any:
    return _encoder(256, 4, 4, 128, VOCABULARY)


def bert_base() -> Any:
    return _encoder(768, 12, 12, 64, 30_522)


def _encoder(width: int, heads: int, depth: int, length: int, words: int) -> Any:
    from mxnet.gluon import HybridBlock, nn

    class Layer(HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.query, self.key, self.value, self.mix, self.narrow = (
                    nn.Dense(width, flatten=False) for _ in range(5)
                )
                self.wide = nn.Dense(4 * width, flatten=False)
                self.gelu = nn.GELU()
                self.dropout = nn.Dropout(0.1)
                self.first, self.second = nn.LayerNorm(), nn.LayerNorm()

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            def split(y: Any) -> Any:
                y = F.transpose(F.reshape(y, (0, 0, heads, -1)), (0, 2, 1, 3))
                return F.reshape(y, (-3, 0, 0))

            query, key, value = (split(part(x)) for part in (self.query, self.key, self.value))
            scores = F.batch_dot(query, key, transpose_b=True) * (width // heads) ** -0.5
            mixed = F.batch_dot(self.dropout(F.softmax(scores, axis=-1)), value)
            mixed = F.transpose(F.reshape(mixed, (-4, -1, heads, 0, 0)), (0, 2, 1, 3))
            x = self.first(x + self.dropout(self.mix(F.reshape(mixed, (0, 0, -3)))))
            return self.second(x + self.dropout(self.narrow(self.gelu(self.wide(x)))))

    net = nn.HybridSequential()
    net.add(nn.Embedding(words, width))
    for _ in range(depth):
        net.add(Layer())
    net.add(nn.Dense(words, flatten=False))
    return net


def _zoo(name: str) -> Any:
    from mxnet.gluon.model_zoo import vision

    return vision.get_model(name)


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "vgg16": (vgg16, (1, 2, 4)),
    "resnet50": (resnet50, (2, 4, 8)),
    "inception-v3": (inception_v3, (1, 2, 4)),
    "lstm-lm": (lstm_lm, (4, 16, 32)),
    "transformer": (transformer, (2, 8, 16)),
    "bert-base": (bert_base, (1, 2, 4)),
    "mobilenet-v2": (mobilenet_v2, (2, 4, 8)),
    "unet": (unet, (1, 2, 4)),
    "mlp": (mlp, (32, 256, 1024)),
    "lenet": (lenet, (16, 64, 256)),
    "gru-classifier": (gru_classifier, (8, 32, 128)),
    "separable-cnn": (separable_cnn, (4, 16, 64)),
}
"""Name → how it is built, and the batch sizes that a small machine runs in some seconds."""


def measure(name: str, batch_size: int, engine: str = "hybridized") -> dict[str, Any]:
    """The steps' live bytes, by oomcast and by MXNet, in this process, which must be new."""
    from ..checks.mxnet_check import ENVIRONMENT, figures_of_step

    os.environ.update(ENVIRONMENT)
    import numpy

    def build() -> Any:
        net = MODELS[name][0]()
        if engine != "imperative":
            net.hybridize(static_alloc=engine == "static")
        return net

    sample, labels = FORMS[name]
    if len(sample) == 3:
        sample = (sample[2], *sample[:2])  # MXNet has channels first
    x = numpy.zeros((batch_size, *sample), "int32" if name in TOKENS else "float32")
    y = numpy.zeros((batch_size, *labels), "float32")
    return {"model": name, "batch_size": batch_size, "engine": engine, **figures_of_step(build, (x, y))}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), *sys.argv[3:4])))
