"""XLA's own plan of a step of JAX for a named GPU, or for several of them, without a GPU.

Its compiler for GPUs comes in two wheels (`oomcast[jax-gpu]`), needs neither a driver nor a card, and compiles for a
target that is described to it. What it tells is read in the room of XLA.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ...devices import Gpu
from ...errors import BadInput
from ...trace import Category
from ..explain import first_sentence
from ..stderr import silenced
from ..xla.compiled_text import read_program
from ..xla.plan import BY_LIBRARY, Compiled, NotAsked, compile_in, schedule_of, what_was_told
from ..xla.schedule import Schedule, Slot
from ..xla.target import mesh_devices
from .graph import place_of_name
from .step import TrainingStep, named_leaves

__all__ = ["Told", "ask_xla"]

AXIS = "data"
"""The name of the one axis over which a batch is divided, where the job says nothing."""


@dataclass(frozen=True)
class Told:
    schedule: Schedule
    notes: Sequence[str]


def ask_xla(step: TrainingStep, gpu: Gpu, devices: int = 1) -> Told | NotAsked:
    """The plan for one device of `devices`, or why there is none."""
    found = mesh_devices(gpu, devices)
    if isinstance(found, NotAsked):
        return found
    arguments, notes = _placed(step, found)
    # It says at length that there is no driver.
    with silenced(), tempfile.TemporaryDirectory(prefix="oomcast-xla-") as folder:
        try:
            lowered = step.function.lower(*arguments)
            compiled, reports, by_library = compile_in(
                folder, lambda options: lowered.compile(compiler_options=options), (jax.errors.JaxRuntimeError,)
            )
        except jax.errors.JaxRuntimeError as error:
            if devices > 1:
                raise BadInput(f"XLA cannot compile this step for {devices} GPUs: {first_sentence(error)}") from error
            return NotAsked(f"its compiler refused the step ({first_sentence(error)})")
        told = what_was_told(compiled.memory_analysis(), compiled.as_text(), reports)
    if by_library:
        notes.append(BY_LIBRARY)
    notes = [
        f"XLA itself (jax {jax.__version__}) planned the step for {gpu.sm}; what it would find out by running kernels "
        "on the card (which algorithms win) is not in it",
        *notes,
    ]
    return Told(_schedule(step, lowered, compiled, told, devices), notes)


# -------- Where the arguments lie


def _placed(step: TrainingStep, devices: Sequence[Any]) -> tuple[tuple[Any, ...], list[str]]:
    """The arguments on these devices. What the job itself has placed stays as it is; else batches are divided."""
    leaves = jax.tree.leaves(step.arguments)
    own = [leaf.sharding for leaf in leaves if isinstance(getattr(leaf, "sharding", None), NamedSharding)]
    mesh = own[0].mesh if own else Mesh(devices, (AXIS,))
    notes = []
    if len(devices) > 1 and not own:
        notes.append(
            f"The job places nothing: its batch is divided over the {len(devices)} GPUs, parameters and optimizer "
            "state are whole on each; give batch() and shardings(params) to say otherwise"
        )

    def place(leaf: Any, category: Category) -> Any:
        sharding = getattr(leaf, "sharding", None)
        if not isinstance(sharding, NamedSharding):
            divided = category is Category.INPUT and not own and leaf.shape and len(devices) > 1
            if divided and leaf.shape[0] % len(devices):
                raise BadInput(
                    f"a batch of {leaf.shape[0]} cannot be divided over {len(devices)} GPUs; "
                    f"choose a multiple of {len(devices)}."
                )
            sharding = NamedSharding(mesh, PartitionSpec(AXIS) if divided else PartitionSpec())
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    placed = tuple(
        jax.tree.map(lambda leaf, category=category: place(leaf, category), tree)
        for tree, category in zip(step.arguments, step.categories, strict=True)
    )
    return placed, notes


# -------- What the step is given and returns


def _schedule(step: TrainingStep, lowered: Any, compiled: Any, told: Compiled, devices: int) -> Schedule:
    program = read_program(told.program)
    donors = set(program.aliased.values())
    inputs = _shards(jax.tree.leaves(compiled.input_shardings[0]), devices)
    outputs = _shards(jax.tree.leaves(compiled.output_shardings), devices)
    arguments = [
        _slot(name, category, leaf, sharding, donated=number in donors)
        for number, ((name, category, leaf), sharding) in enumerate(
            zip(named_leaves(step.arguments, step.categories), inputs, strict=True)
        )
    ]
    results = [
        _slot(name, category, leaf, sharding)
        for number, ((name, category, leaf), sharding) in enumerate(
            zip(named_leaves(lowered.out_info, step.kept), outputs, strict=True)
        )
        if number not in program.aliased
    ]
    return schedule_of(told, program, arguments, results, place_of_name)


def _shards(shardings: Sequence[Any], devices: int) -> Sequence[Any]:
    return shardings if devices > 1 else [None] * len(shardings)


def _slot(name: str, category: Category, leaf: Any, sharding: Any, *, donated: bool = False) -> Slot:
    shape = tuple(leaf.shape) if sharding is None else tuple(sharding.shard_shape(leaf.shape))
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):  # a key: two words of 32 bits
        return Slot(name, category, 8 * math.prod(shape), (*shape, 2), "uint32", donated)
    return Slot(name, category, leaf.dtype.itemsize * math.prod(shape), shape, str(leaf.dtype), donated)
