"""A person's own job, as a campaign takes it: a small network for images under Keras, on TensorFlow."""

import keras
import numpy as np
from keras import layers

CLASSES = 10


def model(edge: int = 80, filters: int = 48, blocks: int = 4) -> keras.Model:
    inputs = keras.Input((edge, edge, 3))
    x = layers.Conv2D(filters, 3, padding="same")(inputs)
    for _ in range(blocks):
        y = layers.BatchNormalization()(x)
        y = layers.ReLU()(y)
        y = layers.Conv2D(filters, 3, padding="same")(y)
        x = layers.Add()([x, y])
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))


def batch(batch_size: int, edge: int = 80) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.standard_normal((batch_size, edge, edge, 3), dtype="float32"), random.integers(
        CLASSES, size=batch_size
    )
