"""The case study of the TBEM paper (its figure 2): VGG16 mutated to other numbers of layers, everything else uniform.

Every convolution has the same parameters, so that the number of layers alone moves memory.
"""

import keras
import numpy as np
from keras import layers as kl

CLASSES = 10


def model(layers: int = 16, filters: int = 32, edge: int = 64) -> keras.Model:
    inputs = keras.Input((edge, edge, 3))
    x = inputs
    for _ in range(layers):
        x = kl.Conv2D(filters, 3, padding="same", activation="relu")(x)
    x = kl.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, kl.Dense(CLASSES, activation="softmax")(x))


def batch(batch_size: int, edge: int = 64) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    images = random.standard_normal((batch_size, edge, edge, 3), dtype="float32")
    return images, random.integers(CLASSES, size=batch_size)
