"""A little load, a kill and a small attack; `python -m lab serve` does more of each."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")


def test_nothing_is_lost_and_nothing_gets_in() -> None:
    sizes = ["--seconds", "2", "--clients", "4", "--kills", "1", "--requests", "150"]
    done = subprocess.run([sys.executable, "-m", "lab", "serve", *sizes, "--json"], capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert [fault for part in told.values() for fault in part["faults"]] == []
    assert told["killed"]["answered"] == 4
    assert told["attacked"]["statuses"]["401"] > 20
    assert done.returncode == 0
