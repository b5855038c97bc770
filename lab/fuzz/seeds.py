"""Valid content of every kind that oomcast reads, made when asked for: nothing of it is kept in the repository."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import oomcast
from oomcast.capture import capture
from oomcast.estimation import Calibration, Estimate, MeasuredRun, write_calibration
from oomcast.methods.equations import fit_equation, write_equation
from oomcast.methods.gpumemnet import Artifact, load_artifact, write_artifact
from oomcast.methods.measure import CaseSpec, Environment, Measurement, Outcome, Store
from oomcast.methods.tbem import (
    GapRow,
    StaticValue,
    fit_gap,
    plan_campaign,
    read_campaign,
    write_gap,
)
from oomcast.report import estimate_as_json, snapshot_as_pickle
from oomcast.spec import Spec
from oomcast.trace import trace_to_bytes
from oomcast.units import MiB

__all__ = [
    "artifacts",
    "calibrations",
    "campaigns",
    "configurations",
    "equations",
    "estimates",
    "gaps",
    "job_lists",
    "onnx_models",
    "snapshots",
    "specifications",
    "traces",
]

_CAMPAIGN = """
name = "small"
template = "mlp"
steps = 2
held_out = 2
[factors]
batch_size = [8, 64]
width = [32, 256]
depth = [2, 6]
[fixed]
features = 64
[limits]
seconds = 60
"""
_JOBS = """
gpus = "2xa100-40gb,t4"
risk = 0.01
max_per_gpu = 3
[[job]]
name = "first"
job = "zoo:mlp"
batch_size = 8
optimizer = "adam"
[[job]]
name = "second"
device_total = "6GiB"
low = "5GiB"
high = "7GiB"
count = 3
duration = 100
arrival = 5.5
[[job]]
name = "third"
group = "models"
[job.estimates.simulator]
device_total = 4000000000
coverage = 0.9
"""
_CONFIGURATIONS: tuple[dict[str, Any], ...] = (
    {
        "model_type": "gpt2",
        "n_layer": 1,
        "n_embd": 32,
        "n_head": 2,
        "n_positions": 64,
        "vocab_size": 99,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "architectures": ["GPT2LMHeadModel"],
    },
    {
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 99,
        "max_position_embeddings": 64,
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
    {
        "model_type": "bert",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 99,
        "max_position_embeddings": 64,
    },
)
_ENVIRONMENT = Environment("3.11", "torch", "2.13.0", "a machine", 2, 8 << 30, 1, "glibc 2.36")


@cache
def _estimate() -> Estimate:
    return oomcast.estimate("zoo:mlp", batch_size=2, device="a100-40gb", steps=1, keep_history=True)


def _written(write: Callable[[Path], object]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seed"
        write(path)
        return path.read_bytes()


def snapshots() -> tuple[bytes, ...]:
    history = _estimate().history
    assert history is not None
    return (snapshot_as_pickle(history),)


def traces() -> tuple[bytes, ...]:
    return (trace_to_bytes(capture(Spec.read("zoo:mlp", device="a100-40gb", batch_size=2, steps=1))),)


def estimates() -> tuple[bytes, ...]:
    return (json.dumps(estimate_as_json(_estimate())).encode(),)


def calibrations() -> tuple[bytes, ...]:
    run = MeasuredRun("nvidia-smi", 2500 * MiB, 2000 * MiB, 1800 * MiB, 2000 * MiB, 1800 * MiB, True, date="2026-11-17")
    known = Calibration("rtx-3090", "torch-2.8-cu128", (run,))
    return (_written(lambda path: write_calibration(known, path)),)


def campaigns() -> tuple[bytes, ...]:
    """A small one, and those of the benchmarks."""
    others = files("lab.benchmarks").joinpath("campaigns").iterdir()
    return (_CAMPAIGN.encode(), *(path.read_bytes() for path in others if path.name.endswith(".toml")))


def gaps() -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.toml"
        path.write_text(_CAMPAIGN)
        campaign = read_campaign(path)
        rows = [_gap_row(case) for case in plan_campaign(campaign).cases]
        gap = fit_gap(campaign, rows, {"python": "3.11"})
    return (_written(lambda path: write_gap(gap, path)),)


def _gap_row(case: CaseSpec) -> GapRow:
    varied = {name: case.parameters[name] for name in ("batch_size", "width", "depth")}
    batch, width, depth = (int(value) for value in varied.values())
    static = StaticValue(12 * depth * width**2 + 4000 * batch * width, 4 * depth * width**2, 4000 * batch * width)
    return GapRow(case.key, case.role, varied, static, round(300 * MiB + 1.25 * static.total), 2.0)


def equations() -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.toml"
        path.write_text(_CAMPAIGN.replace("[8, 64]", "[8, 16, 64, 256]").replace("[32, 256]", "[32, 64, 128, 256]"))
        with Store.open(Path(folder) / "runs.db") as store:
            cases = plan_campaign(read_campaign(path)).cases
            store.register(cases)
            for case in cases:
                peak = 300 * MiB + 4000 * int(case.parameters["batch_size"]) * int(case.parameters["width"])
                store.finish(Measurement(case, Outcome.OK, peak, 1.0, _ENVIRONMENT))
            fitted = fit_equation([store], None)
    return (_written(lambda path: write_equation(fitted, path)),)


def specifications() -> tuple[bytes, ...]:
    folder = files("oomcast.methods.tbem.specification").joinpath("processes")
    return tuple(path.read_bytes() for path in folder.iterdir() if path.name.endswith(".sofl"))


def artifacts() -> tuple[bytes, ...]:
    """The one that ships, without most of its networks, so that each input is small."""
    whole = load_artifact()
    name, models = next(iter(whole.classes.items()))
    kind = min(models, key=lambda one: sum(array.nbytes for array in models[one].network.to_arrays().values()))
    small = Artifact({name: {kind: models[kind]}}, None, whole.trained)
    residual = Artifact({}, whole.residual, whole.trained)
    return tuple(_written(partial(write_artifact, one)) for one in (small, residual))


def job_lists() -> tuple[bytes, ...]:
    return (_JOBS.encode(),)


def configurations() -> tuple[bytes, ...]:
    return tuple(json.dumps(one).encode() for one in _CONFIGURATIONS)


def onnx_models() -> tuple[bytes, ...]:
    """Needs onnx; raises ImportError without it."""
    import numpy
    from onnx import TensorProto, helper, numpy_helper

    weights = [
        numpy_helper.from_array(numpy.zeros((4, 3, 3, 3), "float32"), "kernel"),
        numpy_helper.from_array(numpy.zeros((4, 10), "float32"), "matrix"),
        numpy_helper.from_array(numpy.array([0, -1], "int64"), "form"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["maps"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["maps"], ["positive"]),
        helper.make_node("GlobalAveragePool", ["positive"], ["pooled"]),
        helper.make_node("Reshape", ["pooled", "form"], ["flat"]),
        helper.make_node("MatMul", ["flat", "matrix"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return (bytes(model.SerializeToString()),)
