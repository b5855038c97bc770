"""A JAX job's training step as people write it, traced for shapes: its jaxpr and what each argument is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding

from ...errors import BadInput
from ...spec import DEFAULT_OPTIMIZER, OPTIMIZER_KINDS, JobPhase, Precision, Workload, missing_optimizer
from ...trace import Category
from ..explain import first_sentence
from ..job_files import JobFunctions
from .models import Functional, describe, functional

__all__ = ["TrainingStep", "batch_form", "job_step", "named_leaves", "optimizer_of"]

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    name: functools.partial(getattr(optax, kind.class_name.lower()), 1e-3, **kind.options)
    for name, kind in OPTIMIZER_KINDS.items()
    if hasattr(optax, kind.class_name.lower())  # those of libraries for torch are not there
}
"""Name → what makes it; Optax writes its functions as the classes of others, in lower case."""


def optimizer_of(job: JobFunctions, params: Any, workload: Workload) -> Any:
    """The one that was asked for, else the job's, else AdamW; over several micro-batches if there are."""
    chosen = _chosen(job, params, workload)
    return chosen if workload.accumulation == 1 else optax.MultiSteps(chosen, workload.accumulation)


def _chosen(job: JobFunctions, params: Any, workload: Workload) -> Any:
    if workload.optimizer is not None:
        if workload.optimizer not in OPTIMIZERS:
            raise missing_optimizer("Optax", workload.optimizer, OPTIMIZERS)
        return OPTIMIZERS[workload.optimizer]()
    if job.optimizer is None:
        return OPTIMIZERS[DEFAULT_OPTIMIZER]()
    found = job.optimizer(params)
    if not (hasattr(found, "init") and hasattr(found, "update")):
        raise BadInput(f"optimizer() in {workload.job.name} returned no optimizer of Optax (init and update).")
    return found


_COMPUTE = {Precision.AMP_FP16: jnp.float16, Precision.AMP_BF16: jnp.bfloat16, Precision.BF16: jnp.bfloat16}


@dataclass(frozen=True)
class TrainingStep:
    """A jitted function with the shapes of its arguments."""

    function: Any
    """`jax.jit` of the step."""
    arguments: tuple[Any, ...]
    categories: tuple[Category, ...]
    """What each of the arguments holds."""
    kept: tuple[Category, ...]
    """What the first results hold, which stay to the next step; the others are temporaries."""
    donates: bool = False
    evaluates: bool = False
    """Whether it takes no gradients."""
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of libraries that only such a job uses."""


def job_step(job: JobFunctions, batch: Any, workload: Workload) -> TrainingStep:
    """What the job runs for a batch: a training step, or what `--phase` asks for."""
    described = describe(job.model)
    if described.is_keras:
        from .keras_step import keras_step

        return keras_step(described.built, job, batch, workload)
    model = functional(described, batch, workload)
    if workload.phase is JobPhase.TRAINING:
        return _training_step(model, job, batch, workload)
    return _evaluation_step(model, job, batch, workload)


def _training_step(model: Functional, job: JobFunctions, batch: Any, workload: Workload) -> TrainingStep:
    """The job's own `step`, or one of its model, loss and optimizer.

    `step(params, state, opt_state, key, batch)` returns the first three anew and the loss. They are not donated unless
    the job says `donate = True`: then the old ones give their memory to the new ones.
    """
    params, compute = _params(model, job, workload), _COMPUTE.get(workload.precision)
    optimizer = optimizer_of(job, params, workload)
    loss = _loss(model, job, batch, compute)
    opt_state = jax.eval_shape(optimizer.init, params)
    if job.shardings is not None:
        opt_state = _placed_alike(opt_state, params)

    def step(params: Any, state: Any, opt_state: Any, key: Any, batch: Any) -> Any:
        (value, new_state), gradients = jax.value_and_grad(loss, has_aux=True)(params, state, key, batch)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        params = jax.tree.map(lambda old, change: (old + change).astype(old.dtype), params, updates)
        return params, new_state, opt_state, value

    key = jax.eval_shape(lambda: jax.random.key(0))
    return TrainingStep(
        # Callers hold what a step does not use as well.
        jax.jit(step, donate_argnums=(0, 1, 2) if job.donate else (), keep_unused=True),
        (params, model.state, opt_state, key, batch),
        (*_TRAINED, Category.INPUT, Category.INPUT),
        _TRAINED,
        donates=job.donate,
    )


_TRAINED = (Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE)


def _evaluation_step(model: Functional, job: JobFunctions, batch: Any, workload: Workload) -> TrainingStep:
    """The forward pass: its output for `--phase inference`, its loss for `--phase eval`. Nothing is donated."""
    params, compute = _params(model, job, workload), _COMPUTE.get(workload.precision)
    if workload.phase is JobPhase.EVAL:
        loss = _loss(model, job, batch, compute, training=False)

        def step(params: Any, state: Any, key: Any, batch: Any) -> Any:
            return loss(params, state, key, batch)[:1]

    else:
        batch = batch[0] if isinstance(batch, tuple) else batch

        def step(params: Any, state: Any, key: Any, batch: Any) -> Any:
            return model.apply(_cast(params, compute), state, key, _cast(batch, compute), training=False)[:1]

    key = jax.eval_shape(lambda: jax.random.key(0))
    return TrainingStep(
        jax.jit(step, keep_unused=True),
        (params, model.state, key, batch),
        (Category.PARAMETER, Category.BUFFER, Category.INPUT, Category.INPUT),
        (),
        evaluates=True,
    )


def _params(model: Functional, job: JobFunctions, workload: Workload) -> Any:
    """In the type that was asked for, where the job has them lie."""
    params = model.params
    if workload.precision is Precision.BF16:
        params = jax.tree.map(lambda leaf: _cast_form(leaf, jnp.bfloat16), params)
    return params if job.shardings is None else _placed(params, job.shardings(params), workload)


def named_leaves(trees: Sequence[Any], categories: Sequence[Category]) -> list[tuple[str, Category, Any]]:
    """Every leaf with its name, of trees that each have their category; what is beyond them is a temporary."""
    leaves = []
    for number, tree in enumerate(trees):
        category = categories[number] if number < len(categories) else Category.TEMPORARY
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            leaves.append((str(jax.tree_util.keystr(path, simple=True, separator=".")), category, leaf))
    return leaves


def batch_form(batch: Any, workload: Workload) -> Any:
    """What `batch()` returned (arrays or `ShapeDtypeStruct`s, in tuples and dicts) as shapes, (x, y) as a tuple."""
    batch = tuple(batch) if isinstance(batch, list) else batch
    try:
        form = jax.tree.map(lambda leaf: _form(leaf, getattr(leaf, "sharding", None)), batch)
    except (AttributeError, TypeError) as error:
        raise BadInput(
            f"batch() in {workload.job.name} returned something without a shape and a dtype; return arrays or "
            "jax.ShapeDtypeStruct, as (x, y)."
        ) from error
    for leaf in jax.tree.leaves(form):
        if not all(isinstance(extent, int) for extent in leaf.shape):
            raise BadInput(
                f"batch() in {workload.job.name} leaves a dimension open ({leaf.shape}); give every dimension a size."
            )
    return form


def _form(leaf: Any, sharding: Any = None) -> Any:
    """Only a sharding that the job has chosen is kept: arrays lie somewhere in any case."""
    chosen = sharding if isinstance(sharding, NamedSharding) else None
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=chosen)


def _placed(params: Any, shardings: Any, workload: Workload) -> Any:
    """`shardings` may stop above the leaves, as JAX's own trees of shardings do."""
    try:
        return jax.tree.map(
            lambda sharding, below: jax.tree.map(lambda leaf: _form(leaf, sharding), below), shardings, params
        )
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"shardings(params) in {workload.job.name} returned a tree that is not one of the parameters: "
            f"{first_sentence(error)}"
        ) from error


def _placed_alike(opt_state: Any, params: Any) -> Any:
    """What an optimizer keeps of a parameter lies as the parameter does; all else is whole everywhere."""
    known = dict(jax.tree_util.tree_flatten_with_path(params)[0])

    def alike(path: Any, leaf: Any) -> Any:
        for start in range(len(path)):
            parameter = known.get(path[start:])
            if parameter is not None and parameter.shape == leaf.shape:
                return _form(leaf, parameter.sharding)
        return leaf

    return jax.tree_util.tree_map_with_path(alike, opt_state)


def _loss(
    model: Functional, job: JobFunctions, batch: Any, compute: Any, *, training: bool = True
) -> Callable[..., tuple[Any, Any]]:
    """The loss and the new state, of parameters, state, a key and a batch."""
    if job.loss is not None:
        own = job.loss

        def given(params: Any, state: Any, key: Any, batch: Any) -> tuple[Any, Any]:
            params, batch = _cast(params, compute), _cast(batch, compute)
            value = own(model.view(params, state), batch)
            return value if isinstance(value, tuple) else (value, state)

        return given
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise BadInput("batch() returned no labels; return (x, y), or write loss(params, batch) in the job file.")

    def default(params: Any, state: Any, key: Any, batch: Any) -> tuple[Any, Any]:
        x, y = batch
        output, new_state = model.apply(_cast(params, compute), state, key, _cast(x, compute), training=training)
        return _distance(output.astype(jnp.float32), y), new_state

    return default


def _distance(output: Any, y: Any) -> Any:
    """Cross entropy where the labels number classes, else the mean squared error."""
    if jnp.issubdtype(y.dtype, jnp.integer):
        return optax.softmax_cross_entropy_with_integer_labels(output, y).mean()
    return jnp.mean((output - y) ** 2)


def _cast(tree: Any, dtype: Any) -> Any:
    if dtype is None:
        return tree
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree)


def _cast_form(leaf: Any, dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(leaf.shape, dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
