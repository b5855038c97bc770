"""More models in Keras for `bench frameworks --further`: as people use them, none of which a rule was looked at with.

Ten are of keras.applications, the others are after Keras' own examples, smaller where a small machine must train them.
"""

from __future__ import annotations

from typing import Any

from .frameworks_forms import Example, Form

__all__ = ["MODELS"]


def application(name: str, size: int = 224, **options: Any) -> Example:
    def build() -> Any:
        import keras

        return getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), **options)

    return Example(build, Form((size, size, 3)), Form((), "int32"), (1, 2, 4))


def _placed(x: Any) -> Any:
    """With a vector for each place added, as a layer of one's own does it."""
    import keras

    class Places(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.table = self.add_weight(shape=shape[1:], initializer="uniform")

        def call(self, x: Any) -> Any:
            return x + self.table

    return Places()(x)


def vision_transformer(size: int = 128, patch: int = 16, width: int = 192, depth: int = 8) -> Any:
    from keras import Input, Model, layers

    image = Input((size, size, 3))
    x = layers.Conv2D(width, patch, strides=patch)(image)
    x = _placed(layers.Reshape((-1, width))(x))
    for _ in range(depth):
        normed = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Add()([layers.MultiHeadAttention(4, width // 4, dropout=0.1)(normed, normed), x])
        wide = layers.Dense(2 * width, activation="gelu")(layers.LayerNormalization(epsilon=1e-6)(x))
        x = layers.Add()([layers.Dropout(0.1)(layers.Dense(width, activation="gelu")(layers.Dropout(0.1)(wide))), x])
    x = layers.Dropout(0.5)(layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(x)))
    return Model(image, layers.Dense(100, activation="softmax")(layers.Dense(1024, activation="gelu")(x)))


def causal_language_model(words: int = 8_000, length: int = 128, width: int = 256, depth: int = 6) -> Any:
    from keras import Input, Model, layers

    tokens = Input((length,), dtype="int32")
    x = _placed(layers.Embedding(words, width)(tokens))
    for _ in range(depth):
        normed = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(8, width // 8)(normed, normed, use_causal_mask=True)
        x = x + layers.Dense(width)(layers.Dense(4 * width, activation="relu")(layers.LayerNormalization()(x)))
    return Model(tokens, layers.Dense(words, activation="softmax")(layers.LayerNormalization()(x)))


def translator(words: int = 6_000, length: int = 40, width: int = 256, heads: int = 8) -> Any:
    from keras import Input, Model, layers

    source, target = Input((length,), dtype="int32"), Input((length,), dtype="int32")
    x = layers.Embedding(words, width)(source)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(heads, width)(x, x))
    encoded = layers.LayerNormalization()(x + layers.Dense(width)(layers.Dense(1024, activation="relu")(x)))
    y = layers.Embedding(words, width)(target)
    y = layers.LayerNormalization()(y + layers.MultiHeadAttention(heads, width)(y, y, use_causal_mask=True))
    y = layers.LayerNormalization()(y + layers.MultiHeadAttention(heads, width)(y, encoded))
    y = layers.LayerNormalization()(y + layers.Dense(width)(layers.Dense(1024, activation="relu")(y)))
    return Model([source, target], layers.Dense(words, activation="softmax")(layers.Dropout(0.5)(y)))


def bidirectional_lstm(words: int = 20_000, length: int = 200) -> Any:
    from keras import Sequential, layers

    recurrent = [
        layers.Bidirectional(layers.LSTM(64, return_sequences=True)),
        layers.Bidirectional(layers.LSTM(64)),
    ]
    head = layers.Dense(1, activation="sigmoid")
    return Sequential([layers.Input((length,), dtype="int32"), layers.Embedding(words, 128), *recurrent, head])


def text_cnn(words: int = 20_000, length: int = 400) -> Any:
    from keras import Input, Model, layers

    tokens = Input((length,), dtype="int32")
    x = layers.Dropout(0.5)(layers.Embedding(words, 128)(tokens))
    x = layers.Conv1D(128, 7, padding="valid", activation="relu", strides=3)(x)
    x = layers.Conv1D(128, 7, padding="valid", activation="relu", strides=3)(x)
    x = layers.Dense(128, activation="relu")(layers.GlobalMaxPooling1D()(x))
    return Model(tokens, layers.Dense(1, activation="sigmoid")(layers.Dropout(0.5)(x)))


def wavenet(length: int = 2048, width: int = 32) -> Any:
    from keras import Input, Model, layers

    wave = Input((length, 1))
    x = layers.Conv1D(width, 2, padding="causal")(wave)
    skips = []
    for spread in (1, 2, 4, 8, 16, 32, 64, 128):
        gate = layers.Conv1D(width, 2, padding="causal", dilation_rate=spread, activation="sigmoid")(x)
        value = layers.Conv1D(width, 2, padding="causal", dilation_rate=spread, activation="tanh")(x)
        skip = layers.Conv1D(width, 1)(layers.Multiply()([gate, value]))
        skips.append(skip)
        x = layers.Add()([x, skip])
    x = layers.Conv1D(128, 1, activation="relu")(layers.ReLU()(layers.Add()(skips)))
    return Model(wave, layers.Conv1D(256, 1, activation="softmax")(x))


def scan_classifier() -> Any:
    from keras import Input, Model, layers

    x = volume = Input((64, 64, 32, 1))
    for width in (32, 32, 64):
        x = layers.Conv3D(width, 3, activation="relu")(x)
        x = layers.BatchNormalization()(layers.MaxPooling3D(2)(x))
    x = layers.Dense(256, activation="relu")(layers.GlobalAveragePooling3D()(x))
    return Model(volume, layers.Dense(1, activation="sigmoid")(layers.Dropout(0.3)(x)))


def deeplab(size: int = 160, classes: int = 20) -> Any:
    """After Keras' example "Multiclass semantic segmentation using DeepLabV3+", on a ResNet-50."""
    import keras
    from keras import Model, layers

    def block(x: Any, width: int = 128, window: int = 3, spread: int = 1) -> Any:
        x = layers.Conv2D(width, window, dilation_rate=spread, padding="same", use_bias=False)(x)
        return layers.ReLU()(layers.BatchNormalization()(x))

    image = layers.Input((size, size, 3))
    backbone = keras.applications.ResNet50(weights=None, include_top=False, input_tensor=image)
    x = backbone.get_layer("conv4_block6_2_relu").output
    pooled = block(layers.AveragePooling2D((x.shape[1], x.shape[2]))(x), window=1)
    pooled = layers.UpSampling2D((x.shape[1], x.shape[2]), interpolation="bilinear")(pooled)
    x = layers.Concatenate()([pooled, block(x, window=1), *(block(x, spread=spread) for spread in (6, 12, 18))])
    x = layers.UpSampling2D(4, interpolation="bilinear")(block(x, window=1))
    early = block(backbone.get_layer("conv2_block3_2_relu").output, 48, 1)
    x = block(block(layers.Concatenate()([x, early])))
    x = layers.UpSampling2D(4, interpolation="bilinear")(x)
    return Model(image, layers.Conv2D(classes, 1, padding="same", activation="softmax")(x))


def autoencoder(size: int = 128) -> Any:
    from keras import Input, Model, layers

    x = image = Input((size, size, 3))
    for width in (32, 64, 128):
        x = layers.LeakyReLU()(layers.Conv2D(width, 3, strides=2, padding="same")(x))
    shape = x.shape[1:]
    code = layers.Dense(256)(layers.Flatten()(x))
    x = layers.Reshape(shape)(layers.Dense(shape[0] * shape[1] * shape[2])(code))
    for width in (128, 64, 32):
        x = layers.LeakyReLU()(layers.Conv2DTranspose(width, 3, strides=2, padding="same")(x))
    return Model(image, layers.Conv2D(3, 3, padding="same", activation="sigmoid")(x))


def wide_and_deep(columns: int = 20, words: int = 10_000) -> Any:
    from keras import Input, Model, layers

    numbers, choices = Input((13,)), Input((columns,), dtype="int32")
    parts = [layers.Embedding(words, 16)(choices[:, column]) for column in range(columns)]
    x = layers.Concatenate()([layers.BatchNormalization()(numbers), *parts])
    wide = x
    for width in (512, 256, 128):
        x = layers.Dropout(0.1)(layers.ReLU()(layers.BatchNormalization()(layers.Dense(width)(x))))
    return Model([numbers, choices], layers.Dense(1, activation="sigmoid")(layers.Concatenate()([wide, x])))


def next_frame(frames: int = 8, size: int = 40) -> Any:
    from keras import Input, Model, layers

    x = video = Input((frames, size, size, 1))
    for window in (5, 3, 1):
        x = layers.ConvLSTM2D(32, window, padding="same", return_sequences=True, activation="relu")(x)
        x = layers.BatchNormalization()(x)
    return Model(video, layers.Conv3D(1, 3, activation="sigmoid", padding="same")(x))


def mixer(size: int = 128, patch: int = 8, width: int = 256, depth: int = 4) -> Any:
    from keras import Input, Model, layers

    image = Input((size, size, 3))
    x = layers.Reshape((-1, width))(layers.Conv2D(width, patch, strides=patch)(image))
    count = x.shape[1]
    for _ in range(depth):
        y = layers.Permute((2, 1))(layers.LayerNormalization()(x))
        y = layers.Dense(count)(layers.Dense(count, activation="gelu")(y))
        x = layers.Add()([x, layers.Permute((2, 1))(y)])
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.Dense(width)(layers.Dense(width, activation="gelu")(y))])
    return Model(image, layers.Dense(100, activation="softmax")(layers.GlobalAveragePooling1D()(x)))


def super_resolution(factor: int = 3, size: int = 100) -> Any:
    """After Keras' example "Image super-resolution using an efficient sub-pixel CNN"."""
    from keras import Input, Model, layers, ops

    x = image = Input((size, size, 1))
    for width, window in ((64, 5), (64, 3), (32, 3), (factor**2, 3)):
        x = layers.Conv2D(width, window, padding="same", activation="relu")(x)
    x = ops.reshape(x, (-1, size, size, factor, factor))
    x = ops.transpose(x, (0, 1, 3, 2, 4))
    return Model(image, ops.reshape(x, (-1, size * factor, size * factor, 1)))


_CLASS, _CHANCE = Form((), "int32"), Form((1,))

MODELS: dict[str, Example] = {
    "xception": application("Xception", 299),
    "resnet101-v2": application("ResNet101V2"),
    "densenet121": application("DenseNet121"),
    "mobilenet": application("MobileNet"),
    "mobilenet-v3-large": application("MobileNetV3Large"),
    "efficientnet-b0": application("EfficientNetB0"),
    "efficientnet-v2-b0": application("EfficientNetV2B0"),
    "nasnet-mobile": application("NASNetMobile"),
    "inception-resnet-v2": application("InceptionResNetV2", 299),
    "convnext-tiny": application("ConvNeXtTiny"),
    "vision-transformer": Example(vision_transformer, Form((128, 128, 3)), _CLASS, (2, 8, 16)),
    "causal-lm": Example(causal_language_model, Form((128,), "int32"), Form((128,), "int32"), (2, 8, 16)),
    "translator": Example(translator, (Form((40,), "int32"), Form((40,), "int32")), Form((40,), "int32"), (4, 16, 64)),
    "bidirectional-lstm": Example(bidirectional_lstm, Form((200,), "int32"), _CHANCE, (4, 16, 64)),
    "text-cnn": Example(text_cnn, Form((400,), "int32"), _CHANCE, (4, 32, 128)),
    "wavenet": Example(wavenet, Form((2048, 1)), Form((2048,), "int32"), (1, 4, 8)),
    "scan-classifier": Example(scan_classifier, Form((64, 64, 32, 1)), _CHANCE, (1, 2, 4)),
    "deeplab": Example(deeplab, Form((160, 160, 3)), Form((160, 160), "int32"), (1, 2, 4)),
    "autoencoder": Example(autoencoder, Form((128, 128, 3)), Form((128, 128, 3)), (2, 8, 32)),
    "wide-and-deep": Example(wide_and_deep, (Form((13,)), Form((20,), "int32")), _CHANCE, (32, 256, 2048)),
    "next-frame": Example(next_frame, Form((8, 40, 40, 1)), Form((8, 40, 40, 1)), (1, 2, 4)),
    "mixer": Example(mixer, Form((128, 128, 3)), _CLASS, (2, 8, 16)),
    "super-resolution": Example(super_resolution, Form((100, 100, 1)), Form((300, 300, 1)), (2, 4, 8)),
}
"""Labels of whole numbers are classes; those of shape (1,) are chances, all others are values to come near to."""
