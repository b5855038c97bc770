"""XLA's own compiler, asked for a GPU that is not there: its sums to the byte, and its buffers by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"  # before JAX is loaded

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import oomcast
from lab.checks.jax_check import NamedJob
from oomcast.capture.jax import ask_xla as asking
from oomcast.capture.jax.ask_xla import Told, ask_xla
from oomcast.capture.jax.step import TrainingStep, job_step
from oomcast.capture.job_files import JobFunctions
from oomcast.capture.xla import target
from oomcast.capture.xla.compiled_text import read_buffers, read_lives, read_program
from oomcast.capture.xla.plan import BY_LIBRARY, compile_in
from oomcast.capture.xla.schedule import play
from oomcast.devices import all_gpus, find_gpu
from oomcast.errors import BadInput
from oomcast.spec import Workload
from oomcast.trace import Category
from oomcast.trace.builder import peak_of
from oomcast.units import KiB, MiB

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        isinstance(target.mesh_devices(find_gpu("a100-40gb"), 1), target.NotAsked),
        reason="needs XLA's compiler for GPUs (oomcast[jax-gpu])",
    ),
]
GPU = find_gpu("a100-40gb")


class Dense(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(3):
            x = nn.relu(nn.Dense(512)(x))
        return nn.Dense(10)(x)


class Convolutions(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.Conv(16, (3, 3), (2, 2))(x))
        x = nn.relu(nn.Conv(32, (3, 3), use_bias=False)(x))
        return nn.Dense(10)(x.mean((1, 2)))


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x: Any, _: Any) -> Any:
        return x + nn.Dense(128)(nn.gelu(nn.Dense(512)(nn.LayerNorm()(x)))), None


class Scanned(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        layers = nn.scan(nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=6)
        x, _ = layers()(nn.Dense(128)(x), None)
        return nn.Dense(10)(x)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (Dense, (8192, 64)),
    "convolutions": (Convolutions, (64, 64, 64, 3)),
    "scan with remat": (Scanned, (8192, 64)),
}


def batch(shape: tuple[int, ...], sharding: Any = None) -> tuple[Any, Any]:
    x = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)
    return x, jax.ShapeDtypeStruct(shape[:1], jnp.int32, sharding=sharding)


def step_of(model: Callable[[], nn.Module], given: Any, **facts: Any) -> TrainingStep:
    job = JobFunctions(model, lambda: given, None, None, **facts)
    return job_step(job, given, Workload.create(NamedJob, optimizer="adam", steps=1))


def asked(step: TrainingStep, devices: int = 1) -> Told:
    told = ask_xla(step, GPU, devices)
    assert isinstance(told, Told)
    return told


def sum_of_xla(step: TrainingStep, places: Callable[[Any, Category], Any]) -> int:
    """By XLA's public figures alone, compiled as a person would."""
    arguments = tuple(
        jax.tree.map(
            lambda leaf, kind=kind: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=places(leaf, kind)), tree
        )
        for tree, kind in zip(step.arguments, step.categories, strict=True)
    )
    told = step.function.lower(*arguments).compile().memory_analysis()
    held = told.argument_size_in_bytes + told.output_size_in_bytes + told.temp_size_in_bytes
    return int(held - told.alias_size_in_bytes)


@pytest.mark.parametrize("donate", [False, True], ids=["kept", "donated"])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_holds_what_xla_says_to_the_byte(name: str, donate: bool) -> None:
    model, shape = MODELS[name]
    step = step_of(model, batch(shape), donate=donate)
    told = asked(step)
    (device,) = target.mesh_devices(GPU, 1)
    here = jax.sharding.SingleDeviceSharding(device)
    expected = sum_of_xla(step, lambda leaf, kind: here) + told.schedule.constants  # which XLA counts apart
    assert peak_of(play(told.schedule, 1).trace()) == expected
    # The block for temporaries is told by its parts: they lie in it, and fill nearly all of it at some time.
    assert 0.8 * told.schedule.arena < told.schedule.most_held <= told.schedule.arena
    assert any(made.place.source.startswith("test_ask_xla.py:") for made in told.schedule.instructions)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_a_batch_is_divided_where_the_job_says_nothing(devices: int) -> None:
    step = step_of(Dense, batch((256, 64)))
    told = asked(step, devices)
    mesh = Mesh(np.array(target.mesh_devices(GPU, devices)), ("data",))
    whole, parts = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    expected = sum_of_xla(step, lambda leaf, kind: parts if kind is Category.INPUT and leaf.shape else whole)
    expected += told.schedule.constants
    assert peak_of(play(told.schedule, 1).trace()) == expected
    (x,) = [slot for slot in told.schedule.arguments if len(slot.shape) == 2 and slot.category is Category.INPUT]
    assert x.shape == (256 // devices, 64)
    assert any("divided over" in note for note in told.notes)
    with pytest.raises(BadInput, match=f"a batch of 255 cannot be divided over {devices} GPUs"):
        ask_xla(step_of(Dense, batch((255, 64))), GPU, devices)


@pytest.mark.parametrize(("data", "model"), [(1, 4), (2, 2), (2, 4), (4, 2), (8, 1)])
def test_parameters_lie_where_the_job_says_and_their_moments_with_them(data: int, model: int) -> None:
    mesh = Mesh(np.array(target.mesh_devices(GPU, data * model)).reshape(data, model), ("data", "model"))
    columns = NamedSharding(mesh, PartitionSpec(None, "model"))
    whole, rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))

    def shardings(params: Any) -> Any:
        return jax.tree.map(lambda leaf: columns if leaf.ndim == 2 and leaf.shape[1] % model == 0 else whole, params)

    step = step_of(Dense, batch((64, 64), rows), shardings=shardings)
    told = asked(step, data * model)

    def places(leaf: Any, kind: Category) -> Any:
        if kind is Category.INPUT:
            return rows if leaf.shape else whole
        return columns if len(leaf.shape) == 2 and leaf.shape[1] % model == 0 else whole

    assert peak_of(play(told.schedule, 1).trace()) == sum_of_xla(step, places) + told.schedule.constants
    kernel = {slot.name: slot.shape for slot in told.schedule.arguments}
    assert kernel["Dense_0.kernel"] == kernel["0.mu.Dense_0.kernel"] == (64, 512 // model)


def test_convolutions_are_told_as_cudnn_has_them() -> None:
    told = asked(step_of(Convolutions, batch((32, 32, 32, 3))))
    calls = [made.kernel for made in told.schedule.instructions if made.kernel is not None]
    assert {call.operator for call in calls} == {"conv_fprop", "conv_dgrad", "conv_wgrad"}
    second = [call for call in calls if (32, 16, 3, 3) in (operand.shape for operand in call.operands)]
    assert {call.operator for call in second} == {"conv_fprop", "conv_dgrad", "conv_wgrad"}
    for call in second:
        x, w, y = call.operands
        assert (x.shape, w.shape, y.shape) == ((32, 16, 16, 16), (32, 16, 3, 3), (32, 32, 16, 16))
        assert dict(call.attributes)["padding"] == (1, 1)


def test_the_sum_is_xlas_own_where_its_texts_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    step = step_of(Dense, batch((256, 64)))
    whole = peak_of(play(asked(step).schedule, 1).trace())
    read = asking.what_was_told
    monkeypatch.setattr(asking, "what_was_told", lambda *given: replace(read(*given), buffers="another form", lives=""))
    told = asked(step)
    assert len(told.schedule.temporaries) == 1
    assert peak_of(play(told.schedule, 1).trace()) == whole


def test_every_gpu_of_the_catalogue_is_described() -> None:
    for gpu in all_gpus():
        text = target.describe(gpu)
        assert f"core_count: {gpu.multiprocessors} " in text
        assert f"device_memory_size: {gpu.total_memory} " in text
    for name in ("v100-16gb", "t4", "rtx-4090", "h100-80gb", "b200", "rtx-5090"):
        assert not isinstance(target.mesh_devices(find_gpu(name), 1), target.NotAsked)
    old = target.mesh_devices(find_gpu("k80"), 1)
    assert isinstance(old, target.NotAsked)
    assert old.reason == "XLA has no compiler for k80"


JOB = """
import jax
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices()), ("data",))

def model():
    return nn.Sequential([nn.Dense(1024), nn.relu, nn.Dense(1024), nn.relu, nn.Dense(10)])

def batch(batch_size):
    rows = NamedSharding(mesh, PartitionSpec("data"))
    return (jax.ShapeDtypeStruct((batch_size, 1024), "float32", sharding=rows),
            jax.ShapeDtypeStruct((batch_size,), "int32", sharding=rows))
"""


def test_a_job_for_several_gpus_makes_its_mesh_of_them(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(JOB)

    def held(device: str) -> oomcast.Estimate:
        return oomcast.estimate(path, batch_size=4096, device=device, use_calibration=False)

    one, four = held("a100-40gb"), held("4xa100-40gb")
    assert one.breakdown["input"] - four.breakdown["input"] == pytest.approx(12 * MiB, abs=256 * KiB)
    assert four.breakdown["parameter"] == pytest.approx(one.breakdown["parameter"], rel=0.05)
    assert [(rank.role, rank.count) for rank in four.ranks] == [("every GPU", 4)]
    assert any("XLA itself" in sentence for sentence in one.assumptions)
    with pytest.raises(BadInput, match="says itself how it is divided"):
        oomcast.estimate(path, batch_size=4096, device="4xa100-40gb", parallel="ddp")


class Tiles(nn.Module):
    """A product for which XLA 0.10 finds no tiles of its own without trying them on a card."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.LayerNorm()(nn.Conv(96, (4, 4), (4, 4))(x))
        y = nn.LayerNorm()(nn.Conv(96, (7, 7), feature_group_count=96)(x))
        return nn.Dense(10)((x + nn.Dense(96)(nn.gelu(nn.Dense(384)(y)))).mean((1, 2)))


def test_a_product_without_tiles_is_planned_as_the_librarys_and_told() -> None:
    step = step_of(Tiles, batch((8, 224, 224, 3)))
    told = asked(step)
    (device,) = target.mesh_devices(GPU, 1)
    here = jax.sharding.SingleDeviceSharding(device)
    placed = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here), step.arguments)
    lowered = step.function.lower(*placed)
    try:
        own = lowered.compile()
    except jax.errors.JaxRuntimeError:
        own = lowered.compile(compiler_options={"xla_gpu_enable_triton_gemm": False})
        assert BY_LIBRARY in told.notes
    sums = own.memory_analysis()
    held = sums.argument_size_in_bytes + sums.output_size_in_bytes + sums.temp_size_in_bytes
    assert peak_of(play(told.schedule, 1).trace()) == held + told.schedule.constants


class Refusal(Exception):
    pass


def test_the_compiler_is_asked_again_only_where_it_refuses(tmp_path: Path) -> None:
    def with_tiles(options: dict[str, Any]) -> dict[str, Any]:
        return options

    def without_tiles(options: dict[str, Any]) -> dict[str, Any]:
        if "xla_gpu_enable_triton_gemm" not in options:
            raise Refusal("no tiles")
        return options

    def never(options: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(f"asked {len(options)} options")

    options, reports, by_library = compile_in(str(tmp_path), with_tiles, (Refusal,))
    assert (options["xla_dump_to"], by_library) == (str(reports), False)
    again, other_reports, by_library = compile_in(str(tmp_path), without_tiles, (Refusal,))
    assert (again["xla_dump_to"], again["xla_gpu_enable_triton_gemm"], by_library) == (str(other_reports), False, True)
    assert other_reports != reports  # what the refused one left there is not read
    with pytest.raises(Refusal, match=f"asked {len(options)} options"):  # the first reason
        compile_in(str(tmp_path), never, (Refusal,))


LOSS = """
def loss(params, batch):
    def of_one(params, x, y):
        output = model().apply(params, x)
        return jax.lax.pmean(((output[:, 0] - y) ** 2).mean(), "data")

    MAP
"""
SHARD_MAP = """rows = PartitionSpec("data")
    each = jax.shard_map(of_one, mesh=mesh, in_specs=(PartitionSpec(), rows, rows), out_specs=PartitionSpec())
    return each(params, *batch)"""
PMAP = 'return jax.pmap(of_one, axis_name="data", in_axes=(None, 0, 0))(params, *batch).mean()'


def test_a_loss_by_shard_map_is_that_of_each_gpu(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(JOB + LOSS.replace("MAP", SHARD_MAP))
    two, eight = (
        oomcast.estimate(path, batch_size=8192, device=f"{count}xa100-40gb", use_calibration=False) for count in (2, 8)
    )
    assert two.breakdown["input"] == pytest.approx(4 * eight.breakdown["input"], rel=0.01)
    assert two.peak_allocated - eight.peak_allocated > 24 * MiB  # half of what two layers leave, against an eighth


def test_pmap_is_refused_where_it_is_called_and_not_where_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    unused = "\n@jax.pmap\ndef train_step(params):\n    return params\n"
    path.write_text(JOB + unused)
    oomcast.estimate(path, batch_size=64, device="2xa100-40gb", use_calibration=False)
    path.write_text(JOB + LOSS.replace("MAP", PMAP))
    with pytest.raises(BadInput, match=r"the job calls of_one through jax\.pmap.*use jax\.shard_map"):
        oomcast.estimate(path, batch_size=64, device="2xa100-40gb", use_calibration=False)


def test_without_the_compiler_the_model_answers_for_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "PLUGINS", ("jax_plugins.not_there",))
    told = ask_xla(step_of(Dense, batch((256, 64))), GPU)
    assert isinstance(told, target.NotAsked)
    assert "oomcast[jax-gpu]" in told.reason


def test_texts_of_the_compiler() -> None:
    program = read_program(
        "HloModule jit_step, input_output_alias={ {0}: (0, {}, may-alias), {1}: (2, {}, may-alias) }, x={}\n\n"
        # A folder of the user's may be called oomcast, as a clone of this project is.
        'FileNames\n1 "/home/me/oomcast/job.py"\n2 "/venv/site-packages/flax/linear.py"\n3 "<string>"\n\n'
        "FileLocations\n1 {file_name_id=1 function_name_id=1 line=7}\n2 {file_name_id=2 function_name_id=2 line=90}\n"
        "3 {file_name_id=3 function_name_id=3 line=1}\n\n"
        "StackFrames\n1 {file_location_id=1 parent_frame_id=1}\n2 {file_location_id=2 parent_frame_id=2}\n"
        "3 {file_location_id=3 parent_frame_id=1}\n4 {file_location_id=2 parent_frame_id=4}\n\n"
        "ENTRY %main (p: f32[2]) -> f32[2] {\n"
        '  %dot.1 = (f32[8,4]{1,0}, u8[0]{0}) custom-call(%p, %q), metadata={op_name="jit(step)/jvp(Net)/Dense_0/dot" '
        "stack_frame_id=2}\n"
        "  %while.2 = (s32[], /*index=1*/f32[8,4]{1,0}) while(%dot.1), condition=%c, body=%b, "
        'metadata={op_name="jit(step)" stack_frame_id=4}\n}\n'
    )
    made = program.instructions["dot.1"]
    assert (made.source, made.operands, made.opcode) == ("job.py:7", ("p", "q"), "custom-call")
    assert program.instructions["while.2"].opcode == "while"
    assert program.instructions["while.2"].source == ""  # nobody's file but the library's and the command line's
    assert program.aliased == {0: 0, 1: 2}
    buffers = read_buffers(
        "BufferAssignment:\nallocation 0: size 64, parameter 0, shape |f32[16]| at ShapeIndex {}:\n"
        " value: <1 p @0> (size=64,offset=0): f32[16]{0}\nallocation 1: size 12, constant:\n"
        "allocation 2: size 512, preallocated-temp:\n value: <3 dot.1{0} @0> (size=128,offset=256): f32[8,4]{1,0}\n"
    )
    ((size, (value,)),) = buffers.temporaries
    assert (size, value.instruction, value.part, value.nbytes, value.offset) == (512, "dot.1", "{0}", 128, 256)
    assert buffers.constants == 12
    order, lives = read_lives(
        "HloLiveRange (max 3):\n  InstructionSequence:\n    0:p\n    1:dot.1\n  BufferLiveRange:\n    p{}:0-3\n"
        "    dot.1{0}:1-2\n  Live ranges at 1 (peak):\n    dot.1{0}: 128 bytes (cumulative: 128 bytes)\n"
    )
    assert order == ["p", "dot.1"]
    assert lives["dot.1", "{0}"] == (1, 2)
