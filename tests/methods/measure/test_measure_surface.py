"""The public names, and that asking for them loads no framework and no cluster."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

pytest.importorskip("sqlalchemy")

import oomcast.methods.measure

NAMES = {
    "STEADY_MALLOC",
    "CaseSpec",
    "Conditions",
    "Environment",
    "Limits",
    "Measurement",
    "Outcome",
    "Progress",
    "Role",
    "Selection",
    "Status",
    "Store",
    "StoreUnavailable",
    "Value",
    "case_key",
    "check_framework",
    "facts_of",
    "measure_case",
    "run_campaign",
}
LOOK = "import sys; print(sorted({'torch', 'tensorflow', 'keras', 'ray', 'psycopg', 'pynvml'} & set(sys.modules)))"


def test_public_names():
    assert set(oomcast.methods.measure.__all__) == NAMES
    assert all(hasattr(oomcast.methods.measure, name) for name in NAMES)
    engines = importlib.import_module("oomcast.methods.measure.engines")
    assert set(engines.__all__) == {
        "Engine",
        "LocalEngine",
        "RayEngine",
        "Session",
        "SlurmEngine",
    }


def loaded(statement: str) -> str:
    answer = subprocess.run([sys.executable, "-c", f"{statement}; {LOOK}"], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def test_importing_loads_no_framework_and_no_cluster():
    assert loaded("import oomcast.methods.measure") == "[]"


def test_the_look_would_notice():
    assert loaded("import sys; sys.modules['torch'] = sys") == "['torch']"


def test_the_worker_needs_nothing_but_python():
    worker = oomcast.methods.measure.__path__[0] + "/worker.py"
    statement = f"import sys; before = set(sys.modules); exec(open({worker!r}).read(), {{'__name__': 'worker'}})"
    found = subprocess.run(
        [sys.executable, "-I", "-c", f"{statement}; print(set(sys.modules) - before)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "{'__future__'}", "what the worker imports is in every figure"
