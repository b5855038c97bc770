"""Rendered files: they are formatted, build the network that was meant, and train it."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from network_cases import small_parameters
from torch import nn

import oomcast
from oomcast.errors import BadInput, UnknownName
from oomcast.methods.tbem import Value
from oomcast.methods.tbem.specification import Shape, check_network, network_shapes
from oomcast.methods.tbem.templates import TEMPLATES, Network, count_parameters, render

SMALL: dict[str, dict[str, Value]] = {
    "vgg": {"batch_size": 2, "edge": 32, "width": 0.125, "dense_width": 32, "depth": 11, "convolutions": 17},
    "resnet": {"batch_size": 2, "edge": 32, "width": 0.125, "blocks": 5, "activation": "silu"},
    "mlp": {"batch_size": 4, "norm": "layer", "dropout": 0.1, "optimizer": "rmsprop"},
    "unet2d": {"batch_size": 2, "edge": 36, "width": 4, "classes": 3},
    "unet3d": {"batch_size": 2, "edge": 20, "width": 4},
    "transformer": {"batch_size": 2, "width": 32, "depth": 2, "heads": 4, "vocabulary": 100, "length": 16},
    "lstm": {"batch_size": 2, "vocabulary": 50, "width": 8, "hidden": 8, "bidirectional": True},
}


def small(template: str) -> Network:
    return TEMPLATES[template].network(SMALL[template])


def loaded(source: str) -> ModuleType:
    """The file as an imported module."""
    module = ModuleType("rendered")
    exec(compile(source, "rendered.py", "exec"), module.__dict__)
    return module


_HOOKED = (
    "conv",
    "conv_transpose",
    "max_pool",
    "average_pool",
    "global_pool",
    "linear",
    "batch_norm",
    "group_norm",
    "layer_norm",
    "flatten",
    "embedding",
    "attention",
    "recurrent",
)
_UNHOOKED = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Dropout, nn.Sequential)


def module_shapes(model: nn.Module, inputs: torch.Tensor) -> Iterator[Shape]:
    """The output shapes of all modules in the order in which they run, then that of the model."""
    seen: list[Shape] = []

    def note(_module: nn.Module, _inputs: Any, output: Any) -> None:
        seen.append(tuple((output[0] if isinstance(output, tuple) else output).shape))

    for module in model.children():
        for part in module if isinstance(module, nn.Sequential) else (module,):
            if not isinstance(part, _UNHOOKED):
                part.register_forward_hook(note)
    final = tuple(model(inputs).shape)
    return iter((*seen, final))


def assert_builds_as_said(network: Network) -> None:
    """On the meta device: the same shape after every layer, the same number of parameters."""
    module = loaded(render(network, "torch"))
    with torch.device("meta"):
        model = module.model()
        inputs, targets = module.batch(network.batch_size)
        shapes = network_shapes(network)
        expected = [shapes[layer.name] for layer in network.layers if layer.kind in _HOOKED]
        assert list(module_shapes(model, inputs)) == [*expected, shapes[network.layers[-1].name]]
        assert tuple(inputs.shape) == shapes[network.input.name]
        assert module.loss(model, (inputs, targets)).shape == ()
    assert sum(parameter.numel() for parameter in model.parameters()) == count_parameters(network)
    assert isinstance(module.optimizer(model.parameters()), torch.optim.Optimizer)


@pytest.mark.parametrize("template", TEMPLATES)
def test_default_networks_build_as_said(template: str) -> None:
    assert_builds_as_said(TEMPLATES[template].network({}))


@pytest.mark.parametrize("template", TEMPLATES)
def test_any_accepted_network_renders_and_builds_as_said(template: str) -> None:
    @settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
    @given(small_parameters(TEMPLATES[template]))
    def check(parameters: dict[str, Value]) -> None:
        network = TEMPLATES[template].network(parameters)
        assume(check_network(network) is None)
        assert_builds_as_said(network)
        ast.parse(render(network, "keras"))

    check()


def test_table_1_builds_as_said() -> None:
    """The sixteen pairs of depth and convolutions; the batch changes no layer."""
    for depth in (11, 13, 16, 19):
        for convolutions in (8, 10, 13, 16):
            parameters: dict[str, Value] = {"depth": depth, "convolutions": convolutions, "batch_size": 4}
            assert_builds_as_said(TEMPLATES["vgg"].network(parameters))


@pytest.mark.parametrize("length", [88, 120])
def test_rendered_files_are_formatted_and_clean(length: int, tmp_path: Path) -> None:
    ruff = shutil.which("ruff") or shutil.which("ruff", path=str(Path(sys.executable).parent))
    if ruff is None:
        pytest.skip("ruff is not installed")
    wide: dict[str, dict[str, Value]] = {
        "lstm": {"cell": "rnn", "bias": False, "dropout": 0.123456789, "bidirectional": True, "hidden": 32_000},
        "vgg": {"depth": 9, "convolutions": 60, "stage5_extra": 2, "norm": "batch", "activation": "leaky_relu"},
    }
    for name, template in TEMPLATES.items():
        for label, parameters in (("full", {}), ("small", SMALL[name]), ("wide", wide.get(name, {}))):
            for framework in ("torch", "keras"):
                source = render(template.network(parameters), framework)
                (tmp_path / f"{name}_{label}_{framework}.py").write_text(source)
    for command in (["format", "--check", "--line-length", str(length)], ["check"]):
        run = subprocess.run([ruff, *command, "--isolated", str(tmp_path)], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("template", TEMPLATES)
def test_rendered_torch_trains(template: str) -> None:
    """As `python FILE` does, in this process: weights change, nothing is left without a gradient."""
    module = loaded(render(small(template), "torch", steps=2))
    assert (SMALL[template]["batch_size"], 2, "cpu") == (module.BATCH_SIZE, module.STEPS, module.DEVICE)
    models: list[nn.Module] = []
    build = module.model
    module.__dict__["model"] = lambda: models.append(build()) or models[0]
    module.train()
    assert all(parameter.grad is not None for parameter in models[0].parameters())


def test_rendered_file_runs_on_its_own(tmp_path: Path) -> None:
    file = tmp_path / "case.py"
    file.write_text(render(small("mlp"), "torch", steps=1))
    run = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr


def test_rendered_file_is_a_job_file(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    network = small("resnet")
    file.write_text(render(network, "torch"))
    estimate = oomcast.estimate(str(file), batch_size=network.batch_size, device="a100-40gb")
    assert not estimate.unsupported
    assert estimate.peak_allocated > 3 * 4 * count_parameters(network)


def test_rendering_is_the_same_each_time_and_knows_no_oomcast() -> None:
    for template in TEMPLATES:
        for framework in ("torch", "keras"):
            source = render(small(template), framework)
            assert source == render(small(template), framework)
            imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]
            names = {alias.name for node in imports for alias in node.names}
            assert not any("oomcast" in name for name in names)


def test_no_local_outlives_its_use() -> None:
    """A residual network needs two names, however deep it is."""
    source = render(TEMPLATES["resnet"].network({"blocks": 50}), "torch")
    tree = ast.parse(source)
    forward = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "forward")
    names = {node.id for node in ast.walk(forward) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert names == {"x", "y"}


def test_render_refuses_what_it_cannot() -> None:
    with pytest.raises(UnknownName, match="unknown framework 'tensorflow'"):
        render(small("mlp"), "tensorflow")
    with pytest.raises(UnknownName, match="unknown device 'gpu'"):
        render(small("mlp"), "torch", device="gpu")
    with pytest.raises(BadInput, match="at least one step"):
        render(small("mlp"), "torch", steps=0)
    with pytest.raises(BadInput, match=r"layer 'stage5_max_pool1': MaxPooling rejects it"):
        render(TEMPLATES["vgg"].network({"edge": 16}), "torch")


KERAS_CHECK = """
import json, runpy, sys
answers = {}
for path in sys.argv[1:]:
    module = runpy.run_path(path)
    model = module["model"]()
    inputs, targets = module["batch"](module["BATCH_SIZE"])
    trained = sum(int(weight.value.numpy().size) for weight in model.trainable_weights)
    outputs = list(model.compute_output_shape(inputs.shape))
    module["train"]()
    answers[path] = [trained, outputs]
import tensorflow
answers["rewrites"] = not tensorflow.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
print(json.dumps(answers))
"""


def _keras_python() -> str | None:
    """OOMCAST_KERAS_PYTHON may name a Python that has Keras and TensorFlow, where this one has not."""
    found = [importlib.util.find_spec(name) for name in ("keras", "tensorflow")]
    # A folder of tests that is called tensorflow is found too, as a package without a file.
    here = all(one is not None and one.origin for one in found)
    return os.environ.get("OOMCAST_KERAS_PYTHON") or (sys.executable if here else None)


@pytest.mark.skipif(_keras_python() is None, reason="Keras and TensorFlow are not installed")
def test_keras_has_the_same_network(tmp_path: Path) -> None:
    """In a process of its own, whose Python has Keras and TensorFlow: parameters, output shape, a short training."""
    files = {name: tmp_path / f"{name}.py" for name in TEMPLATES}
    for name, file in files.items():
        file.write_text(render(small(name), "keras", steps=1))
    (tmp_path / "check.py").write_text(KERAS_CHECK)
    command = [str(_keras_python()), str(tmp_path / "check.py"), *map(str, files.values())]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)
    assert run.returncode == 0, run.stderr
    answers = json.loads(run.stdout.splitlines()[-1])
    assert not answers["rewrites"], "Grappler's rewrites differ from process to process, and so would the peak"
    for name, file in files.items():
        network = small(name)
        batch, *sizes = network_shapes(network)[network.layers[-1].name]
        trained, outputs = answers[str(file)]
        assert trained == count_parameters(network, "keras")
        channels_last = [*sizes[1:], sizes[0]] if network.loss in ("pixels", "dice") else sizes
        assert outputs == [batch, *channels_last]
        if name != "lstm":
            assert count_parameters(network, "keras") == count_parameters(network, "torch")


def test_parameters_differ_only_by_the_second_bias_of_recurrent_layers() -> None:
    for cell, gates in {"lstm": 4, "rnn": 1, "gru": 0}.items():
        network = TEMPLATES["lstm"].network({"cell": cell, "hidden": 10, "depth": 3, "bidirectional": True})
        difference = count_parameters(network, "torch") - count_parameters(network, "keras")
        assert difference == gates * 10 * 3 * 2
    network = TEMPLATES["lstm"].network({"bias": False})
    assert count_parameters(network, "torch") == count_parameters(network, "keras")
