"""TensorFlow's part of `bench frameworks`: the models in Keras, and what one step of them truly allocates on a CPU.

`python -m lab.benchmarks.frameworks_tensorflow MODEL BATCH` prints one line of JSON. TensorFlow's CPU allocator can be
made the same best-fit allocator that a GPU has (`TF_CPU_ALLOCATOR_USE_BFC`), and its profiler writes down every
allocation with the bytes that were asked for: their running sum, with what was alive before, is the live-bytes figure.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from .frameworks_forms import FORMS, Example, Form
from .further_keras import MODELS as FURTHER

VOCABULARY = 10_000


def vgg16() -> Any:
    return _image_classifier("VGG16", 224)


def resnet50() -> Any:
    return _image_classifier("ResNet50", 224)


def inception_v3() -> Any:
    return _image_classifier("InceptionV3", 299)


def mobilenet_v2() -> Any:
    return _image_classifier("MobileNetV2", 224)


def mlp() -> Any:
    from keras import Sequential, layers

    hidden = [layers.Dense(2048, activation="relu"), layers.Dropout(0.1), layers.Dense(2048, activation="relu")]
    return Sequential([layers.Input((784,)), *hidden, layers.Dense(10, activation="softmax")])


def lstm_lm(units: int = 512, length: int = 64) -> Any:
    from keras import Sequential, layers

    return Sequential(
        [
            layers.Input((length,), dtype="int32"),
            layers.Embedding(VOCABULARY, units),
            layers.LSTM(units, return_sequences=True),
            layers.LSTM(units, return_sequences=True),
            layers.Dense(VOCABULARY, activation="softmax"),
        ]
    )


def transformer(width: int = 256, heads: int = 4, depth: int = 4, length: int = 128) -> Any:
    return _encoder(width, heads, depth, length, VOCABULARY)


def bert_base(length: int = 64) -> Any:
    return _encoder(768, 12, 12, length, 30_522)


def unet(size: int = 128, classes: int = 4) -> Any:
    from keras import Input, Model, layers

    def block(x: Any, width: int) -> Any:
        for _ in range(2):
            x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same")(x)))
        return x

    x = image = Input((size, size, 3))
    skips = []
    for width in (32, 64, 128):
        x = block(x, width)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = block(x, 256)
    for width, skip in zip((128, 64, 32), reversed(skips), strict=True):
        x = block(layers.Concatenate()([layers.Conv2DTranspose(width, 2, strides=2)(x), skip]), width)
    return Model(image, layers.Conv2D(classes, 1, activation="softmax")(x))


def lenet() -> Any:
    from keras import Sequential, layers

    convolutions = [
        layers.Conv2D(32, 5, padding="same", activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 5, padding="same", activation="relu"),
        layers.MaxPooling2D(),
    ]
    head = [layers.Flatten(), layers.Dense(1024, activation="relu"), layers.Dense(10, activation="softmax")]
    return Sequential([layers.Input((32, 32, 3)), *convolutions, *head])


def gru_classifier(units: int = 256, length: int = 64) -> Any:
    from keras import Sequential, layers

    return Sequential(
        [
            layers.Input((length, 64)),
            layers.GRU(units, return_sequences=True),
            layers.GRU(units),
            layers.Dense(100, activation="softmax"),
        ]
    )


def separable_cnn() -> Any:
    from keras import Sequential, layers

    blocks: list[Any] = []
    for width in (64, 128, 256):
        blocks += [layers.SeparableConv2D(width, 3, strides=2, padding="same"), layers.LayerNormalization()]
        blocks += [layers.Activation("gelu")]
    head = [layers.GlobalAveragePooling2D(), layers.Dense(1000, activation="softmax")]
    return Sequential([layers.Input((96, 96, 3)), *blocks, *head])


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


def measure(name: str, batch_size: int) -> dict[str, Any]:
    """The step's live bytes, by oomcast and by TensorFlow, in this process, which must be new."""
    os.environ.update(
        TF_CPP_MIN_LOG_LEVEL="3",
        KERAS_BACKEND="tensorflow",
        CUDA_VISIBLE_DEVICES="",
        TF_CPU_ALLOCATOR_USE_BFC="1",
    )
    import keras
    import numpy

    from ..checks.tensorflow_check import figures_of_step

    example = FURTHER[name] if name in FURTHER else _example(name)

    def compiled() -> Any:
        model = example.build()
        model.compile(optimizer=keras.optimizers.Adam(), loss=_loss(example.y), jit_compile=False)
        return model

    return {"model": name, "batch_size": batch_size, **figures_of_step(compiled, example.fed(numpy.zeros, batch_size))}


def _example(name: str) -> Example:
    sample, labels = FORMS[name]
    build, batches = MODELS[name]
    return Example(build, Form(sample, "int32" if sample == labels else "float32"), Form(labels, "int32"), batches)


def _loss(labels: Form) -> str:
    if labels.dtype == "int32":
        return "sparse_categorical_crossentropy"
    return "binary_crossentropy" if labels.shape == (1,) else "mean_squared_error"


def _image_classifier(name: str, size: int) -> Any:
    import keras

    return getattr(keras.applications, name)(weights=None)


def _encoder(width: int, heads: int, depth: int, length: int, words: int) -> Any:
    from keras import Input, Model, layers

    tokens = Input((length,), dtype="int32")
    x = layers.Embedding(words, width)(tokens)
    for _ in range(depth):
        attention = layers.MultiHeadAttention(heads, width // heads, dropout=0.1)(x, x)
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(attention))
        wide = layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x))
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(wide))
    return Model(tokens, layers.Dense(words, activation="softmax")(x))


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
