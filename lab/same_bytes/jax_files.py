"""Jobs in JAX: name of a file → its text."""

# ruff: noqa: E501
# The text of a job decides its trace: it is not to be reformatted.

from __future__ import annotations

__all__ = ["FILES"]

FILES: dict[str, str] = {}

_JAX_BATCH = """
def batch(batch_size):
    return jax.ShapeDtypeStruct((batch_size, 64), "float32"), jax.ShapeDtypeStruct((batch_size,), "int32")
"""
FILES["jax_linen.py"] = (
    """
import jax
from flax import linen as nn

def model():
    return nn.Sequential([nn.Dense(512), nn.relu, nn.Dense(512), nn.relu, nn.Dense(10)])
"""
    + _JAX_BATCH
)
FILES["jax_donate.py"] = FILES["jax_linen.py"] + "\ndonate = True\n"
FILES["jax_wide.py"] = FILES["jax_linen.py"].replace(
    "nn.Dense(512), nn.relu, nn.Dense(512)", "nn.Dense(20000), nn.Dense(20000)"
)
FILES["jax_nnx.py"] = (
    """
import jax
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(64, 512, rngs=rngs), nnx.Linear(512, 512, rngs=rngs), nnx.Linear(512, 10, rngs=rngs)])

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = nnx.relu(layer(x))
        return self.layers[-1](x)

def model():
    return Net(nnx.Rngs(0))
"""
    + _JAX_BATCH
)
FILES["jax_equinox.py"] = (
    """
import equinox as eqx
import jax

def model():
    return eqx.nn.MLP(64, 10, 512, 2, key=jax.random.key(0))
"""
    + _JAX_BATCH
)
FILES["jax_pair.py"] = (
    """
import jax
import jax.numpy as jnp
import optax

SIZES = (64, 512, 512, 10)

def init(key, x):
    return [(jnp.zeros((a, b)), jnp.zeros(b)) for a, b in zip(SIZES, SIZES[1:])]

def apply(params, x):
    for weights, bias in params[:-1]:
        x = jax.checkpoint(lambda x, w, b: jax.nn.relu(x @ w + b))(x, weights, bias)
    weights, bias = params[-1]
    return x @ weights + bias

def model():
    return init, apply

def loss(params, batch):
    x, y = batch
    return -jnp.mean(jax.nn.log_softmax(apply(params, x))[jnp.arange(y.shape[0]), y])

def optimizer(params):
    return optax.chain(optax.clip_by_global_norm(1.0), optax.rmsprop(1e-3, momentum=0.9))
"""
    + _JAX_BATCH
)
FILES["jax_cnn.py"] = """
import jax
from flax import linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool = True):
        x = nn.Conv(16, (3, 3))(x)
        x = nn.max_pool(nn.relu(nn.BatchNorm(use_running_average=not train)(x)), (2, 2), (2, 2))
        x = nn.gelu(nn.Conv(32, (3, 3), (2, 2), feature_group_count=4)(x))
        x = nn.ConvTranspose(8, (2, 2), (2, 2))(x)
        x = nn.Dropout(0.1, deterministic=not train)(nn.Dense(256)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(nn.LayerNorm()(x))

def model():
    return Net()

def batch(batch_size):
    return jax.ShapeDtypeStruct((batch_size, 32, 32, 3), "float32"), jax.ShapeDtypeStruct((batch_size,), "int32")
"""
FILES["jax_recurrent.py"] = """
import jax
import jax.numpy as jnp
from flax import linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(1000, 64)(tokens)
        x = nn.RNN(nn.LSTMCell(96))(x)
        x = x + nn.Dense(96)(nn.SelfAttention(4)(nn.LayerNorm()(x)))
        return nn.Dense(1000)(x)

def model():
    return Net()

def batch(batch_size):
    return jax.ShapeDtypeStruct((batch_size, 24), "int32"), jax.ShapeDtypeStruct((batch_size, 24), "int32")
"""
FILES["jax_values.py"] = FILES["jax_linen.py"].replace(
    "nn.relu, nn.Dense(10)", "lambda x: x if x.sum() > 0 else -x, nn.Dense(10)"
)
