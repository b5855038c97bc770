"""More models in JAX for `bench frameworks --further`: Flax' two ways, Equinox and plain functions.

They were chosen before any of them was looked at: architectures as public code of these libraries builds them, smaller
where the point is the kind of step and not its size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .frameworks_forms import Example, Form

__all__ = ["MODELS"]


def linen(forward: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    """Builds a Flax module whose layers are made while `forward(flax.linen, x)` runs."""

    def build() -> Any:
        from flax import linen as nn

        class Model(nn.Module):
            @nn.compact  # type: ignore[untyped-decorator]
            def __call__(self, x: Any) -> Any:
                return forward(nn, x)

        return Model()

    return build


# -------- Images


def _norm(nn: Any, x: Any) -> Any:
    return nn.BatchNorm(use_running_average=False, momentum=0.9)(x)


def resnet18(nn: Any, x: Any) -> Any:
    x = nn.relu(_norm(nn, nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)))
    x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
    for stage in range(4):
        for number in range(2):
            strides = (2, 2) if stage and not number else (1, 1)
            y = nn.relu(_norm(nn, nn.Conv(64 << stage, (3, 3), strides, use_bias=False)(x)))
            y = _norm(nn, nn.Conv(64 << stage, (3, 3), use_bias=False)(y))
            if x.shape != y.shape:
                x = _norm(nn, nn.Conv(64 << stage, (1, 1), strides, use_bias=False)(x))
            x = nn.relu(x + y)
    return nn.Dense(1000)(x.mean((1, 2)))


def wide_resnet(nn: Any, x: Any) -> Any:
    """28 layers, four times as wide, with group norms before the convolutions."""
    x = nn.Conv(16, (3, 3), use_bias=False)(x)
    for stage in range(3):
        width = 64 << stage
        for number in range(4):
            strides = (2, 2) if stage and not number else (1, 1)
            y = nn.relu(nn.GroupNorm(num_groups=8)(x))
            skip = x if x.shape[-1] == width else nn.Conv(width, (1, 1), strides, use_bias=False)(y)
            y = nn.relu(nn.GroupNorm(num_groups=8)(nn.Conv(width, (3, 3), strides, use_bias=False)(y)))
            x = skip + nn.Conv(width, (3, 3), use_bias=False)(y)
    return nn.Dense(10)(nn.relu(nn.GroupNorm(num_groups=8)(x)).mean((1, 2)))


def densenet(nn: Any, x: Any) -> Any:
    import jax.numpy as jnp

    x = nn.relu(_norm(nn, nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)))
    x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
    for stage, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            y = nn.Conv(128, (1, 1), use_bias=False)(nn.relu(_norm(nn, x)))
            x = jnp.concatenate([x, nn.Conv(32, (3, 3), use_bias=False)(nn.relu(_norm(nn, y)))], -1)
        if stage < 3:
            x = nn.Conv(x.shape[-1] // 2, (1, 1), use_bias=False)(nn.relu(_norm(nn, x)))
            x = nn.avg_pool(x, (2, 2), (2, 2))
    return nn.Dense(1000)(nn.relu(_norm(nn, x)).mean((1, 2)))


def efficientnet(nn: Any, x: Any) -> Any:
    x = nn.swish(_norm(nn, nn.Conv(32, (3, 3), (2, 2), use_bias=False)(x)))
    plan = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5))
    for factor, width, count, first, window in (*plan, (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)):
        for number in range(count):
            into, strides = x.shape[-1], (first, first) if number == 0 else (1, 1)
            y = nn.swish(_norm(nn, nn.Conv(factor * into, (1, 1), use_bias=False)(x))) if factor > 1 else x
            wide = y.shape[-1]
            y = nn.Conv(wide, (window, window), strides, feature_group_count=wide, use_bias=False)(y)
            y = nn.swish(_norm(nn, y))
            gate = nn.Conv(wide, (1, 1))(nn.swish(nn.Conv(max(into // 4, 1), (1, 1))(y.mean((1, 2), keepdims=True))))
            y = _norm(nn, nn.Conv(width, (1, 1), use_bias=False)(y * nn.sigmoid(gate)))
            x = x + y if x.shape == y.shape else y
    x = nn.swish(_norm(nn, nn.Conv(1280, (1, 1), use_bias=False)(x))).mean((1, 2))
    return nn.Dense(1000)(nn.Dropout(0.2, deterministic=False)(x))


def convnext(nn: Any, x: Any) -> Any:
    x = nn.LayerNorm(epsilon=1e-6)(nn.Conv(96, (4, 4), (4, 4))(x))
    for stage, count in enumerate((3, 3, 9, 3)):
        width = 96 << stage
        if stage:
            x = nn.Conv(width, (2, 2), (2, 2))(nn.LayerNorm(epsilon=1e-6)(x))
        for number in range(count):
            y = nn.LayerNorm(epsilon=1e-6)(nn.Conv(width, (7, 7), feature_group_count=width)(x))
            y = nn.Dense(width)(nn.gelu(nn.Dense(4 * width)(y)))
            x = x + y * _scale(nn, width, f"scale{stage}_{number}")
    return nn.Dense(1000)(nn.LayerNorm(epsilon=1e-6)(x.mean((1, 2))))


def _scale(nn: Any, width: int, name: str) -> Any:
    import jax

    class Scale(nn.Module):
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self) -> Any:
            return self.param("gamma", lambda key: jax.numpy.full((width,), 1e-6))

    return Scale(name=name)()


def vision_transformer(nn: Any, x: Any) -> Any:
    """ViT-S/16."""
    import jax.numpy as jnp

    x = nn.Conv(384, (16, 16), (16, 16), "VALID")(x)
    x = x.reshape(x.shape[0], -1, 384)
    x = jnp.concatenate([jnp.zeros((x.shape[0], 1, 384)), x], 1)
    x = nn.Dropout(0.1, deterministic=False)(x + nn.Embed(x.shape[1], 384)(jnp.arange(x.shape[1])))
    for _ in range(12):
        y = nn.MultiHeadDotProductAttention(6, dropout_rate=0.1, deterministic=False)(nn.LayerNorm()(x))
        x = x + nn.Dropout(0.1, deterministic=False)(y)
        y = nn.Dropout(0.1, deterministic=False)(nn.gelu(nn.Dense(1536)(nn.LayerNorm()(x))))
        x = x + nn.Dropout(0.1, deterministic=False)(nn.Dense(384)(y))
    return nn.Dense(1000)(nn.LayerNorm()(x)[:, 0])


def mixer(nn: Any, x: Any) -> Any:
    """Mixer-S/16."""
    x = nn.Conv(512, (16, 16), (16, 16), "VALID")(x)
    x = x.reshape(x.shape[0], -1, 512)
    count = x.shape[1]
    for _ in range(8):
        y = nn.LayerNorm()(x).swapaxes(1, 2)
        x = x + nn.Dense(count)(nn.gelu(nn.Dense(256)(y))).swapaxes(1, 2)
        x = x + nn.Dense(512)(nn.gelu(nn.Dense(2048)(nn.LayerNorm()(x))))
    return nn.Dense(1000)(nn.LayerNorm()(x).mean(1))


def diffusion_unet(nn: Any, x: Any) -> Any:
    """Noise at a time, with attention in its middle, as of denoising diffusion models."""
    import jax
    import jax.numpy as jnp

    image, time = x
    angles = time[:, None].astype("float32") * jnp.exp(-jnp.arange(32) * 0.3)
    told = nn.Dense(256)(nn.swish(nn.Dense(256)(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1))))

    def block(x: Any, width: int) -> Any:
        y = nn.Conv(width, (3, 3))(nn.swish(nn.GroupNorm(num_groups=8)(x)))
        y = y + nn.Dense(width)(nn.swish(told))[:, None, None]
        y = nn.Conv(width, (3, 3))(nn.Dropout(0.1, deterministic=False)(nn.swish(nn.GroupNorm(num_groups=8)(y))))
        return y + (x if x.shape == y.shape else nn.Dense(width)(x))

    x = nn.Conv(64, (3, 3))(image)
    skips = []
    for width in (64, 128, 256):
        x = block(x, width)
        skips.append(x)
        x = nn.Conv(width, (3, 3), (2, 2))(x)
    batch, high, wide, width = x.shape
    y = nn.GroupNorm(num_groups=8)(block(x, width)).reshape(batch, high * wide, width)
    x = block(x + nn.SelfAttention(4)(y).reshape(x.shape), 256)
    for width, skip in zip((256, 128, 64), reversed(skips), strict=True):
        x = jax.image.resize(x, skip.shape[:3] + x.shape[3:], "nearest")
        x = block(jnp.concatenate([nn.Conv(width, (3, 3))(x), skip], -1), width)
    return nn.Conv(3, (3, 3))(nn.swish(nn.GroupNorm(num_groups=8)(x)))


def autoencoder(nn: Any, x: Any) -> Any:
    import jax.numpy as jnp

    for width in (32, 64, 128):
        x = nn.leaky_relu(nn.Conv(width, (3, 3), (2, 2))(x))
    shape = x.shape
    x = x.reshape(shape[0], -1)
    mean, spread = nn.Dense(64)(x), nn.Dense(64)(x)
    code = mean + jnp.exp(0.5 * spread)
    x = nn.Dense(shape[1] * shape[2] * shape[3])(code).reshape(shape)
    for width in (64, 32, 3):
        x = nn.ConvTranspose(width, (3, 3), (2, 2))(nn.leaky_relu(x))
    return nn.sigmoid(x)


def super_resolution(nn: Any, x: Any) -> Any:
    """Residual blocks without norms; the channels become pixels at the end."""
    x = first = nn.Conv(64, (3, 3))(x)
    for _ in range(8):
        x = x + 0.1 * nn.Conv(64, (3, 3))(nn.relu(nn.Conv(64, (3, 3))(x)))
    x = nn.Conv(64 * 4, (3, 3))(nn.Conv(64, (3, 3))(x) + first)
    batch, high, wide, _ = x.shape
    x = x.reshape(batch, high, wide, 2, 2, 64).transpose(0, 1, 3, 2, 4, 5).reshape(batch, 2 * high, 2 * wide, 64)
    return nn.Conv(3, (3, 3))(x)


# -------- Text and other sequences


def causal_language_model(nn: Any, tokens: Any) -> Any:
    """GPT-2 of six layers, whose last layer's weights are its embedding's."""
    import jax.numpy as jnp

    embedding = nn.Embed(16_000, 384)
    length = tokens.shape[1]
    x = embedding(tokens) + nn.Embed(length, 384)(jnp.arange(length))
    mask = nn.make_causal_mask(tokens)
    for _ in range(6):
        x = x + nn.SelfAttention(6, dropout_rate=0.1, deterministic=False)(nn.LayerNorm()(x), mask)
        y = nn.Dense(384)(nn.gelu(nn.Dense(1536)(nn.LayerNorm()(x))))
        x = x + nn.Dropout(0.1, deterministic=False)(y)
    return embedding.attend(nn.LayerNorm()(x))


def _llama_layer(nn: Any) -> Any:
    import jax
    import jax.numpy as jnp

    heads, pairs, size = 8, 4, 64

    def turned(x: Any) -> Any:
        angles = jnp.arange(x.shape[1])[:, None] * 10_000 ** (-jnp.arange(size // 2) / (size // 2))
        cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
        left, right = jnp.split(x, 2, -1)
        return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1)

    class Layer(nn.Module):
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any, _: Any) -> Any:
            batch, length, width = x.shape
            y = nn.RMSNorm()(x)
            query = turned(nn.Dense(heads * size, use_bias=False)(y).reshape(batch, length, heads, size))
            key = turned(nn.Dense(pairs * size, use_bias=False)(y).reshape(batch, length, pairs, size))
            value = nn.Dense(pairs * size, use_bias=False)(y).reshape(batch, length, pairs, size)
            y = jax.nn.dot_product_attention(query, key, value, is_causal=True)
            x = x + nn.Dense(width, use_bias=False)(y.reshape(batch, length, heads * size))
            y = nn.RMSNorm()(x)
            y = nn.silu(nn.Dense(1408, use_bias=False)(y)) * nn.Dense(1408, use_bias=False)(y)
            return x + nn.Dense(width, use_bias=False)(y), None

    return Layer


def llama(nn: Any, tokens: Any) -> Any:
    layer = _llama_layer(nn)
    x = nn.Embed(8_000, 512)(tokens)
    for _ in range(6):
        x, _ = layer()(x, None)
    return nn.Dense(8_000, use_bias=False)(nn.RMSNorm()(x))


def llama_by_scan(nn: Any, tokens: Any) -> Any:
    """The layers' weights stacked, each layer computed again in the backward pass, as large trainings are written."""
    layer = nn.remat(_llama_layer(nn), prevent_cse=False)
    layers = nn.scan(layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=6)
    x, _ = layers()(nn.Embed(8_000, 512)(tokens), None)
    return nn.Dense(8_000, use_bias=False)(nn.RMSNorm()(x))


def translator(nn: Any, x: Any) -> Any:
    """An encoder and a decoder, of T5's form."""
    source, target = x
    embedding = nn.Embed(8_000, 256)

    def wide(x: Any) -> Any:
        return x + nn.Dense(256, use_bias=False)(nn.relu(nn.Dense(1024, use_bias=False)(nn.RMSNorm()(x))))

    encoded = embedding(source)
    for _ in range(3):
        encoded = wide(encoded + nn.SelfAttention(8, use_bias=False)(nn.RMSNorm()(encoded)))
    encoded = nn.RMSNorm()(encoded)
    x, mask = embedding(target), nn.make_causal_mask(target)
    for _ in range(3):
        x = x + nn.SelfAttention(8, use_bias=False)(nn.RMSNorm()(x), mask)
        x = wide(x + nn.MultiHeadDotProductAttention(8, use_bias=False)(nn.RMSNorm()(x), encoded))
    return nn.Dense(8_000, use_bias=False)(nn.RMSNorm()(x))


def bidirectional_lstm(nn: Any, tokens: Any) -> Any:
    x = nn.Embed(20_000, 128)(tokens)
    for _ in range(2):
        there = nn.RNN(nn.OptimizedLSTMCell(128))
        back = nn.RNN(nn.OptimizedLSTMCell(128), reverse=True, keep_order=True)
        x = nn.Bidirectional(there, back)(x)
    return nn.Dense(2)(x.mean(1))


def wavenet(nn: Any, x: Any) -> Any:
    x = nn.Conv(64, (2,), padding="CAUSAL")(x)
    skips = 0.0
    for _ in range(2):
        for power in range(8):
            value = nn.tanh(nn.Conv(64, (2,), padding="CAUSAL", kernel_dilation=(2**power,))(x))
            gate = nn.sigmoid(nn.Conv(64, (2,), padding="CAUSAL", kernel_dilation=(2**power,))(x))
            skips = skips + nn.Dense(128)(value * gate)
            x = x + nn.Dense(64)(value * gate)
    return nn.Dense(256)(nn.relu(nn.Dense(128)(nn.relu(skips))))


def state_space(nn: Any, x: Any) -> Any:
    """Linear recurrent units, their states computed by an associative scan."""
    import jax
    import jax.numpy as jnp

    def joined(early: Any, late: Any) -> Any:
        return early[0] * late[0], late[0] * early[1] + late[1]

    x = nn.Dense(128)(x)
    for _ in range(4):
        y = nn.Dense(256)(nn.LayerNorm()(x))
        decay = jnp.broadcast_to(nn.sigmoid(nn.Dense(256)(x)), y.shape)
        _, y = jax.lax.associative_scan(joined, (decay, y), axis=1)
        x = x + nn.Dense(128)(nn.gelu(y))
    return nn.Dense(10)(x.mean(1))


def mixture_of_experts(nn: Any, tokens: Any) -> Any:
    """Each token goes to one of eight networks, all of which are computed by one product."""
    import jax
    import jax.numpy as jnp

    class Experts(nn.Module):
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            batch, length, width = x.shape
            flat = x.reshape(batch * length, width)
            room = batch * length // 4
            gates = nn.softmax(nn.Dense(8, use_bias=False)(flat))
            chosen = jax.nn.one_hot(gates.argmax(-1), 8)
            place = (jnp.cumsum(chosen, 0) * chosen).max(-1).astype("int32") - 1
            sent = chosen[:, :, None] * jax.nn.one_hot(place, room)[:, None]
            first = self.param("first", nn.initializers.lecun_normal(), (8, width, 4 * width))
            second = self.param("second", nn.initializers.lecun_normal(), (8, 4 * width, width))
            y = jnp.einsum("ecd,edf->ecf", jnp.einsum("tec,td->ecd", sent, flat), first)
            y = jnp.einsum("ecf,efd->ecd", nn.relu(y), second)
            weights = sent * (gates * chosen).sum(-1)[:, None, None]
            return jnp.einsum("tec,ecd->td", weights, y).reshape(x.shape)

    x = nn.Embed(8_000, 128)(tokens)
    for _ in range(3):
        x = x + nn.SelfAttention(4)(nn.LayerNorm()(x))
        x = x + Experts()(nn.LayerNorm()(x))
    return nn.Dense(8_000)(x)


# -------- Tables, graphs, fields


def ranking(nn: Any, x: Any) -> Any:
    """DLRM: features multiplied with one another."""
    import jax.numpy as jnp

    numbers, choices = x
    parts = [nn.Embed(10_000, 64)(choices[:, column]) for column in range(26)]
    dense = nn.relu(nn.Dense(64)(nn.relu(nn.Dense(512)(numbers))))
    table = jnp.stack([dense, *parts], 1)
    pairs = jnp.einsum("bik,bjk->bij", table, table)
    row, column = jnp.tril_indices(table.shape[1], -1)
    x = jnp.concatenate([dense, pairs[:, row, column]], -1)
    for width in (1024, 512, 256):
        x = nn.relu(nn.Dense(width)(x))
    return nn.Dense(1)(x)


def graph_network(nn: Any, x: Any) -> Any:
    """Messages along edges, summed where they arrive; each sample is a graph."""
    import jax

    nodes, edges = x
    x = nn.relu(nn.Dense(128)(nodes))
    for _ in range(3):
        message = nn.Dense(128)
        count = x.shape[1]

        def passed(features: Any, ends: Any, count: int = count) -> Any:
            return jax.ops.segment_sum(features[ends[:, 0]], ends[:, 1], num_segments=count)

        gathered = jax.vmap(passed)(message(x), edges)
        x = nn.LayerNorm()(x + nn.relu(nn.Dense(128)(gathered)))
    return nn.Dense(40)(x)


def radiance_field(nn: Any, x: Any) -> Any:
    """NeRF's network: points by sines of rising frequency, eight layers with one skip."""
    import jax.numpy as jnp

    waves = x[..., None, :] * (2.0 ** jnp.arange(10))[:, None]
    x = told = jnp.concatenate([jnp.sin(waves), jnp.cos(waves)], -1).reshape(*x.shape[:-1], 60)
    for number in range(8):
        x = nn.relu(nn.Dense(256)(x))
        if number == 4:
            x = jnp.concatenate([x, told], -1)
    return nn.Dense(4)(x)


# -------- Other libraries


def equinox_cnn() -> Any:
    import equinox as eqx
    import jax

    keys = jax.random.split(jax.random.key(0), 6)

    class Net(eqx.Module):
        layers: list[Any]

        def __call__(self, x: Any) -> Any:  # of one sample, as Equinox has it
            x = x.transpose(2, 0, 1)
            for layer in self.layers:
                x = layer(x)
            return x

    return Net(
        [
            eqx.nn.Conv2d(3, 32, 3, padding=1, key=keys[0]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(32, 64, 3, padding=1, key=keys[1]),
            eqx.nn.GroupNorm(8, 64),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(64, 128, 3, padding=1, key=keys[2]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Lambda(jax.numpy.ravel),
            eqx.nn.Linear(128 * 64, 256, key=keys[3]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Linear(256, 10, key=keys[4]),
        ]
    )


def nnx_transformer() -> Any:
    from flax import nnx

    rngs = nnx.Rngs(0)

    class Block(nnx.Module):
        def __init__(self) -> None:
            self.first, self.second = nnx.LayerNorm(256, rngs=rngs), nnx.LayerNorm(256, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(8, 256, decode=False, rngs=rngs)
            self.wide, self.narrow = nnx.Linear(256, 1024, rngs=rngs), nnx.Linear(1024, 256, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = x + self.attention(self.first(x))
            return x + self.narrow(nnx.gelu(self.wide(self.second(x))))

    class Model(nnx.Module):
        def __init__(self) -> None:
            self.embedding = nnx.Embed(8_000, 256, rngs=rngs)
            self.blocks = nnx.List([Block() for _ in range(4)])
            self.head = nnx.Linear(256, 8_000, rngs=rngs)

        def __call__(self, tokens: Any) -> Any:
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    return Model()


def plain_functions() -> Any:
    """A transformer as one writes it without a library: a function for a sample, mapped over the batch."""
    import jax
    import jax.numpy as jnp

    width, heads, words = 256, 8, 8_000

    def init(key: Any, x: Any) -> Any:
        def matrix(*shape: int) -> Any:
            return jax.random.normal(key, shape) * 0.02

        layer = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
        layers = [{name: matrix(*shape) for name, shape in layer.items()} for _ in range(4)]
        return {"words": matrix(words, width), "layers": layers}

    def normed(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def one(params: Any, tokens: Any) -> Any:
        x = params["words"][tokens]
        count = x.shape[0]
        for layer in params["layers"]:
            parts = (normed(x) @ layer["qkv"]).reshape(count, 3, heads, width // heads)
            scores = jnp.einsum("qhd,khd->hqk", parts[:, 0], parts[:, 1]) / (width // heads) ** 0.5
            scores = jnp.where(jnp.tril(jnp.ones((count, count), bool)), scores, -1e9)
            mixed = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), parts[:, 2])
            x = x + mixed.reshape(count, width) @ layer["out"]
            x = x + jax.nn.gelu(normed(x) @ layer["up"]) @ layer["down"]
        return normed(x) @ params["words"].T

    return init, lambda params, x: jax.vmap(one, (None, 0))(params, x)


_PHOTO, _CLASS = Form((224, 224, 3)), Form((), "int32")
_SMALL_PHOTO = Form((32, 32, 3))


def _text(length: int) -> tuple[Form, Form]:
    return Form((length,), "int32"), Form((length,), "int32")


MODELS: dict[str, Example] = {
    "resnet18": Example(linen(resnet18), _PHOTO, _CLASS, (4, 16, 64)),
    "wide-resnet": Example(linen(wide_resnet), _SMALL_PHOTO, _CLASS, (16, 64, 256)),
    "densenet121": Example(linen(densenet), _PHOTO, _CLASS, (2, 8, 32)),
    "efficientnet-b0": Example(linen(efficientnet), _PHOTO, _CLASS, (2, 8, 32)),
    "convnext-tiny": Example(linen(convnext), _PHOTO, _CLASS, (2, 8, 32)),
    "vision-transformer": Example(linen(vision_transformer), _PHOTO, _CLASS, (4, 16, 64)),
    "mixer": Example(linen(mixer), _PHOTO, _CLASS, (4, 16, 64)),
    "diffusion-unet": Example(
        linen(diffusion_unet), (Form((64, 64, 3)), Form((), "int32")), Form((64, 64, 3)), (2, 8, 32)
    ),
    "autoencoder": Example(linen(autoencoder), Form((64, 64, 3)), Form((64, 64, 3)), (8, 32, 128)),
    "super-resolution": Example(linen(super_resolution), Form((48, 48, 3)), Form((96, 96, 3)), (4, 16, 64)),
    "causal-lm": Example(linen(causal_language_model), *_text(256), (2, 8, 32)),
    "llama": Example(linen(llama), *_text(256), (2, 8, 32)),
    "llama-by-scan": Example(linen(llama_by_scan), *_text(256), (2, 8, 32)),
    "translator": Example(linen(translator), _text(64), Form((64,), "int32"), (4, 16, 64)),
    "bidirectional-lstm": Example(linen(bidirectional_lstm), Form((100,), "int32"), _CLASS, (8, 32, 128)),
    "wavenet": Example(linen(wavenet), Form((1024, 1)), Form((1024,), "int32"), (2, 8, 32)),
    "state-space": Example(linen(state_space), Form((512, 8)), _CLASS, (4, 16, 64)),
    "mixture-of-experts": Example(linen(mixture_of_experts), *_text(64), (2, 8, 32)),
    "ranking": Example(linen(ranking), (Form((13,)), Form((26,), "int32")), Form((1,)), (64, 512, 4096)),
    "graph-network": Example(
        linen(graph_network), (Form((200, 64)), Form((1000, 2), "int32")), Form((200,), "int32"), (4, 16, 64)
    ),
    "radiance-field": Example(linen(radiance_field), Form((64, 3)), Form((64, 4)), (64, 256, 1024)),
    "equinox-cnn": Example(equinox_cnn, _SMALL_PHOTO, _CLASS, (16, 64, 256)),
    "nnx-transformer": Example(nnx_transformer, *_text(128), (2, 8, 32)),
    "plain-functions": Example(plain_functions, *_text(128), (2, 8, 32)),
}
