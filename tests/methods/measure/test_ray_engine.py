"""Campaigns on a Ray cluster. Each runs in a process of its own: Ray leaves threads and warnings behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from oomcast import cluster
from oomcast.errors import BadInput
from oomcast.methods.measure import Conditions
from oomcast.methods.measure.engines import RayEngine

PROGRAM = """
import dataclasses, json, sys
from measure_cases import python_case
from oomcast.errors import OomcastError
from oomcast.methods.measure import *
from oomcast.methods.measure import engines

def attempt(cases, **conditions):
    limits = Limits(60, 256 << 20)
    try:
        run_campaign(cases, store, engines.RayEngine(sys.argv[2]), conditions=Conditions(limits, **conditions))
    except OomcastError as error:
        return f"{type(error).__name__}: {error}"

with Store.open(sys.argv[1]) as store:
    told = [
        attempt([python_case("", device="a100")]),
        attempt([python_case("")], threads=64),
        attempt([dataclasses.replace(python_case(""), framework="keras")], interpreters={"keras": "/no/python"}),
        attempt([
            python_case("held = bytearray(1 << 20)", 1, campaign="c"),
            python_case("1 / 0", 2, campaign="c"),
            python_case("import os, time; os.kill(os.getppid(), 9); time.sleep(60)", 3, campaign="c"),
            python_case("held = []\\nwhile True: held.append(b'1' * (1 << 20))", 4, campaign="c"),
        ]),
    ]
    print(json.dumps([told, store.columns(["outcome", "message"], Selection("c"))]))
"""


def test_outcomes_and_errors(ray_cluster, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store.db"), ray_cluster],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    told, columns = json.loads(answer.stdout.strip().splitlines()[-1])
    assert told[0].startswith("BadInput: a case for 'a100' needs a GPU")
    assert told[1].startswith("BadInput: a case for 'cpu' needs 64 CPUs")
    assert told[2].startswith("BadInput: the Python for keras cases, /no/python, cannot be run")
    assert told[3] is None
    assert columns["outcome"] == ["ok", "crash", "crash", "oom"]
    assert "ZeroDivisionError" in columns["message"][1]
    assert "lost 3 times" in columns["message"][2]


def test_a_cluster_that_is_not_there(tmp_path):
    pytest.importorskip("ray")
    with pytest.raises(BadInput, match="cannot reach the Ray cluster"), RayEngine("127.0.0.1:1").start(Conditions()):
        pass


@pytest.mark.parametrize("address", [None, "auto", "local"])
def test_addresses_that_ray_finds_itself_are_left_to_it(address):
    cluster._check_reachable(address)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "[::1]:1", "127.0.0.1:99999999"])
def test_addresses_that_cannot_be_reached(address):
    with pytest.raises(BadInput, match="cannot reach"):
        cluster._check_reachable(address)


def test_without_the_package_the_way_to_install_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match=r"oomcast\[ray\]"), RayEngine().start(Conditions()):
        pass
