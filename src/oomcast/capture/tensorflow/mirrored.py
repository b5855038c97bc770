"""`tf.distribute.MirroredStrategy`: one replica of a step, as TensorFlow's own graph has it for each of several GPUs.

The GPUs are logical devices of this machine's processor: the strategy mirrors the variables over them, writes the step
once for each, and sums the gradients by the collective operators that it uses between GPUs as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ...errors import BadInput
from ...spec import Machines

__all__ = ["followed_replica", "in_place_of_gpus", "on_each_gpu", "scope_of", "strategy_of"]


def in_place_of_gpus(machines: Machines) -> None:
    """Before anything of TensorFlow runs: so many devices as the job has GPUs."""
    if machines.nodes > 1:
        raise BadInput("several nodes are not followed for TensorFlow (MultiWorkerMirroredStrategy); name one node.")
    (processor,) = tf.config.list_physical_devices("CPU")
    device = tf.config.LogicalDeviceConfiguration
    tf.config.set_logical_device_configuration(processor, [device() for _ in range(machines.world_size)])


def strategy_of(model: Any, gpus: int, reference: str) -> Any:
    """The strategy that a Keras model was made under, or None. Raises BadInput where the GPUs are not its replicas'."""
    strategy = model._distribute_strategy
    replicas = 1 if strategy is None else strategy.num_replicas_in_sync
    if strategy is not None and not isinstance(strategy, tf.distribute.MirroredStrategy):
        raise BadInput(
            f"{reference} makes its model under {type(strategy).__name__}; of TensorFlow's strategies "
            "MirroredStrategy is followed."
        )
    if replicas != gpus:
        raise BadInput(
            f"{reference} trains on {replicas} of the {gpus} GPUs: make and compile its model under "
            "tf.distribute.MirroredStrategy().scope(), without naming devices, or name one GPU."
        )
    return strategy


@contextlib.contextmanager
def _nothing() -> Iterator[None]:
    yield


def scope_of(strategy: Any) -> Any:
    return _nothing() if strategy is None else strategy.scope()


def on_each_gpu(strategy: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The step as Keras runs it under the strategy; each replica has a batch of its own, of that form."""
    return step if strategy is None else lambda data: strategy.run(step, args=(data,))


def followed_replica(variable: Any) -> tuple[Any, tuple[Any, ...]]:
    """TensorFlow's variable on the GPU that is followed, and those that mirror it on the others."""
    own = variable if isinstance(variable, tf.Variable) else variable.value  # Keras' hold one of TensorFlow's
    mirrored = getattr(own, "values", None)
    return (mirrored[0], tuple(mirrored[1:])) if isinstance(mirrored, tuple) else (own, ())
