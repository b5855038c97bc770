"""`horus_fc_mnist.csv`: fully connected nets on MNIST as nvidia-smi saw them, rebuilt in Keras.

The rows grow in powers of two, as TensorFlow's allocator does with memory growth. Each row's process does, in order:

1. The weights are made. Keras draws them with `stateless_uniform`, which works in two temporaries of the same size.
2. `fit` puts the whole data set on the card: 60,000 × 784 floats and the labels.
3. Adam's two slots are made for every weight.
4. XLA, which compiles the step by default on a GPU, times the matrix products on copies of their three operands, each
   with 8 MiB of guard on both sides (`RedzoneAllocator`); nets of one neuron have no product to time.
5. The step runs with one block for all its temporaries, as XLA makes it: the activations that the captured step keeps
   for its backward pass, and two gradients, of which XLA needs each only until its weight is updated.

Every layer but the first and the last is alike, so the captured step of nets with few layers gives that of many.
The constant for the context is the one that fits most rows. The list above was read off the same rows: variants of it
were tried, and these came out best. In a sketch without captured sizes 289 of the 298 rows landed with guards around
three blocks, 282 to 272 with four to six; with five, 276 with two temporaries for a weight, 260 with none or one. With
the temporaries of TensorFlow's own executor, which holds all gradients that wait, in place of XLA's, 187 rows land.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomcast.capture import capture
from oomcast.capture.hooks import hooks_of
from oomcast.devices import context_bytes, default_stack, find_gpu
from oomcast.simulate import BfcAllocator, BfcSettings, DeviceFull, pool_limit
from oomcast.spec import Spec
from oomcast.trace import Category, Phase, Trace
from oomcast.units import MiB

from .report import Bar, Outcome, as_mib

BATCH = 32
IMAGES, PIXELS, CLASSES = 60_000, 784, 10
GUARD = 8 * MiB
FEW, MORE = 2, 5
"""Hidden layers of the nets that are captured."""
BELOW, ABOVE = 2 * MiB, 14 * MiB
"""How far a row may lie from its step. From 1 to 981 layers of one neuron, nvidia-smi's figure creeps up by 10 MiB
while the pool stays at one and the same size: that much is not the pool's."""
LEAST_SHARE = 0.9


@dataclass(frozen=True)
class Row:
    neurons: int
    layers: int
    observed: int


@dataclass(frozen=True)
class Width:
    """What the captured nets of one width say about those of any depth."""

    first: tuple[int, ...]
    """Bytes of the first layer's weights, in the order they are made; `middle` and `last` likewise."""
    middle: tuple[int, ...]
    last: tuple[int, ...]
    temporaries: int
    """Of a net with `FEW` layers."""
    per_layer: int

    def weights(self, layers: int) -> list[int]:
        return [*self.first, *self.middle * (layers - 1), *self.last]

    def step(self, layers: int) -> int:
        return self.temporaries + self.per_layer * (layers - FEW)


class Net:
    """A job: so many hidden layers of so many neurons."""

    def __init__(self, neurons: int, layers: int) -> None:
        self._neurons, self._layers = neurons, layers

    def model(self) -> Any:
        import keras
        from keras import layers

        hidden = [layers.Dense(self._neurons, activation="relu") for _ in range(self._layers)]
        net = keras.Sequential([layers.Input((PIXELS,)), *hidden, layers.Dense(CLASSES, activation="softmax")])
        net.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
        return net

    def batch(self, batch_size: int) -> Any:
        import numpy

        return numpy.zeros((batch_size, PIXELS), "float32"), numpy.zeros((batch_size,), "int32")


def run(folder: Path) -> Outcome:
    hooks_of("tensorflow").load()  # loaded here, it is there in every fork that captures
    rows = read_rows(folder / "horus_fc_mnist.csv")
    widths = {neurons: captured(neurons) for neurons in sorted({row.neurons for row in rows})}
    gpu = find_gpu("a100-40gb")
    stack = default_stack(None, "tensorflow")
    limit = pool_limit(gpu.usable_memory, context_bytes(gpu, stack), gpu.compute_capability)
    pools = [pool_of(row, widths[row.neurons], limit) for row in rows]
    context = best_constant(rows, pools)
    landed = [is_on_step(row, pool, context) for row, pool in zip(rows, pools, strict=True)]
    share = sum(landed) / len(landed)
    missed = [
        (f"{row.neurons} × {row.layers}", as_mib(row.observed), as_mib(pool + context))
        for row, pool, good in zip(rows, pools, landed, strict=True)
        if not good
    ]
    return Outcome(
        title=f"Horus: {len(rows)} fully connected nets on MNIST; those that miss their step",
        columns=("neurons × layers", "nvidia-smi MiB", "simulated MiB"),
        rows=missed,
        bars=(Bar(f"at least {LEAST_SHARE:.0%} of the rows on their step", f"{share:.1%}", share >= LEAST_SHARE),),
        notes=(f"the one constant for the context: {as_mib(context)} MiB; the pool's limit: {as_mib(limit)} MiB",),
    )


def read_rows(file: Path) -> list[Row]:
    with file.open(encoding="utf-8", newline="") as lines:
        return [
            Row(
                int(float(row["neurons_per_hidden_layer"])),
                int(float(row["hidden_layers"])),
                int(float(row["max_gpu_memory_mib"])) * MiB,
            )
            for row in csv.DictReader(lines)
        ]


def captured(neurons: int) -> Width:
    """Capture two small nets of that width."""
    few, more = (_capture(neurons, layers) for layers in (FEW, MORE))
    weights = [a.nbytes for a in few.allocations if a.category is Category.PARAMETER and a.operator == "variable"]
    low, high = temporaries(few), temporaries(more)
    return Width(tuple(weights[:2]), tuple(weights[2:4]), tuple(weights[-2:]), low, (high - low) // (MORE - FEW))


def temporaries(trace: Trace) -> int:
    """The activations of the second step, and twice its largest gradient."""
    of_step = [made for made in trace.allocations if made.step == 1]
    kept = sum(made.nbytes for made in of_step if made.category is Category.ACTIVATION)
    largest = max(made.nbytes for made in of_step if made.phase is Phase.BACKWARD)
    return kept + 2 * largest


def pool_of(row: Row, width: Width, limit: int) -> int:
    """Bytes of the pool's regions when the row's process has trained; a pool that is full is at its limit."""
    pool = BfcAllocator(BfcSettings(), capacity=limit)
    try:
        weights = width.weights(row.layers)
        for nbytes in weights:
            drawing = [pool.malloc(nbytes) for _ in range(2)]
            pool.malloc(nbytes)
            _free(pool, drawing)
        pool.malloc(IMAGES * PIXELS * 4)
        pool.malloc(IMAGES * 4)
        for nbytes in weights:
            pool.malloc(nbytes)
            pool.malloc(nbytes)
        if row.neurons > 1:
            _free(pool, [pool.malloc(nbytes + 2 * GUARD) for nbytes in _operands(row)])
        _free(pool, [pool.malloc(max(width.step(row.layers), 1))])
    except DeviceFull:
        return max(pool.peak_reserved, limit)
    return pool.peak_reserved


def best_constant(rows: list[Row], pools: list[int]) -> int:
    """The context that puts most rows on their step; the smallest of several as good."""
    candidates = sorted({row.observed - pool for row, pool in zip(rows, pools, strict=True)})

    def landing(context: int) -> int:
        return sum(is_on_step(row, pool, context) for row, pool in zip(rows, pools, strict=True))

    most = max(map(landing, candidates))
    return next(context for context in candidates if landing(context) == most)


def is_on_step(row: Row, pool: int, context: int) -> bool:
    return -BELOW <= row.observed - pool - context <= ABOVE


def _operands(row: Row) -> tuple[int, int, int]:
    """The largest product of the net: activations, weights, activations."""
    into = max(PIXELS, row.neurons) if row.layers > 1 else PIXELS
    return BATCH * into * 4, into * row.neurons * 4, BATCH * row.neurons * 4


def _free(pool: BfcAllocator, addresses: Iterable[int]) -> None:
    for address in addresses:
        pool.free(address)


def _capture(neurons: int, layers: int) -> Trace:
    net = Net(neurons, layers)
    return capture(Spec.read(net, device="a100-40gb", batch_size=BATCH, steps=2, framework="tensorflow"))
