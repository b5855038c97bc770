"""JAX's part of `bench frameworks`: the models in Flax, and what XLA plans for one compiled step of them on a CPU.

`python -m lab.benchmarks.frameworks_jax MODEL BATCH` prints one line of JSON. Nothing runs: the step is compiled for
shapes, and `memory_analysis()` of what was compiled tells the bytes of its arguments, its results and its temporaries.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from .frameworks_forms import FORMS
from .further_flax import MODELS as FURTHER

VOCABULARY = 10_000


def vgg16() -> Any:
    def forward(nn: Any, x: Any) -> Any:
        for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                x = nn.relu(nn.Conv(width, (3, 3))(x))
            x = nn.max_pool(x, (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        for _ in range(2):
            x = nn.Dropout(0.5, deterministic=False)(nn.relu(nn.Dense(4096)(x)))
        return nn.Dense(1000)(x)

    return _module(forward)


def resnet50() -> Any:
    def forward(nn: Any, x: Any) -> Any:
        x = nn.relu(_norm(nn, nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage, depth in enumerate((3, 4, 6, 3)):
            width = 64 << stage
            for number in range(depth):
                strides = (2, 2) if stage and not number else (1, 1)
                y = nn.relu(_norm(nn, nn.Conv(width, (1, 1), use_bias=False)(x)))
                y = nn.relu(_norm(nn, nn.Conv(width, (3, 3), strides, use_bias=False)(y)))
                y = _norm(nn, nn.Conv(4 * width, (1, 1), use_bias=False)(y))
                if x.shape != y.shape:
                    x = _norm(nn, nn.Conv(4 * width, (1, 1), strides, use_bias=False)(x))
                x = nn.relu(x + y)
        return nn.Dense(1000)(x.mean((1, 2)))

    return _module(forward)


def inception_v3() -> Any:
    def forward(nn: Any, x: Any) -> Any:
        import jax.numpy as jnp

        def conv(x: Any, width: int, window: tuple[int, int] = (1, 1), step: int = 1, padding: str = "SAME") -> Any:
            return nn.relu(_norm(nn, nn.Conv(width, window, (step, step), padding, use_bias=False)(x)))

        def pool(x: Any) -> Any:
            return nn.avg_pool(x, (3, 3), (1, 1), "SAME")

        def down(x: Any) -> Any:
            return nn.max_pool(x, (3, 3), (2, 2))

        x = conv(conv(conv(x, 32, (3, 3), 2, "VALID"), 32, (3, 3), 1, "VALID"), 64, (3, 3))
        x = conv(conv(down(x), 80), 192, (3, 3), 1, "VALID")
        x = down(x)
        for width in (32, 64, 64):
            wide = conv(conv(x, 48), 64, (5, 5))
            deep = conv(conv(conv(x, 64), 96, (3, 3)), 96, (3, 3))
            x = jnp.concatenate([conv(x, 64), wide, deep, conv(pool(x), width)], -1)
        deep = conv(conv(conv(x, 64), 96, (3, 3)), 96, (3, 3), 2, "VALID")
        x = jnp.concatenate([conv(x, 384, (3, 3), 2, "VALID"), deep, down(x)], -1)
        for width in (128, 160, 160, 192):
            wide = conv(conv(conv(x, width), width, (1, 7)), 192, (7, 1))
            deep = conv(conv(conv(x, width), width, (7, 1)), width, (1, 7))
            deep = conv(conv(deep, width, (7, 1)), 192, (1, 7))
            x = jnp.concatenate([conv(x, 192), wide, deep, conv(pool(x), 192)], -1)
        deep = conv(conv(conv(conv(x, 192), 192, (1, 7)), 192, (7, 1)), 192, (3, 3), 2, "VALID")
        x = jnp.concatenate([conv(conv(x, 192), 320, (3, 3), 2, "VALID"), deep, down(x)], -1)
        for _ in range(2):
            wide = conv(x, 384)
            wide = jnp.concatenate([conv(wide, 384, (1, 3)), conv(wide, 384, (3, 1))], -1)
            deep = conv(conv(x, 448), 384, (3, 3))
            deep = jnp.concatenate([conv(deep, 384, (1, 3)), conv(deep, 384, (3, 1))], -1)
            x = jnp.concatenate([conv(x, 320), wide, deep, conv(pool(x), 192)], -1)
        return nn.Dense(1000)(x.mean((1, 2)))

    return _module(forward)


def mobilenet_v2() -> Any:
    def forward(nn: Any, x: Any) -> Any:
        def conv(x: Any, width: int, window: int, step: int = 1, groups: int = 1) -> Any:
            layer = nn.Conv(width, (window, window), (step, step), use_bias=False, feature_group_count=groups)
            return _norm(nn, layer(x))

        x = nn.relu6(conv(x, 32, 3, 2))
        plan = (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        )
        for factor, width, count, first in plan:
            for number in range(count):
                wide = factor * x.shape[-1]
                y = nn.relu6(conv(x, wide, 1)) if factor > 1 else x
                y = nn.relu6(conv(y, wide, 3, first if number == 0 else 1, wide))
                y = conv(y, width, 1)
                x = x + y if x.shape == y.shape else y
        return nn.Dense(1000)(nn.relu6(conv(x, 1280, 1)).mean((1, 2)))

    return _module(forward)


def mlp() -> Any:
    def forward(nn: Any, x: Any) -> Any:
        x = nn.Dropout(0.1, deterministic=False)(nn.relu(nn.Dense(2048)(x)))
        return nn.Dense(10)(nn.relu(nn.Dense(2048)(x)))

    return _module(forward)


def lenet() -> Any:
    def forward(nn: Any, x: Any) -> Any:
        for width in (32, 64):
            x = nn.max_pool(nn.relu(nn.Conv(width, (5, 5))(x)), (2, 2), (2, 2))
        return nn.Dense(10)(nn.relu(nn.Dense(1024)(x.reshape(x.shape[0], -1))))

    return _module(forward)


def unet(classes: int = 4) -> Any:
    def forward(nn: Any, x: Any) -> Any:
        import jax.numpy as jnp

        def block(x: Any, width: int) -> Any:
            for _ in range(2):
                x = nn.relu(_norm(nn, nn.Conv(width, (3, 3))(x)))
            return x

        skips = []
        for width in (32, 64, 128):
            x = block(x, width)
            skips.append(x)
            x = nn.max_pool(x, (2, 2), (2, 2))
        x = block(x, 256)
        for width, skip in zip((128, 64, 32), reversed(skips), strict=True):
            x = block(jnp.concatenate([nn.ConvTranspose(width, (2, 2), (2, 2))(x), skip], -1), width)
        return nn.Conv(classes, (1, 1))(x)

    return _module(forward)


def lstm_lm(units: int = 512) -> Any:
    def forward(nn: Any, tokens: Any) -> Any:
        x = nn.Embed(VOCABULARY, units)(tokens)
        for _ in range(2):
            x = nn.RNN(nn.OptimizedLSTMCell(units))(x)
        return nn.Dense(VOCABULARY)(x)

    return _module(forward)


def gru_classifier(units: int = 256) -> Any:
    def forward(nn: Any, x: Any) -> Any:
        for _ in range(2):
            x = nn.RNN(nn.GRUCell(units))(x)
        return nn.Dense(100)(x[:, -1])

    return _module(forward)


def transformer() -> Any:
    return _encoder(256, 4, 4, VOCABULARY)


def bert_base() -> Any:
    return _encoder(768, 12, 12, 30_522)


def separable_cnn() -> Any:
    def forward(nn: Any, x: Any) -> Any:
        for width in (64, 128, 256):
            x = nn.Conv(x.shape[-1], (3, 3), (2, 2), feature_group_count=x.shape[-1])(x)
            x = nn.gelu(nn.LayerNorm()(nn.Conv(width, (1, 1))(x)))
        return nn.Dense(1000)(x.mean((1, 2)))

    return _module(forward)


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "vgg16": (vgg16, (1, 4, 16)),
    "resnet50": (resnet50, (2, 8, 32)),
    "inception-v3": (inception_v3, (2, 8, 32)),
    "lstm-lm": (lstm_lm, (4, 16, 32)),
    "transformer": (transformer, (2, 8, 16)),
    "bert-base": (bert_base, (1, 4, 16)),
    "mobilenet-v2": (mobilenet_v2, (2, 8, 32)),
    "unet": (unet, (1, 4, 16)),
    "mlp": (mlp, (32, 256, 1024)),
    "lenet": (lenet, (16, 64, 256)),
    "gru-classifier": (gru_classifier, (8, 32, 128)),
    "separable-cnn": (separable_cnn, (4, 16, 64)),
}
"""Name → how it is built, and its batch sizes: nothing runs, so they can be those of real training."""


def measure(name: str, batch_size: int) -> dict[str, Any]:
    """The step's bytes, by oomcast and by XLA."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    from ..checks.jax_check import XLA_FLAGS, figures_of_step

    os.environ["XLA_FLAGS"] = XLA_FLAGS

    build = FURTHER[name].build if name in FURTHER else MODELS[name][0]
    return {"model": name, "batch_size": batch_size, **figures_of_step(build, batch(name, batch_size))}


def batch(name: str, batch_size: int) -> Any:
    """Shapes only."""
    import jax

    if name in FURTHER:
        return FURTHER[name].fed(jax.ShapeDtypeStruct, batch_size)
    sample, labels = FORMS[name]
    kind = "int32" if sample == labels else "float32"
    return (
        jax.ShapeDtypeStruct((batch_size, *sample), kind),
        jax.ShapeDtypeStruct((batch_size, *labels), "int32"),
    )


def _module(forward: Callable[[Any, Any], Any]) -> Any:
    """A Flax module whose layers are made while `forward(flax.linen, x)` runs."""
    from flax import linen

    class Model(linen.Module):
        @linen.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            return forward(linen, x)

    return Model()


def _norm(nn: Any, x: Any) -> Any:
    return nn.BatchNorm(use_running_average=False)(x)


def _encoder(width: int, heads: int, depth: int, words: int) -> Any:
    def forward(nn: Any, tokens: Any) -> Any:
        x = nn.Embed(words, width)(tokens)
        for _ in range(depth):
            attention = nn.MultiHeadDotProductAttention(heads, dropout_rate=0.1, deterministic=False)(x)
            x = nn.LayerNorm()(x + nn.Dropout(0.1, deterministic=False)(attention))
            wide = nn.Dense(width)(nn.gelu(nn.Dense(4 * width)(x)))
            x = nn.LayerNorm()(x + nn.Dropout(0.1, deterministic=False)(wide))
        return nn.Dense(words)(x)

    return _module(forward)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
