"""What users import stays what it is, and importing it loads no framework."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import oomcast
from oomcast.errors import BadInput, OomcastError, UnknownName

HEAVY = ("torch", "numpy", "transformers", "timm", "rich")


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_public_names_are_these() -> None:
    assert set(oomcast.__all__) == {
        "Estimate",
        "__version__",
        "calibrate",
        "contribute",
        "estimate",
        "fit",
        "plan",
        "rank_gpus",
        "run",
        "virtual_gpu",
        "what_to_change",
    }
    for name in oomcast.__all__:
        assert getattr(oomcast, name) is not None
    assert dir(oomcast) == sorted(oomcast.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        oomcast.nothing  # noqa: B018


def test_importing_oomcast_loads_no_framework() -> None:
    assert loaded_after("import oomcast") == set()
    assert loaded_after("import oomcast.estimation, oomcast.simulate, oomcast.devices, oomcast.trace") == set()
    assert loaded_after("import oomcast.cli") == set()


def test_the_proof_can_fail() -> None:
    assert "torch" in loaded_after("import oomcast.capture.torch.run")


def test_estimate_is_a_plain_function_with_a_signature() -> None:
    assert inspect.isfunction(oomcast.estimate)
    parameters = inspect.signature(oomcast.estimate).parameters
    assert {"job", "batch_size", "device", "optimizer", "precision", "environment", "estimator"} <= set(parameters)


def test_every_error_has_an_exit_code() -> None:
    assert OomcastError("x").exit_code == 1
    assert BadInput("x").exit_code == 2
    error = UnknownName("device", "a10o", ["a100", "a10", "t4"])
    assert error.exit_code == 2
    assert error.near[0] in ("a100", "a10")
    assert "did you mean" in str(error)
