"""A campaign killed with SIGKILL again and again ends with every case measured once, and repeats nothing finished."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from campaign_driver import quick_cases

from oomcast.methods.measure import Outcome, Store

CASES = 200
KILLS = 10
DRIVER = str(Path(__file__).with_name("campaign_driver.py"))


def kill_and_resume(where: str, engine: str, log: Path) -> None:
    """Kill the campaign at random moments of its work, then let it end; each time it must go on where it was."""
    moments = random.Random(4)
    specs = quick_cases(CASES, str(log))
    keys = [spec.key for spec in specs]
    number = {spec.key: spec.repetition for spec in specs}
    for kill in range(KILLS + 1):
        seen = len(runs(log))
        before = finished(where)
        assert len(before) < CASES, "nothing was left to interrupt"
        process = subprocess.Popen([sys.executable, DRIVER, where, engine, str(CASES), str(log)])
        if kill < KILLS:
            until = seen + moments.randrange(CASES * 3 // (2 * KILLS))
            while len(runs(log)) < until:
                assert process.poll() is None
                time.sleep(0.005)
            time.sleep(moments.uniform(0, 0.3))
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        else:
            assert process.wait() == 0
        time.sleep(0.2)  # a case that died with its campaign may be writing its line
        repeated = {number[key] for key in before} & set(runs(log)[seen:])
        assert not repeated, f"finished cases were run again: {sorted(repeated)}"
    with Store.open(where) as store:
        assert store.states(keys) == dict.fromkeys(keys, "done")
        measured = store.columns(["key", "outcome"])
    assert Counter(measured["key"]) == Counter(keys)
    assert set(measured["outcome"]) == {Outcome.OK.value}
    assert set(runs(log)) == set(range(CASES))
    # Only what ran when it was killed may have run more than once.
    assert len(runs(log)) <= CASES + KILLS * 4


def finished(where: str) -> list[str]:
    with Store.open(where) as store:
        return store.columns(["key"])["key"]


def runs(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def test_sqlite(tmp_path):
    kill_and_resume(str(tmp_path / "store.db"), "local", tmp_path / "log")


def test_postgresql(postgresql, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kill_and_resume(postgresql, "local", tmp_path / "log")


def test_ray(ray_cluster, tmp_path):
    kill_and_resume(str(tmp_path / "store.db"), ray_cluster, tmp_path / "log")
