"""Logs of real clusters: what is read of each form, and how a stretch of one becomes a day of a few cards."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lab.benchmarks.cluster_log import ClusterLog, read_cluster_log
from lab.benchmarks.packing import Row, compare
from oomcast.errors import BadInput
from oomcast.units import GiB

ALIBABA = """name,num_gpu,gpu_milli,pod_phase,creation_time,deletion_time,scheduled_time
a,1,1000,Succeeded,100,400,200
b,8,1000,Succeeded,110,900,120
c,1,460,Running,120,12902960,120
d,1,460,Failed,50,80,
e,1,1000,Succeeded,300,,310
"""
HELIOS = """job_id,user,gpu_num,state,submit_time,duration
1,u,1,COMPLETED,2020-04-01 00:10:00,60
2,u,8,COMPLETED,2020-04-01 00:11:00,60
3,u,1,CANCELLED,2020-04-01 00:00:00,0
4,u,1,FAILED,2020-04-01 00:00:00,30
"""


def log(tmp_path: Path, text: str) -> ClusterLog:
    (path := tmp_path / "log.csv").write_text(text)
    return read_cluster_log(path)


def test_jobs_of_one_gpu_that_ended_are_read_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    assert log(tmp_path, ALIBABA) == ClusterLog("log", (30.0, 200.0), (50.0, 100.0))
    helios = log(tmp_path, HELIOS)
    assert helios.durations == (30.0, 60.0)
    assert helios.arrivals[1] - helios.arrivals[0] == 600
    assert log(tmp_path, "runtime\n0.0\n5\n1e3\n") == ClusterLog("log", (5.0, 1000.0), ())


def test_a_stretch_keeps_the_order_and_the_pattern_and_comes_as_often_as_asked() -> None:
    whole = ClusterLog("log", (1.0, 2.0, 3.0, 9e9), (0.0, 10.0, 11.0, 31.0))
    day = whole.stretch(random.Random(1), 4, every=100.0, longest=50.0)
    assert [time for time, _ in day] == pytest.approx([0.0, 400 * 10 / 31, 400 * 11 / 31, 400.0])
    assert [duration for _, duration in day] == [1.0, 2.0, 3.0, 50.0]
    alone = ClusterLog("log", (1.0, 2.0), ()).stretch(random.Random(1), 2, every=100.0, longest=50.0)
    assert 0 < alone[0][0] < alone[1][0]
    assert {duration for _, duration in alone} <= {1.0, 2.0}


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "", "runtime\nsoon\n", "runtime\n5\n"])
def test_what_is_no_log_is_said(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput):
        log(tmp_path, text).stretch(random.Random(0), 5, 1.0, 1.0)
    with pytest.raises(BadInput, match="cannot read the log"):
        read_cluster_log(tmp_path / "none.csv")


def test_days_of_a_log_are_replayed() -> None:
    rows = [
        Row(f"r{n}", f"f{n}", (n % 5 + 1) * 4 * GiB, dict.fromkeys(_ESTIMATORS, (n % 5 + 1) * 4 * GiB))
        for n in range(40)
    ]
    asked = {"jobs": 20, "days": 1, "gpus": 2, "every": 10.0, "slowdown": 0.2, "risk": 0.05}
    short = ClusterLog("short", (60.0,) * 50, tuple(float(n) for n in range(50)))
    long = ClusterLog("long", (6000.0,) * 50, short.arrivals)
    by_log = [{(one.estimator, one.policy): one for one in compare(rows, **asked, log=one)} for one in (short, long)]
    for key, brief in by_log[0].items():
        assert brief.ooms_per_1000 == 0  # estimates that are never wrong
        assert by_log[1][key].makespan > 10 * brief.makespan


_ESTIMATORS = ("simulator", "learned", "horus", "fake-tensor")
