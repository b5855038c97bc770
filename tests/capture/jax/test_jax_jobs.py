"""JAX jobs from file to Estimate, and beside what XLA plans for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import oomcast
from lab.checks.jax_check import NamedJob, figures_of_step
from oomcast.capture.jax.run import follow
from oomcast.capture.jax.step import job_step
from oomcast.capture.job_files import JobFunctions
from oomcast.errors import BadInput
from oomcast.spec import Workload
from oomcast.trace.builder import peak_of
from oomcast.units import MiB

pytestmark = pytest.mark.filterwarnings("ignore")

BATCH = """
def batch(batch_size):
    return jax.ShapeDtypeStruct((batch_size, 64), "float32"), jax.ShapeDtypeStruct((batch_size,), "int32")
"""
LINEN = """
import jax
from flax import linen as nn

def model():
    return nn.Sequential([nn.Dense(512), nn.relu, nn.Dense(512), nn.relu, nn.Dense(10)])
"""
NNX = """
import jax
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(64, 512, rngs=rngs), nnx.Linear(512, 512, rngs=rngs),
                                nnx.Linear(512, 10, rngs=rngs)])

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = nnx.relu(layer(x))
        return self.layers[-1](x)

def model():
    return Net(nnx.Rngs(0))
"""
EQUINOX = """
import equinox as eqx
import jax

def model():
    return eqx.nn.MLP(64, 10, 512, 2, key=jax.random.key(0))
"""
PAIR = """
import jax
import jax.numpy as jnp

SIZES = (64, 512, 512, 10)

def init(key, x):
    return [(jnp.zeros((a, b)), jnp.zeros(b)) for a, b in zip(SIZES, SIZES[1:])]

def apply(params, x):
    for weights, bias in params[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = params[-1]
    return x @ weights + bias

def model():
    return init, apply
"""
WEIGHTS = (64 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10) * 4


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(LINEN + BATCH)
    return path


def estimate(path: Path, **options: Any) -> oomcast.Estimate:
    return oomcast.estimate(path, batch_size=256, device="a100-40gb", use_calibration=False, **options)


@pytest.mark.parametrize("text", [LINEN, NNX, EQUINOX, PAIR], ids=["linen", "nnx", "equinox", "pair"])
def test_models_of_any_library_need_the_same(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.py"
    path.write_text(text + BATCH)
    found = estimate(path, optimizer="adam")

    # The old and the new ones, since the step donates nothing.
    assert 2 * WEIGHTS <= found.breakdown["parameter"] <= 2 * WEIGHTS + MiB
    assert 4 * WEIGHTS <= found.breakdown["optimizer_state"] <= 4 * WEIGHTS + MiB
    assert found.unsupported == {}
    assert found.provenance["environment"].startswith("jax-")


def test_three_quarters_of_the_card_are_taken_whatever_is_needed(job: Path) -> None:
    taken, grown = estimate(job), estimate(job, alloc_conf="allow_growth:true")

    assert taken.peak_reserved == pytest.approx(0.75 * 40 * 1024 * MiB, rel=0.03)
    assert grown.peak_reserved < 256 * MiB
    assert taken.peak_allocated == pytest.approx(grown.peak_allocated, rel=0.2)
    assert taken.least_capacity == grown.least_capacity < taken.device_total
    assert taken.p_oom == grown.p_oom


def test_what_does_not_fit_in_three_quarters_does_not_fit(job: Path) -> None:
    job.write_text(job.read_text().replace("nn.Dense(512), nn.relu, nn.Dense(512)", "nn.Dense(37000), nn.Dense(37000)"))
    one = estimate(job, optimizer="sgd")
    slots = estimate(job, optimizer="adam")

    assert one.verdict.value == "fits"
    assert slots.verdict.value == "oom"  # 33 GB would fit the card, but not its pool


def test_donated_arguments_are_held_once(job: Path) -> None:
    held_twice = estimate(job, optimizer="adam")
    job.write_text(job.read_text() + "\ndonate = True\n")
    donated = estimate(job, optimizer="adam")

    assert donated.breakdown["parameter"] <= WEIGHTS + MiB
    assert held_twice.peak_allocated - donated.peak_allocated > WEIGHTS


def test_options_change_what_they_should(job: Path) -> None:
    plain = estimate(job, optimizer="sgd")

    assert estimate(job, optimizer="sgd", precision="bf16").peak_allocated < plain.peak_allocated
    assert estimate(job, optimizer="sgd", accumulation=4).peak_allocated > plain.peak_allocated
    with pytest.raises(BadInput, match="without a suffix"):
        estimate(job, optimizer="adam-fused")
    with pytest.raises(BadInput, match=r"jax\.checkpoint"):
        estimate(job, checkpointing=True)


def test_the_jobs_own_loss_and_optimizer_are_used(job: Path) -> None:
    own = """
import optax, jax.numpy as jnp

def loss(params, batch):
    return jnp.sum(params["params"]["layers_0"]["kernel"])

def optimizer(params):
    return optax.sgd(0.1)
"""
    job.write_text(job.read_text() + own)
    found = estimate(job)

    assert found.breakdown["optimizer_state"] == 0
    assert found.breakdown["activation"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('jax.ShapeDtypeStruct((batch_size, 64), "float32")', "3"), "without a shape"),
        (('jax.ShapeDtypeStruct((batch_size,), "int32")', '"y"'), "without a shape"),
        (("return nn.Sequential(", "return str("), "return a module"),
        (("return nn.Sequential(", "raise KeyError('weights')\n    return str("), "raised KeyError"),
        (("nn.relu, nn.Dense(10)", "lambda x: x if x.sum() > 0 else -x, nn.Dense(10)"), "needs the value of an array"),
        (("nn.relu, nn.Dense(10)", "lambda x: x[x > 0], nn.Dense(10)"), "size depends on values"),
        (
            ("nn.relu, nn.Dense(10)", "lambda x: jax.lax.while_loop(lambda x: x.sum() > 0, lambda x: x / 2, x)"),
            "trip count is not known",
        ),
    ],
)
def test_bad_jobs_get_a_sentence(job: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in job.read_text()
    job.write_text(job.read_text().replace(*change))

    with pytest.raises(BadInput, match=message):
        estimate(job)


def test_a_step_needs_what_xla_plans_for_it() -> None:
    import jax
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.max_pool(nn.relu(nn.BatchNorm(use_running_average=False)(nn.Conv(16, (3, 3))(x))), (2, 2), (2, 2))
            x = nn.Dropout(0.1, deterministic=False)(nn.gelu(nn.Dense(256)(x.reshape(x.shape[0], -1))))
            return nn.Dense(10)(nn.LayerNorm()(x))

    batch = jax.ShapeDtypeStruct((64, 32, 32, 3), "float32"), jax.ShapeDtypeStruct((64,), "int32")
    for donate in (False, True):
        figures = figures_of_step(Net, batch, donate=donate)
        assert figures["temporaries"] > 4 * MiB
        assert figures["estimated"] == pytest.approx(figures["measured"], rel=0.03)


def test_what_a_branch_returns_is_not_held_twice() -> None:
    """Several micro-batches by Optax: the update is a branch that returns all parameters and moments."""
    import jax
    from flax import linen as nn

    job = JobFunctions(lambda: nn.Dense(2048), lambda: batch, None, None)
    batch = jax.ShapeDtypeStruct((8, 2048), "float32"), jax.ShapeDtypeStruct((8,), "int32")
    step = job_step(job, batch, Workload.create(NamedJob, optimizer="adam", steps=1, accumulation=4))
    told = step.function.lower(*step.arguments).compile().memory_analysis()
    held = told.argument_size_in_bytes + told.output_size_in_bytes
    estimated = peak_of(follow(step, 1, on_gpu=False, versions={}, workload={}))
    weights = 2048 * 2048 * 4
    assert held == pytest.approx(8 * weights, rel=0.01)  # parameters, two moments and a sum, old and new
    assert held <= estimated < held + 1.1 * weights  # and a gradient, which XLA's order needs not


def test_job_functions_need_no_donation() -> None:
    assert not JobFunctions(lambda: None, lambda: None, None, None).donate


@pytest.mark.parametrize("text", [LINEN, NNX, EQUINOX, PAIR], ids=["linen", "nnx", "equinox", "pair"])
def test_inference_holds_the_weights_and_an_output_whatever_the_library(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.py"
    path.write_text(text + BATCH)
    found = estimate(path, phase="inference", alloc_conf="allow_growth:true")

    assert WEIGHTS <= found.breakdown["parameter"] < 2 * WEIGHTS  # the pool's blocks may be larger than what they hold
    assert found.breakdown.get("optimizer_state", 0) == found.breakdown.get("gradient", 0) == 0
    assert "evaluation" in found.highest_by_phase
    assert not any("donate" in sentence for sentence in found.assumptions)
    assert estimate(path, phase="eval").breakdown.get("optimizer_state", 0) == 0
    with pytest.raises(BadInput, match="--phase generate is not followed"):
        estimate(path, phase="generate")


ASKS_WHETHER_IT_TRAINS = """
import jax
from flax import linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        assert not train or self.is_initializing(), "it trains"
        return nn.Dense(10)(x)

def model():
    return Net()
"""


def test_inference_runs_without_dropout(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(ASKS_WHETHER_IT_TRAINS + BATCH)

    with pytest.raises(BadInput, match="it trains"):
        estimate(path)
    assert estimate(path, phase="inference").peak_allocated > 0
