"""A person's own job, as a campaign takes it: a small mixer of image patches under JAX, with Flax."""

import jax
import jax.numpy as jnp
from flax import linen as nn

CLASSES, PATCH = 10, 8


class Mixer(nn.Module):
    width: int
    blocks: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, images: jax.Array) -> jax.Array:
        x = nn.Conv(self.width, (PATCH, PATCH), strides=PATCH)(images)
        x = x.reshape(len(x), -1, self.width)
        for _ in range(self.blocks):
            across = nn.LayerNorm()(x).swapaxes(1, 2)
            across = nn.Dense(x.shape[1])(nn.gelu(nn.Dense(2 * x.shape[1])(across)))
            x = x + across.swapaxes(1, 2)
            x = x + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))
        return nn.Dense(CLASSES)(x.mean(axis=1))


def model(width: int = 256, blocks: int = 4) -> nn.Module:
    return Mixer(width, blocks)


def batch(batch_size: int, edge: int = 96) -> tuple[jax.Array, jax.Array]:
    return jnp.ones((batch_size, edge, edge, 3)), jnp.zeros(batch_size, jnp.int32)
