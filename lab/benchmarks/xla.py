"""`python -m lab bench xla`: what oomcast says of JAX steps on a GPU, beside XLA's own figure for that GPU.

Needs an environment with `oomcast[jax-gpu]` and Flax. Every step is compiled twice for the GPU, which need not be
there: once by oomcast, once plainly, as a person would, for `memory_analysis()`. Beside both stands the model that
answers where XLA's compiler is not installed. Exit code 1 if a figure differs by a byte.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from .frameworks_forms import Example
from .frameworks_jax import MODELS, batch
from .further_flax import MODELS as FURTHER
from .report import Bar, Outcome, as_mib, console, print_outcome

GPU = "a100-40gb"


@dataclass(frozen=True)
class Case:
    name: str
    model: Callable[[], Any]
    given: Callable[[], Any]
    """The batch, when JAX is loaded."""
    devices: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    """Of the workload."""
    donate: bool = False
    columns: int = 1
    """Over how many GPUs the columns of matrices are divided."""
    by_shard_map: bool = False
    """Whether the loss itself says what each GPU computes and what they exchange."""


def cases() -> Iterator[Case]:
    for name, (build, sizes) in MODELS.items():
        yield Case(f"{name} × {sizes[1]}", build, _given(name, sizes[1]))
    yield Case("mlp × 1024, donated", MODELS["mlp"][0], _given("mlp", 1024), donate=True)
    yield Case("resnet50 × 8, donated", MODELS["resnet50"][0], _given("resnet50", 8), donate=True)
    yield Case(
        "transformer × 8, bf16", MODELS["transformer"][0], _given("transformer", 8), options={"precision": "bf16"}
    )
    yield Case("unet × 4, amp", MODELS["unet"][0], _given("unet", 4), options={"precision": "amp-bf16"})
    yield Case("mlp × 256, 4 micro-batches", MODELS["mlp"][0], _given("mlp", 256), options={"accumulation": 4})
    yield Case("lenet × 64, sgd", MODELS["lenet"][0], _given("lenet", 64), options={"optimizer": "sgd"})
    yield Case("12 layers by scan", lambda: _scanned(remat=False), lambda: _rows(64, 128, 256))
    yield Case("12 layers by scan, remat", lambda: _scanned(remat=True), lambda: _rows(64, 128, 256))
    for devices in (2, 4, 8):
        yield Case(f"resnet50 × 16 on {devices}", MODELS["resnet50"][0], _given("resnet50", 16), devices)
    for devices in (2, 8):
        yield Case(f"transformer × 16 on {devices}", MODELS["transformer"][0], _given("transformer", 16), devices)
    for devices, columns in ((2, 2), (4, 2), (8, 4)):
        name = f"mlp × 1024 on {devices}, columns over {columns}"
        yield Case(name, MODELS["mlp"][0], _given("mlp", 1024), devices, columns=columns)
    for devices in (2, 8):
        name = f"mlp × 1024 on {devices}, by shard_map"
        yield Case(name, MODELS["mlp"][0], _given("mlp", 1024), devices, by_shard_map=True)
    for name, example in FURTHER.items():
        given = functools.partial(_fed, example, example.batches[1])
        yield Case(f"{name} × {example.batches[1]}", example.build, given)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench xla", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="TEXT", help="cases whose name holds one of these")
    parser.add_argument("--device", default=GPU, metavar="GPU")
    given = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    chosen = [case for case in cases() if not given.only or any(text in case.name for text in given.only)]
    rows, errors, differing = [], [], 0
    for case in chosen:
        with console.status(case.name):
            asked, own, modelled = _figures(case, given.device)
        differing += asked != own
        error = "–"
        if modelled is not None:
            errors.append(modelled / own - 1)
            error = f"{100 * errors[-1]:+.1f} %"
        rows.append((case.name, as_mib(own), f"{asked - own:+,}", "–" if modelled is None else as_mib(modelled), error))
    bars = [
        Bar("what is said is XLA's own figure, to the byte", f"{len(rows) - differing} of {len(rows)}", not differing)
    ]
    if errors:
        off = sorted(map(abs, errors))
        told = f"median {100 * median(off):.1f} %, worst {100 * off[-1]:.1f} % of {len(off)}"
        bars.append(Bar("the model that answers without XLA's compiler", told, None))
    columns = ("step", "XLA's own, MiB", "oomcast − XLA, bytes", "the model, MiB", "its error")
    print_outcome(Outcome(f"JAX steps on {given.device}: arguments, results and temporaries", columns, rows, bars))
    return 1 if differing else 0


def _figures(case: Case, device: str) -> tuple[int, int, int | None]:
    """Bytes of one step: by oomcast, by XLA's public figures, and by the model, which knows one GPU only."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from oomcast.capture.jax.ask_xla import Told, ask_xla
    from oomcast.capture.jax.run import modelled
    from oomcast.capture.jax.step import job_step
    from oomcast.capture.job_files import JobFunctions
    from oomcast.capture.xla.plan import BY_LIBRARY, NotAsked
    from oomcast.capture.xla.schedule import play
    from oomcast.capture.xla.target import mesh_devices
    from oomcast.devices import find_gpu
    from oomcast.errors import BadInput
    from oomcast.spec import Workload
    from oomcast.trace import Category
    from oomcast.trace.builder import peak_of

    from ..checks.jax_check import NamedJob

    gpu = find_gpu(device)
    devices = mesh_devices(gpu, case.devices)
    if isinstance(devices, NotAsked):
        raise BadInput(f"nothing can be compared: {devices.reason}.")
    mesh = Mesh(np.array(devices).reshape(-1, case.columns), ("data", "model"))
    whole, parts = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    divided = NamedSharding(mesh, PartitionSpec(None, "model"))

    def place(leaf: Any, category: Category) -> Any:
        if category is Category.INPUT:
            return parts if leaf.shape and case.devices > 1 else whole
        columns = len(leaf.shape) == 2 and leaf.shape[1] % case.columns == 0 and case.columns > 1
        return divided if columns else whole

    shardings = None
    given = case.given()
    if case.columns > 1 or case.by_shard_map:
        given = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=parts), given)

        def shardings(params: Any) -> Any:
            return jax.tree.map(lambda leaf: place(leaf, Category.PARAMETER), params)

    loss = _loss_by_shard_map(mesh) if case.by_shard_map else None
    job = JobFunctions(case.model, lambda: given, loss, None, case.donate, shardings)
    workload = Workload.create(NamedJob, **{"optimizer": "adam", "steps": 1, **case.options})
    step = job_step(job, given, workload)
    told = ask_xla(step, gpu, case.devices)
    if not isinstance(told, Told):
        raise BadInput(f"{case.name}: {told.reason}.")
    arguments = tuple(
        jax.tree.map(
            lambda leaf, kind=kind: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place(leaf, kind)), tree
        )
        for tree, kind in zip(step.arguments, step.categories, strict=True)
    )
    options = {"xla_gpu_enable_triton_gemm": False} if BY_LIBRARY in told.notes else None
    stats = step.function.lower(*arguments).compile(compiler_options=options).memory_analysis()
    own = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
    own += told.schedule.constants - stats.alias_size_in_bytes
    by_model = peak_of(play(modelled(step, on_gpu=True)[0], 1).trace()) if case.devices == 1 else None
    return peak_of(play(told.schedule, 1).trace()), int(own), by_model


def _given(name: str, batch_size: int) -> Callable[[], Any]:
    return lambda: batch(name, batch_size)


def _fed(example: Example, batch_size: int) -> Any:
    import jax

    return example.fed(jax.ShapeDtypeStruct, batch_size)


def _loss_by_shard_map(mesh: Any) -> Callable[[Any, Any], Any]:
    """Of the network `mlp`: each GPU computes the loss of its rows, and the mean is taken over all."""
    import jax
    import optax
    from jax.sharding import PartitionSpec

    model = MODELS["mlp"][0]()

    def of_one(params: Any, x: Any, y: Any) -> Any:
        output = model.apply(params, x, rngs={"dropout": jax.random.key(0)})
        return jax.lax.pmean(optax.softmax_cross_entropy_with_integer_labels(output, y).mean(), "data")

    rows = PartitionSpec("data")
    each = jax.shard_map(of_one, mesh=mesh, in_specs=(PartitionSpec(), rows, rows), out_specs=PartitionSpec())
    return lambda params, batch: each(params, *batch)


def _rows(batch_size: int, length: int, width: int) -> Any:
    import jax

    return jax.ShapeDtypeStruct((batch_size, length, width), "float32"), jax.ShapeDtypeStruct(
        (batch_size, length), "int32"
    )


def _scanned(*, remat: bool) -> Any:
    from flax import linen as nn

    class Layer(nn.Module):
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any, _: Any) -> Any:
            x = x + nn.MultiHeadDotProductAttention(8)(nn.LayerNorm()(x))
            return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))), None

    class Model(nn.Module):
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            layer = nn.remat(Layer) if remat else Layer
            layers = nn.scan(layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=12)
            return nn.Dense(1000)(layers()(x, None)[0])

    return Model()


if __name__ == "__main__":
    raise SystemExit(main())
