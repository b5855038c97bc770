"""Which framework a job is of: what its file imports, what its model is, what the user says."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest

import oomcast
from oomcast.capture import guess_framework
from oomcast.capture.frameworks import OtherFramework, check_framework, framework_of, missing_framework
from oomcast.capture.messages import Answer, Request
from oomcast.errors import BadInput, UnknownName
from oomcast.spec import Spec, Workload


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("import torch\n", "torch"),
        ("import keras\nimport numpy\n", "tensorflow"),
        ("from tensorflow.keras import layers\n", "tensorflow"),
        ("import jax.numpy as jnp\n", "jax"),
        ("from mxnet import gluon\n", "mxnet"),
        ("def model():\n    import keras\n", "tensorflow"),
        ("import keras\nimport torch\n", "torch"),  # it may be either: torch's capture finds out
        ('import os\nos.environ["KERAS_BACKEND"] = "jax"\nimport keras\n', "jax"),
        ('import os\nos.environ.setdefault("KERAS_BACKEND", "torch")\nimport keras\nimport tensorflow\n', "torch"),
        ("import numpy\n", "torch"),
        ("this is not Python", "torch"),
    ],
)
def test_a_files_imports_are_the_first_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, framework: str
) -> None:
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    path = tmp_path / "job.py"
    path.write_text(text)

    assert guess_framework(Workload.create(path)) == framework
    assert guess_framework(Workload.create(path, framework="torch")) == "torch"


def test_what_keras_computes_with_is_its_framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "job.py"
    path.write_text("import keras\n")
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert guess_framework(Workload.create(path)) == "torch"
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert guess_framework(Workload.create(path)) == "jax"
    assert guess_framework(Workload.create(path, framework="keras")) == "tensorflow"
    (tmp_path / "keras.json").write_text("no settings")
    monkeypatch.delenv("KERAS_BACKEND")
    assert guess_framework(Workload.create(path)) == "tensorflow"


def test_what_a_model_descends_from_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    foreign = type("Functional", (), {"__module__": "keras.src.models"})
    own = type("Mine", (foreign,), {"__module__": "job"})

    assert framework_of(own()) == "tensorflow"
    assert framework_of(OrderedDict()) is None
    check_framework(OrderedDict(), "torch")
    assert (framework_of("gpt2.onnx"), framework_of("net-symbol.json"), framework_of("net")) == ("onnx", "mxnet", None)
    with pytest.raises(OtherFramework, match="tensorflow"):
        check_framework(own(), "torch")


def test_names_of_frameworks_are_checked_and_spelt_as_people_do() -> None:
    assert Workload.create("zoo:mlp", framework="Keras").framework == "tensorflow"
    assert Workload.create("zoo:mlp", framework="pytorch").framework == "torch"
    with pytest.raises(UnknownName, match="tensorflow"):
        Workload.create("zoo:mlp", framework="tensorfow")
    assert "framework" not in Workload.create("zoo:mlp").as_dict()


def test_what_is_missing_names_the_extra() -> None:
    assert "pip install 'oomcast[tensorflow]'" in str(missing_framework("tensorflow", "keras"))
    assert "oomcast venv make mxnet" in str(missing_framework("mxnet", "mxnet"))


@pytest.mark.parametrize(
    ("package", "file", "text", "told"),
    [
        ("tensorflow", "job.py", "import keras\n", r"oomcast\[tensorflow\]"),
        ("jax", "job.py", "from flax import linen\n", r"oomcast\[jax\]"),
        ("mxnet", "job.py", "from mxnet import gluon\n", "oomcast venv make mxnet"),
        ("onnx", "model.onnx", "not read", r"oomcast\[onnx\]"),
    ],
)
def test_a_job_whose_framework_is_not_installed_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, file: str, text: str, told: str
) -> None:
    monkeypatch.setenv("OOMCAST_CACHE_DIR", str(tmp_path))  # without environments
    found = importlib.util.find_spec(package)
    if found is not None and found.origin is not None:  # else it is only a folder of tests of that name
        pytest.skip(f"{package} is installed here")
    path = tmp_path / file
    path.write_text(text + "\ndef model(): ...\n\ndef batch(n): ...\n")

    with pytest.raises(BadInput, match=told):
        oomcast.estimate(path, batch_size=1, device="a100-40gb")


WITHOUT_TORCH = """
import sys

class NoTorch:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, NoTorch)
from oomcast.capture.worker import main
main()
"""


def test_torch_is_told_too_if_it_is_missing() -> None:
    request = Request.of(Spec.read("zoo:mlp", device="a100-40gb"))
    command = [sys.executable, "-c", WITHOUT_TORCH, "torch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(request.to_bytes())
        worker.stdin.flush()
        answer = Answer.from_bytes(worker.stdout.readline())  # while stdin is open: somebody waits for it
        worker.stdin.close()

    assert answer is not None
    assert answer.id == request.id
    assert (answer.error, answer.exit_code) == ("BadInput", 2)
    assert "pip install 'oomcast[torch]'" in answer.message


def test_so_it_is_for_a_job_that_is_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("oomcast.capture.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    job = type("Job", (), {"model": staticmethod(lambda: None), "batch": staticmethod(lambda batch_size: None)})

    with pytest.raises(BadInput, match=r"needs torch.*oomcast\[torch\]"):
        oomcast.estimate(job, batch_size=1, device="a100-40gb")


def test_a_model_file_is_of_onnx_whatever_is_said(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")

    assert guess_framework(Workload.create(path)) == "onnx"
    with pytest.raises(BadInput, match="leave --framework out"):
        guess_framework(Workload.create(path, framework="jax"))
