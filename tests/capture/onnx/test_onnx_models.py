"""ONNX model files from file to Estimate, and beside what ONNX Runtime takes for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import oomcast
from lab.checks.onnx_check import figures_of_run
from oomcast.capture.onnx.read import to_graph
from oomcast.capture.onnx.run import follow_inference, follow_training
from oomcast.errors import BadInput, UnreadableFile
from oomcast.spec import Workload
from oomcast.trace import Category, Trace, peak_of, verify
from oomcast.units import KiB, MiB

pytestmark = pytest.mark.filterwarnings("ignore")

SIDE = 128
BLOCK = SIDE * SIDE * 4  # 64 KiB


class Job:
    @staticmethod
    def model() -> None: ...

    @staticmethod
    def batch(batch_size: int) -> None: ...


def weight(name: str, *shape: int) -> Any:
    return numpy_helper.from_array(numpy.zeros(shape, "float32"), name)


def model_of(nodes: list[Any], weights: list[Any] = [], first: Any = SIDE, second: Any = SIDE) -> Any:  # noqa: B006
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [first, second])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "model", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def mlp(first: Any = "batch", second: Any = 64) -> Any:
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w1"], ["y"]),
    ]
    return model_of(nodes, [weight("w0", 64, 512), weight("w1", 512, 10)], first, second)


WEIGHTS = (64 * 512 + 512 * 10) * 4


def saved(model: Any, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def estimate(path: Path, batch_size: int = 256, **options: Any) -> oomcast.Estimate:
    return oomcast.estimate(path, batch_size=batch_size, device="a100-40gb", use_calibration=False, **options)


def inference(model: Any, batch_size: int = SIDE) -> Trace:
    graph = to_graph(model, Workload.create(Job, batch_size=batch_size))
    trace = follow_inference(graph, 2, on_gpu=False, versions={}, workload={})
    verify(trace)
    return trace


def test_a_model_file_is_run_or_trained(tmp_path: Path) -> None:
    path = saved(mlp(), tmp_path)
    run, trained = estimate(path), estimate(path, optimizer="adam")

    assert run.breakdown["parameter"] == pytest.approx(WEIGHTS, abs=KiB)
    assert run.breakdown["optimizer_state"] == run.breakdown["gradient"] == 0
    assert trained.breakdown["optimizer_state"] == pytest.approx(2 * WEIGHTS, abs=2 * KiB)
    assert trained.peak_allocated > run.peak_allocated + 2 * WEIGHTS
    assert run.provenance["environment"].startswith("onnx")
    assert any("--optimizer" in sentence for sentence in run.assumptions)


def test_a_job_that_makes_a_model_gives_the_shapes(tmp_path: Path) -> None:
    saved(mlp(), tmp_path)
    path = tmp_path / "job.py"
    path.write_text(
        "import numpy, onnx\n"
        f"def model(): return onnx.load({str(tmp_path / 'model.onnx')!r})\n"
        "def batch(batch_size): return [numpy.zeros((batch_size, 64), 'float32')]\n"
    )

    assert estimate(path).peak_allocated == estimate(tmp_path / "model.onnx").peak_allocated


def test_values_are_written_over_and_taken_over() -> None:
    chain = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Exp", ["a"], ["b"])]
    two = [*chain, helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("ReduceSum", ["c"], ["y"], keepdims=0)]
    one = [*chain, helper.make_node("ReduceSum", ["b"], ["y"], keepdims=0)]

    assert peak_of(inference(model_of(one))) == 2 * BLOCK + 4  # the input, and one for a and b
    assert peak_of(inference(model_of(two))) == 4 * BLOCK + 4  # Add writes over nothing; the block stays to the end


def test_training_keeps_what_gradients_read() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Add", ["b", "v"], ["c"]),
        helper.make_node("Neg", ["c"], ["y"]),
    ]
    graph = to_graph(
        model_of(nodes, [weight("w", SIDE, SIDE), weight("v", SIDE)]), Workload.create(Job, batch_size=SIDE)
    )
    trace = follow_training(graph, 2, "sgd", on_gpu=False, versions={}, workload={})
    verify(trace)
    kept = {a.module for a in trace.allocations if a.category is Category.ACTIVATION}

    assert kept == {"a", "y"}  # b was written over a, and nobody needs c
    assert trace.unsupported == {}


def test_trained_max_pooling_keeps_indices_in_place_of_its_input() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Unsqueeze", ["a", "axes"], ["b"]),
        helper.make_node("Neg", ["b"], ["c"]),
        helper.make_node("MaxPool", ["c"], ["d"], kernel_shape=[2], strides=[2]),
        helper.make_node("Neg", ["d"], ["y"]),
    ]
    axes = numpy_helper.from_array(numpy.array([1], "int64"), "axes")
    graph = to_graph(model_of(nodes, [weight("w", SIDE), axes]), Workload.create(Job, batch_size=SIDE))
    trace = follow_training(graph, 1, "sgd", on_gpu=False, versions={}, workload={})
    kept = {a.module: a.nbytes for a in trace.allocations if a.category is Category.ACTIVATION}

    assert kept["indices of d"] == SIDE * SIDE // 2 * 8
    assert "c" not in kept


def test_weights_have_a_gradient_in_the_making_and_one_that_is_accumulated() -> None:
    graph = to_graph(mlp(), Workload.create(Job, batch_size=4))
    trace = follow_training(graph, 2, "sgd", on_gpu=False, versions={}, workload={})

    assert sum(a.nbytes for a in trace.allocations if a.category is Category.GRADIENT) == WEIGHTS
    assert peak_of(trace) > 3 * WEIGHTS


def test_an_unknown_gradient_keeps_everything_and_is_told() -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["a"]), helper.make_node("Det", ["a"], ["y"])]
    graph = to_graph(model_of(nodes, [weight("w", SIDE)]), Workload.create(Job, batch_size=SIDE))

    assert follow_training(graph, 1, "sgd", versions={}, workload={}).unsupported == {"gradient of Det": 1}


def test_open_dimensions_want_a_size(tmp_path: Path) -> None:
    path = saved(mlp("batch", "length"), tmp_path)

    with pytest.raises(BadInput, match=r"dimension 1 \(length\) of its input x open; say its size with --seq-len"):
        estimate(path)
    assert estimate(path, seq_len=64).peak_allocated == estimate(path, input_shape=(64,)).peak_allocated
    with pytest.raises(BadInput, match="do not fit together"):
        estimate(path, seq_len=63)


def test_a_fixed_batch_is_told(tmp_path: Path) -> None:
    path = saved(mlp(1), tmp_path)

    assert estimate(path, 1).peak_allocated > 0
    with pytest.raises(BadInput, match="fixed batch of 1"):
        estimate(path, 2)


def broken_weights() -> Any:
    model = mlp()
    del model.graph.initializer[0]
    return model


def far_weights() -> Any:
    model = mlp()
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], "weights.bin")
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    return model


def custom() -> Any:
    model = model_of([helper.make_node("Fancy", ["x"], ["y"], domain="my.operators")], first="batch")
    model.opset_import.append(helper.make_opsetid("my.operators", 1))
    return model


def counted_by_values() -> Any:
    nodes = [helper.make_node("NonZero", ["x"], ["a"]), helper.make_node("Cast", ["a"], ["y"], to=TensorProto.FLOAT)]
    return model_of(nodes, first="batch")


def endless() -> Any:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Relu", ["before"], ["after"])],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("on", TensorProto.BOOL, []),
            value("before", TensorProto.FLOAT, None),
        ],
        [value("still", TensorProto.BOOL, []), value("after", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Size", ["x"], ["count"]),
        helper.make_node("Loop", ["count", "", "x"], ["y"], body=body),
    ]
    return model_of(nodes, first="batch")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (broken_weights, "no value for w0, which MatMul a reads: an initialiser is missing"),
        (far_weights, "w0 .* lies in the file weights.bin, which is missing"),
        (custom, "custom operator my.operators.Fancy"),
        (counted_by_values, "made by NonZero a in .* depends on values"),
        (endless, "runs an unknown number of times"),
        (lambda: model_of([helper.make_node("Relu", ["nowhere"], [])]), "Relu .* has 1 inputs and 0 outputs"),
        (lambda: model_of([helper.make_node("Conv", ["x"], ["y"])]), "Conv .* has 1 inputs .* needs 2 and 1"),
        (lambda: model_of([helper.make_node("Loop", [], ["y"])]), "Loop .* has 0 inputs"),
    ],
)
def test_bad_models_get_a_sentence(tmp_path: Path, make: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        estimate(saved(make(), tmp_path))


def test_other_files_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"this is not a model")

    with pytest.raises(UnreadableFile, match="not an ONNX model"):
        estimate(path)
    with pytest.raises(BadInput, match="leave --framework out"):
        estimate(path, framework="torch")


@pytest.mark.parametrize("option", [{"accumulation": 2}, {"checkpointing": True}, {"precision": "bf16"}])
def test_options_without_meaning_are_refused(tmp_path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="not followed for ONNX"):
        estimate(saved(mlp(), tmp_path), **option)


@st.composite
def graphs(draw: st.DrawFn) -> Any:
    """Chains with branches of operators whose kernels take no scratch."""
    values, nodes = ["x"], []
    for number in range(draw(st.integers(1, 10))):
        kind = draw(st.sampled_from(["Relu", "Exp", "Add", "Mul", "Transpose", "Reshape"]))
        one, other = (values[draw(st.integers(0, len(values) - 1))] for _ in range(2))
        inputs = {"Add": [one, other], "Mul": [one, other], "Reshape": [one, "shape"]}.get(kind, [one])
        values.append(f"v{number}")
        nodes.append(helper.make_node(kind, inputs, [values[-1]]))
    used = {name for node in nodes for name in node.input}
    ends = [name for name in values[1:] if name not in used]
    while len(ends) > 1:  # every value must lead to the output
        nodes.append(helper.make_node("Add", ends[:2], [f"e{len(nodes)}"]))
        ends = [*ends[2:], nodes[-1].output[0]]
    nodes.append(helper.make_node("ReduceSum", ends, ["y"], keepdims=0))
    return model_of(nodes, [numpy_helper.from_array(numpy.array([SIDE, SIDE], "int64"), "shape")])


@settings(max_examples=20, deadline=None)
@given(graphs())
def test_random_graphs_take_what_onnx_runtime_takes(model: Any) -> None:
    figures = figures_of_run(model, SIDE)

    assert figures["estimated"] == pytest.approx(figures["measured"], abs=BLOCK + 4 * KiB)


@pytest.mark.parametrize("attribute", [{"pads": None}, {"group": b"two"}])
def test_a_convolution_with_a_damaged_attribute_is_told(attribute: dict[str, Any]) -> None:
    node = helper.make_node("Conv", ["image", "w"], ["y"], kernel_shape=[3, 3])
    for name, value in attribute.items():
        given = onnx.AttributeProto(name=name)
        if value is not None:
            given = helper.make_attribute(name, value)
        node.attribute.append(given)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])
    graph = helper.make_graph([node], "model", [image], [y], [weight("w", 4, 3, 3, 3)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with pytest.raises((UnreadableFile, BadInput)):
        to_graph(model, Workload.create(Job))


def test_sizes_that_the_graph_computes_are_computed(tmp_path: Path) -> None:
    """As exporters write a class token for an open batch, with Shape, Gather, Concat, Where; then a Slice by sizes."""
    number = [numpy_helper.from_array(numpy.array(values, "int64"), name) for name, values in (
        ("zero", [0]), ("one", [1]), ("minus", [-1]), ("two", [2]), ("ones", [1, 1])
    )]  # fmt: skip
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["batch"]),
        helper.make_node("Concat", ["batch", "minus"], ["asked"], axis=0),
        helper.make_node("Equal", ["asked", "minus"], ["open"]),
        helper.make_node("Where", ["open", "ones", "asked"], ["filled"]),
        helper.make_node("Expand", ["token", "filled"], ["tokens"]),
        helper.make_node("Concat", ["tokens", "x"], ["joined"], axis=1),
        helper.make_node("Shape", ["joined"], ["joined_sizes"]),
        helper.make_node("Gather", ["joined_sizes", "one"], ["twice"]),
        helper.make_node("Div", ["twice", "two"], ["half"]),
        helper.make_node("Slice", ["joined", "zero", "half", "one"], ["part"]),
        helper.make_node("MatMul", ["part", "w"], ["y"]),
    ]
    model = model_of(nodes, [weight("token", 1, 64), weight("w", 64, 10), *number], "batch", 64)
    graph = to_graph(model, Workload.create(Job, batch_size=8))
    assert graph.tensors["tokens"].shape == (8, 64)
    assert graph.tensors["joined"].shape == (8, 128)
    assert graph.tensors["part"].shape == (8, 64)
    assert graph.tensors["y"].shape == (8, 10)
    assert graph.tensors["filled"].shape == (2,)
    assert len(graph.nodes) == len(nodes)  # the runtime computes them in each run, as long as the batch is open
    path = tmp_path / "token.onnx"
    onnx.save(model, path)
    assert oomcast.estimate(path, batch_size=8, device="t4", use_calibration=False).unsupported == {}


def test_values_that_only_data_decides_stay_unknown() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"]),
        helper.make_node("Cast", ["where"], ["y"], to=TensorProto.FLOAT),
    ]
    with pytest.raises(BadInput, match="the size of where, made by NonZero"):
        to_graph(model_of(nodes), Workload.create(Job, batch_size=SIDE))


def test_a_file_that_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no job file .*absent\.onnx"):
        oomcast.estimate("absent.onnx", batch_size=4, device="t4")
    job = tmp_path / "job.py"
    for named, told in ((tmp_path / "absent.onnx", "there is no ONNX file"), (tmp_path, "is a folder")):
        job.write_text(f"def model():\n    return {str(named)!r}\n\ndef batch(batch_size):\n    return {{}}\n")
        with pytest.raises(BadInput, match=told):
            oomcast.estimate(job, batch_size=4, device="t4", framework="onnx")


def test_a_model_is_run_unless_an_optimizer_trains_it(tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    onnx.save(mlp(), path)
    run = oomcast.estimate(path, batch_size=8, device="t4", use_calibration=False)

    assert oomcast.estimate(path, batch_size=8, device="t4", use_calibration=False, phase="inference").low == run.low
    with pytest.raises(BadInput, match="--phase generate is not followed"):
        oomcast.estimate(path, batch_size=8, device="t4", phase="generate")
    with pytest.raises(BadInput, match="both given"):
        oomcast.estimate(path, batch_size=8, device="t4", phase="inference", optimizer="adam")


def test_settings_of_the_arena_are_those_of_onnx_runtime(tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    onnx.save(mlp(), path)

    def reserved(settings: str | None) -> int:
        answer = oomcast.estimate(path, batch_size=8192, device="t4", use_calibration=False, alloc_conf=settings)
        return answer.peak_reserved

    doubled, asked = reserved(None), reserved("arena_extend_strategy:kSameAsRequested")
    assert asked < doubled
    limited = oomcast.estimate(
        path, batch_size=8192, device="t4", use_calibration=False, alloc_conf=f"gpu_mem_limit:{MiB}"
    )
    assert limited.verdict.value == "oom"
