"""Cases of campaigns under Keras: their static figures come from TensorFlow's own graph."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from oomcast.cli import main
from oomcast.methods.measure import facts_of
from oomcast.methods.tbem.static_figures import case_trace, static_value
from oomcast.trace import Category

SMALL = {
    "mlp": {"batch_size": 4, "width": 32, "features": 16},
    "vgg": {"batch_size": 2, "edge": 32, "width": 0.125, "dense_width": 16},
    "unet2d": {"batch_size": 1, "edge": 16, "width": 4, "levels": 2},
    "lstm": {"batch_size": 2, "length": 8, "width": 16, "vocabulary": 50},
}

SMALL_CAMPAIGN = """
name = "small"
template = "mlp"
framework = "keras"
device = "cpu"
held_out = 0

[plan]
method = "full"

[factors]
width = [16, 32, 64, 128]

[fixed]
batch_size = 4
features = 16
"""


@pytest.mark.parametrize("template", SMALL)
def test_a_template_is_captured_from_tensorflows_graph(template: str) -> None:
    trace = case_trace(template, {**SMALL[template], "optimizer": "adam"}, 2, graph="keras")
    figures = static_value(trace)
    state = sum(made.nbytes for made in trace.allocations if made.category is Category.OPTIMIZER_STATE)
    assert figures.total > figures.parameters > 0
    assert state >= 1.9 * figures.parameters  # the case's own optimizer is followed


def test_an_own_job_is_captured_as_its_cases_run(tmp_path: Path) -> None:
    """They run without XLA, which Keras would choose for the job on a GPU."""
    job = tmp_path / "job.py"
    job.write_text(
        "import keras\nimport numpy as np\n\n\n"
        "def model(width: int = 64):\n"
        "    net = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(width), keras.layers.Dense(1)])\n"
        "    net.compile('adam', 'mse')\n"
        "    return net\n\n\n"
        "def batch(batch_size: int = 4):\n"
        "    return np.zeros((batch_size, 16), 'float32'), np.zeros((batch_size, 1), 'float32')\n"
    )
    trace = case_trace(str(job), {"batch_size": 8, "width": 32}, 2, graph="keras")

    assert not any("XLA" in sentence for sentence in trace.assumptions)


def test_the_version_of_a_module_that_is_not_called_as_its_package() -> None:
    """tensorflow may come with tensorflow-cpu; two environments must not be taken for one."""
    assert set(facts_of("keras", sys.executable)["versions"]) == {"keras", "tensorflow"}


def test_compare_captures_with_the_python_that_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another environment has another TensorFlow, whose graph is another: SGV must come from it, too."""
    called = tmp_path / "called"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> "{called}"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    campaign = tmp_path / "small.toml"
    campaign.write_text(SMALL_CAMPAIGN)
    monkeypatch.delenv("OOMCAST_PYTHON_TENSORFLOW", raising=False)
    monkeypatch.chdir(tmp_path)
    try:
        assert main(["campaign", "compare", str(campaign), "--python", f"keras={python}", "--json"]) == 0
    finally:
        os.environ.pop("OOMCAST_PYTHON_TENSORFLOW", None)
    assert any("oomcast.capture" in line for line in called.read_text().splitlines())
