"""What a job's `model()` returns, as functions of its parameters; nothing is allocated for them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from ...errors import BadInput
from ...spec import Workload
from ..frameworks import check_framework

__all__ = ["Described", "Functional", "describe", "functional"]

_FLAGS = {"train": True, "training": True, "is_training": True, "deterministic": False, "use_running_average": False}
"""How modules are told that they train; those that a module's call has no default for, or has, are given."""

Key = Any
Tree = Any


@dataclass(frozen=True)
class Functional:
    """A model as JAX runs it: `apply(params, state, key, x, training=…)` gives its output and the new state."""

    params: Tree
    """What gradients are taken for, as `ShapeDtypeStruct`s."""
    state: Tree
    """What the forward pass updates beside them (running averages); mostly empty."""
    apply: Callable[..., tuple[Any, Tree]]
    view: Callable[[Tree, Tree], Any]
    """What the job's own `loss(…, batch)` is given: the variables, or the model itself where it holds them."""


@dataclass(frozen=True)
class Described:
    """What `model()` returned, and its arrays as `ShapeDtypeStruct`s."""

    built: Any
    arrays: Any
    parts: Any = None
    """What it is beside its arrays, of a kind of model that holds them."""

    @property
    def is_keras(self) -> bool:
        return _is(self.built, "keras", "", "Model")


def describe(model: Callable[[], Any]) -> Described:
    """Call `model()` in a trace: arrays that it makes are only described."""
    made: list[Any] = []

    def probe() -> Tree:
        built = model()
        made.append(built)
        if _is(built, "flax", "nnx", "Module"):
            from flax import nnx

            graph, params, rest = nnx.split(built, nnx.Param, ...)
            made.append(graph)
            return nnx.to_pure_dict(params), nnx.to_pure_dict(rest)
        if _is(built, "equinox", "", "Module"):
            import equinox

            arrays, static = equinox.partition(built, equinox.is_array)
            made.append(static)
            return arrays
        return ()

    arrays = jax.eval_shape(probe)
    check_framework(made[0], "jax")
    return Described(made[0], arrays, *made[1:])


def functional(described: Described, batch: Any, workload: Workload) -> Functional:
    built, arrays = described.built, described.arrays
    x = batch[0] if isinstance(batch, tuple) else batch
    if _is(built, "flax", "nnx", "Module"):
        return _of_nnx(described.parts, *arrays)
    if _is(built, "equinox", "", "Module"):
        return _of_equinox(described.parts, arrays)
    if _is(built, "flax", "linen", "Module"):
        return _of_linen(built, x)
    if hasattr(built, "init") and hasattr(built, "apply"):
        return _of_haiku(built, x)
    if isinstance(built, tuple) and len(built) == 2 and all(callable(part) for part in built):
        return _of_pair(*built, x)
    raise BadInput(
        f"model() in {workload.job.name} returned {type(built).__name__}; return a module of Flax, Equinox or Haiku, "
        "a keras.Model, or the functions (init, apply): init(key, x) gives the parameters, apply(params, x) the output."
    )


def _is(built: Any, package: str, room: str, name: str) -> bool:
    """Whether it is an instance of such a class, of a package that the job has loaded."""
    module = sys.modules.get(f"{package}.{room}" if room else package)
    return module is not None and isinstance(built, getattr(module, name))


def _of_linen(module: Any, x: Any) -> Functional:
    flags = _flags(type(module).__call__)

    def init() -> Any:
        key = jax.random.key(0)
        return module.init({"params": key, "dropout": key}, x_zeros(x), **flags)

    variables = dict(jax.eval_shape(init))
    params = variables.pop("params", {})

    def apply(params: Tree, state: Tree, key: Key, x: Any, *, training: bool = True) -> tuple[Any, Tree]:
        given = {"params": params, **state}
        if not training:
            return module.apply(given, x, **{name: not value for name, value in flags.items()}), state
        output = module.apply(given, x, rngs={"dropout": key}, mutable=list(state) or False, **flags)
        return (output[0], dict(output[1])) if state else (output, state)

    return Functional(params, variables, apply, lambda params, state: {"params": params, **state})


def _of_nnx(graph: Any, params: Tree, state: Tree) -> Functional:
    from flax import nnx

    def merged(params: Tree, state: Tree) -> Any:
        return nnx.merge(graph, nnx.State(params), nnx.State(state))

    def apply(params: Tree, state: Tree, key: Key, x: Any, *, training: bool = True) -> tuple[Any, Tree]:
        model = merged(params, state)
        model.train() if training else model.eval()
        output = model(x)
        _, _, rest = nnx.split(model, nnx.Param, ...)
        return output, nnx.to_pure_dict(rest)

    return Functional(params, state, apply, merged)


def _of_equinox(static: Any, arrays: Tree) -> Functional:
    import equinox

    params, state = equinox.partition(arrays, lambda leaf: _is_float(leaf))

    def merged(params: Tree, state: Tree) -> Any:
        return equinox.combine(params, state, static)

    def apply(params: Tree, state: Tree, key: Key, x: Any, *, training: bool = True) -> tuple[Any, Tree]:
        model = equinox.nn.inference_mode(merged(params, state), not training)
        wants_key = "key" in inspect.signature(type(model).__call__).parameters
        leaf = jax.tree.leaves(x)[0]
        if wants_key:
            keys = jax.random.split(key, leaf.shape[0])
            return jax.vmap(lambda sample, one: model(sample, key=one))(x, keys), state
        return jax.vmap(model)(x), state

    return Functional(params, state, apply, merged)


def _of_haiku(transformed: Any, x: Any) -> Functional:
    made = jax.eval_shape(lambda: transformed.init(jax.random.key(0), x_zeros(x)))
    has_state = type(transformed).__name__ == "TransformedWithState"
    params, state = made if has_state else (made, {})

    def apply(params: Tree, state: Tree, key: Key, x: Any, *, training: bool = True) -> tuple[Any, Tree]:
        if has_state:
            output: tuple[Any, Tree] = transformed.apply(params, state, key, x)
            return output
        return transformed.apply(params, key, x), state

    return Functional(params, state, apply, lambda params, state: (params, state) if has_state else params)


def _of_pair(init: Callable[..., Any], forward: Callable[..., Any], x: Any) -> Functional:
    params = jax.eval_shape(lambda: init(jax.random.key(0), x_zeros(x)))

    def apply(params: Tree, state: Tree, key: Key, x: Any, *, training: bool = True) -> tuple[Any, Tree]:
        return forward(params, x), state

    return Functional(params, {}, apply, lambda params, state: params)


def x_zeros(x: Any) -> Any:
    """Stand-ins to be used within a trace."""
    return jax.tree.map(lambda leaf: jax.numpy.zeros(leaf.shape, leaf.dtype), x)


def _is_float(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact)


def _flags(call: Callable[..., Any]) -> dict[str, bool]:
    known = inspect.signature(call).parameters
    return {name: value for name, value in _FLAGS.items() if name in known}
