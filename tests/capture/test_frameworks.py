"""Which framework a job is of: what its file imports, what its model is, what the user says."""

from __future__ import annotations

import importlib.util
from collections import OrderedDict
from pathlib import Path

import pytest

import oomcast
from oomcast.capture import guess_framework
from oomcast.capture._frameworks import OtherFramework, check_framework, framework_of, missing_framework
from oomcast.errors import BadInput, UnknownName
from oomcast.workload import Workload


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("import torch\n", "torch"),
        ("import keras\nimport numpy\n", "tensorflow"),
        ("from tensorflow.keras import layers\n", "tensorflow"),
        ("import jax.numpy as jnp\n", "jax"),
        ("def model():\n    import keras\n", "tensorflow"),
        ("import keras\nimport torch\n", "torch"),  # it may be either: torch's capture finds out
        ("import numpy\n", "torch"),
        ("this is not Python", "torch"),
    ],
)
def test_a_files_imports_are_the_first_guess(tmp_path: Path, text: str, framework: str) -> None:
    path = tmp_path / "job.py"
    path.write_text(text)

    assert guess_framework(Workload.create(path)) == framework
    assert guess_framework(Workload.create(path, framework="torch")) == "torch"


def test_what_a_model_descends_from_decides() -> None:
    foreign = type("Functional", (), {"__module__": "keras.src.models"})
    own = type("Mine", (foreign,), {"__module__": "job"})

    assert framework_of(own()) == "tensorflow"
    assert framework_of(OrderedDict()) is None
    check_framework(OrderedDict(), "torch")
    with pytest.raises(OtherFramework, match="tensorflow"):
        check_framework(own(), "torch")


def test_names_of_frameworks_are_checked_and_spelt_as_people_do() -> None:
    assert Workload.create("zoo:mlp", framework="Keras").framework == "tensorflow"
    assert Workload.create("zoo:mlp", framework="pytorch").framework == "torch"
    with pytest.raises(UnknownName, match="tensorflow"):
        Workload.create("zoo:mlp", framework="tensorfow")
    assert "framework" not in Workload.create("zoo:mlp").as_dict()


def test_a_framework_without_a_capture_yet_says_so(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("import mxnet\n")

    with pytest.raises(BadInput, match="mxnet"):
        oomcast.estimate(path, batch_size=1, device="a100-40gb")


def test_what_is_missing_names_the_extra() -> None:
    assert "pip install 'oomcast[tensorflow]'" in str(missing_framework("tensorflow", "keras"))


@pytest.mark.parametrize(
    ("framework", "package", "file", "text"),
    [
        ("tensorflow", "tensorflow", "job.py", "import keras\n"),
        ("jax", "jax", "job.py", "from flax import linen\n"),
        ("onnx", "onnx", "model.onnx", "not read"),
    ],
)
def test_a_job_whose_framework_is_not_installed_is_told_what_to_install(
    tmp_path: Path, framework: str, package: str, file: str, text: str
) -> None:
    found = importlib.util.find_spec(package)
    if found is not None and found.origin is not None:  # else it is only a folder of tests of that name
        pytest.skip(f"{package} is installed here")
    path = tmp_path / file
    path.write_text(text + "\ndef model(): ...\n\ndef batch(n): ...\n")

    with pytest.raises(BadInput, match=rf"oomcast\[{framework}\]"):
        oomcast.estimate(path, batch_size=1, device="a100-40gb")


def test_a_model_file_is_of_onnx_whatever_is_said(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")

    assert guess_framework(Workload.create(path)) == "onnx"
    with pytest.raises(BadInput, match="leave --framework out"):
        guess_framework(Workload.create(path, framework="jax"))
