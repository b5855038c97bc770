"""Open sizes of a model file: which are asked for, what follows from them, and what the runtime plans without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import oomcast
from lab.checks.onnx_check import figures_of_run
from oomcast.capture.onnx.read import Graph, read_model, to_graph
from oomcast.errors import BadInput, UnreadableFile
from oomcast.spec import Workload

pytestmark = pytest.mark.filterwarnings("ignore")


class Job:
    @staticmethod
    def model() -> None: ...

    @staticmethod
    def batch(batch_size: int) -> None: ...


node = helper.make_node


def model_of(
    nodes: list[Any], inputs: dict[str, list[Any]], weights: dict[str, Any] | None = None, **described: list[Any]
) -> Any:
    """Inputs of float by name and shape; `described` is what an exporter wrote of the values in between."""
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(numpy.asarray(array), name) for name, array in (weights or {}).items()],
        value_info=[helper.make_tensor_value_info(name, TensorProto.FLOAT, form) for name, form in described.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def read(model: Any, forms: dict[str, tuple[int, ...]] | None = None, **options: Any) -> Graph:
    return to_graph(model, Workload.create(Job, **options), forms)


def with_past(last: str = "past + sequence") -> Any:
    """A step of generation: what is remembered, and what comes to it."""
    nodes = [node("Concat", ["past", "new"], ["all"], axis=1), node("Add", ["all", "mask"], ["y"])]
    return model_of(nodes, {"new": ["batch", "sequence", 8], "mask": ["batch", last, 1], "past": ["batch", "past", 8]})


def test_several_open_sizes_are_not_all_the_sequence_length() -> None:
    with pytest.raises(BadInput, match=r"several sizes open \(sequence, past\), and --seq-len is one"):
        read(with_past(), batch_size=4, seq_len=3)


def test_sums_of_sizes_follow() -> None:
    forms = {"new": (4, 3, 8), "past": (4, 20, 8)}
    assert read(with_past(), forms, batch_size=4).tensors["mask"].shape == (4, 23, 1)
    assert read(with_past(), forms, batch_size=4).tensors["y"].shape == (4, 23, 8)


def test_a_size_is_the_same_wherever_its_name_stands() -> None:
    forms = {"new": (4, 3, 8), "past": (5, 20, 8)}
    with pytest.raises(BadInput, match=r"batch\(\) gives 5 for the size batch in the input past, and 4 elsewhere"):
        read(with_past(), forms, batch_size=4)


def test_a_first_dimension_that_is_a_length_is_no_batch() -> None:
    places = model_of([node("Add", ["x", "places"], ["y"])], {"places": ["length"], "x": ["batch", "length"]})
    graph = read(places, batch_size=4, seq_len=20)
    assert graph.tensors["places"].shape == (20,)
    assert graph.tensors["x"].shape == (4, 20)


def test_a_fixed_first_dimension_beside_an_open_batch_stays() -> None:
    graph = read(model_of([node("Add", ["x", "row"], ["y"])], {"x": ["batch", 8], "row": [1, 8]}), batch_size=4)
    assert graph.tensors["row"].shape == (1, 8)
    assert graph.tensors["y"].shape == (4, 8)


def test_what_an_exporter_wrote_of_open_sizes_does_not_hide_what_is_known() -> None:
    """Its names for sizes that it could not know, as `Min(256, length)`."""
    nodes = [
        node("Shape", ["x"], ["length"], start=1, end=2),
        node("Slice", ["table", "zero", "length", "one"], ["part"]),
        node("Neg", ["part"], ["negative"]),
        node("Add", ["x", "negative"], ["y"]),
    ]
    weights = {"table": numpy.zeros((1, 256), "float32"), "zero": numpy.array([0]), "one": numpy.array([1])}
    form = [1, "Min(256, length)"]
    model = model_of(nodes, {"x": ["batch", "length"]}, weights, part=form, negative=form)
    graph = read(model, batch_size=4, seq_len=20)
    assert graph.tensors["negative"].shape == (1, 20)
    assert graph.tensors["y"].shape == (4, 20)


def test_functions_of_the_model_are_put_in_their_place(tmp_path: Path) -> None:
    twice = helper.make_function(
        "mine", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    model = model_of([node("Twice", ["x"], ["y"], domain="mine")], {"x": ["batch", 8]})
    model.functions.append(twice)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    assert [step.type for step in read(model, batch_size=4).nodes] == ["Add"]
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    estimate = oomcast.estimate(path, batch_size=4, device="t4", use_calibration=False)
    assert estimate.unsupported == {}


def chain(batch: Any) -> Any:
    """Values of one size each, every second of which has a form that only the graph itself computes."""
    nodes = [node("MatMul", ["x", "w"], ["v0"]), node("Shape", ["x"], ["sizes"])]
    for number in range(4):
        nodes.append(node("Expand", [f"v{number}", "sizes"], [f"wide{number}"]))
        nodes.append(node("MatMul", [f"wide{number}", "w"], [f"v{number + 1}"]))
    return model_of(
        [*nodes, node("Add", ["v4", "x"], ["y"])],
        {"x": [batch, 256]},
        {"w": numpy.zeros((256, 256), "float32")},
    )


@pytest.mark.parametrize("batch", ["batch", 64])
def test_memory_is_shared_where_the_runtime_knows_that_sizes_are_equal(batch: Any) -> None:
    figures = figures_of_run(chain(batch), 64)
    assert abs(figures["estimated"] - figures["planned"]) <= 1024


def test_values_without_a_known_form_share_with_none() -> None:
    def homes(batch: Any) -> int:
        from oomcast.capture.onnx.lives import Lives

        graph = read(chain(batch), batch_size=64)
        lives = Lives(graph, on_gpu=False)
        return sum(lives.home[name] == name for step in graph.nodes for name in step.outputs)

    assert homes("batch") > homes(64)


def test_hard_swish_is_done_in_steps_on_a_cpu() -> None:
    model = model_of(
        [node("MatMul", ["x", "w"], ["a"]), node("HardSwish", ["a"], ["b"]), node("MatMul", ["b", "w"], ["y"])],
        {"x": ["batch", 256]},
        {"w": numpy.zeros((256, 256), "float32")},
    )
    figures = figures_of_run(model, 64)
    assert abs(figures["estimated"] - figures["planned"]) <= 1024


def test_sizes_that_lie_in_a_file_of_weights_are_read(tmp_path: Path) -> None:
    nodes = [node("Reshape", ["x", "form"], ["a"]), node("MatMul", ["a", "w"], ["y"])]
    weights = {"form": numpy.array([-1, 2, 4]), "w": numpy.zeros((4, 16), "float32")}
    path = tmp_path / "model.onnx"
    model = model_of(nodes, {"x": ["batch", 8]}, weights)
    onnx.save(model, path, save_as_external_data=True, location="weights.data", size_threshold=0)
    assert read(read_model(str(path)), batch_size=4).tensors["y"].shape == (4, 2, 16)
    (tmp_path / "weights.data").write_bytes(b"")
    with pytest.raises(UnreadableFile, match=r"the weight form of .* cannot be read from its file"):
        read_model(str(path))
