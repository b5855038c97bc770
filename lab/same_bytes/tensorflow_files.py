"""Jobs in TensorFlow and Keras: name of a file → its text."""

# ruff: noqa: E501
# The text of a job decides its trace: it is not to be reformatted.

from __future__ import annotations

__all__ = ["FILES"]

FILES: dict[str, str] = {}

_KERAS_BATCH = """
def batch(batch_size):
    return np.zeros((batch_size, 64), "float32"), np.zeros((batch_size,), "int32")
"""
FILES["keras_mlp.py"] = (
    """
import keras
import numpy as np

def model():
    layers = keras.layers
    return keras.Sequential([layers.Input((64,)), layers.Dense(512, activation="relu"), layers.Dropout(0.1),
                             layers.Dense(512, activation="gelu"), layers.Dense(10, activation="softmax")])
"""
    + _KERAS_BATCH
)
FILES["keras_cnn.py"] = """
import keras
import numpy as np

def model():
    layers = keras.layers
    x = start = layers.Input((64, 64, 3))
    for width in (16, 32, 64):
        y = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.SeparableConv2D(width, 3, padding="same")(y)
        x = layers.MaxPooling2D()(layers.Add()([y, layers.Conv2D(width, 1)(x)]))
    x = layers.Conv2DTranspose(16, 3, 2, padding="same", activation="swish")(x)
    return keras.Model(start, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))

def batch(batch_size):
    return np.zeros((batch_size, 64, 64, 3), "float32"), np.zeros((batch_size,), "int32")
"""
FILES["keras_compiled.py"] = """
import keras
import numpy as np

def model():
    layers = keras.layers
    net = keras.Sequential([layers.Input((32, 32, 1)), layers.Conv2D(8, 5, activation="relu"), layers.AveragePooling2D(2),
                            layers.Flatten(), layers.LayerNormalization(), layers.Dense(1)])
    net.compile(optimizer=keras.optimizers.Adadelta(), loss="mae", metrics=["mse"], jit_compile=False)
    return net

def batch(batch_size):
    return np.zeros((batch_size, 32, 32, 1), "float32"), np.zeros((batch_size, 1), "float32")
"""
FILES["keras_recurrent.py"] = """
import keras
import numpy as np

def model():
    layers = keras.layers
    return keras.Sequential([layers.Input((30,), dtype="int32"), layers.Embedding(2000, 64),
                             layers.Bidirectional(layers.LSTM(48, return_sequences=True)), layers.GRU(32),
                             layers.Dense(5)])

def batch(batch_size):
    return np.zeros((batch_size, 30), "int32"), np.zeros((batch_size,), "int32")

def optimizer(params):
    return keras.optimizers.SGD(0.1, momentum=0.9)
"""
FILES["keras_attention.py"] = """
import keras
import tensorflow as tf

def model():
    layers = keras.layers
    start = layers.Input((48,), dtype="int32")
    x = layers.Embedding(1000, 64)(start)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 16)(x, x, use_causal_mask=True))
        x = x + layers.Dense(64)(layers.Dense(256, activation="gelu")(x))
    return keras.Model(start, layers.Dense(1000)(x))

def batch(batch_size):
    return tf.TensorSpec((batch_size, 48), tf.int32), tf.TensorSpec((batch_size, 48), tf.int32)
"""
FILES["keras_subclassed.py"] = """
import keras
import tensorflow as tf

class Block(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.attention = keras.layers.MultiHeadAttention(4, 16)
        self.norm = keras.layers.LayerNormalization()
        self.wide, self.thin = keras.layers.Dense(256, activation="gelu"), keras.layers.Dense(64)

    def call(self, x):
        x = self.norm(x + self.attention(x, x, use_causal_mask=True))
        return x + self.thin(self.wide(x))

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.words = keras.layers.Embedding(1000, 64)
        self.blocks = [Block(), Block()]
        self.head = keras.layers.Dense(1000)

    def call(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

def model():
    return Net()

def batch(batch_size):
    return tf.TensorSpec((batch_size, 48), tf.int32), tf.TensorSpec((batch_size, 48), tf.int32)
"""
FILES["keras_own_loss.py"] = (
    """
import keras
import numpy as np
import tensorflow as tf

def model():
    return keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(256, activation="tanh"), keras.layers.Dense(64)])

def loss(model, batch):
    x, _ = batch
    y = model(x, training=True)
    return tf.reduce_mean(tf.square(tf.nn.softplus(y) - x)) + tf.add_n([tf.nn.l2_loss(v) for v in model.trainable_variables])
"""
    + _KERAS_BATCH
)
FILES["keras_open.py"] = FILES["keras_mlp.py"].replace(
    'np.zeros((batch_size, 64), "float32")', "keras.KerasTensor((None, 64))"
)
FILES["keras_raises.py"] = FILES["keras_mlp.py"].replace(
    "    layers = keras.layers\n", "    raise KeyError('weights')\n"
)
