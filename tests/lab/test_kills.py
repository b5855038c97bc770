"""A few kills; `python -m lab kills` does a thousand."""

from __future__ import annotations

import json
import subprocess
import sys


def test_nothing_is_left_lost_or_half_written() -> None:
    command = [sys.executable, "-m", "lab", "kills", "--surfaces", "sqlite", "library", "--kills", "6", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert [fault for tally in told.values() for fault in tally["faults"]] == []
    assert sum(tally["kills"] for tally in told.values()) >= 6
    assert done.returncode == 0
