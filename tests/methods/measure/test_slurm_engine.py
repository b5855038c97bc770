"""Cases as job arrays of a real Slurm: slurmctld and slurmd are started here, from a configuration of their own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from measure_cases import python_case

from oomcast.errors import BadInput
from oomcast.methods.measure import Conditions, Limits, Outcome, Store, engines, run_campaign

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel", "sinfo")
there = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0 or any(shutil.which(program) is None for program in PROGRAMS),
    reason="a Slurm of one's own needs root and Debian's packages slurm-wlm and munge",
)
CONFIGURATION = """
ClusterName=oomcast
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
PLAIN = "held = bytearray({size} << 20)\nheld[::4096] = b'x' * len(held[::4096])\n"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("slurm")
    (munge := folder / "munge").mkdir(mode=0o700)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (munge / "key").write_bytes(os.urandom(1024))
    (munge / "key").chmod(0o400)
    host = socket.gethostname().split(".")[0]
    configuration = folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(host=host, folder=folder, ports=_free_ports(2)))
    files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")]
    commands = [
        ["munged", "--foreground", "--force", f"--socket={munge / 'socket'}", *files],
        ["slurmctld", "-D", "-c", "-f", str(configuration)],
        ["slurmd", "-D", "-c", "-f", str(configuration)],
    ]
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(configuration)
    started = []
    try:
        for command in commands:
            log = (folder / f"{command[0]}.log").open("wb")
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
            log.close()
            _until(lambda: (munge / "socket").exists(), "munged does not start")
        _until(lambda: b"idle" in subprocess.run(["sinfo", "-h"], capture_output=True, check=False).stdout, "no node")
        yield folder
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _until(holds: object, problem: str) -> None:
    for _ in range(600):
        if holds():  # type: ignore[operator]
            return
        time.sleep(0.2)
    pytest.fail(problem)


@there
def test_an_array_measures_every_case(slurm: Path, tmp_path: Path) -> None:
    cases = [python_case(PLAIN.format(size=size), size=size) for size in (20, 60, 100)]
    conditions = Conditions(Limits(60, 500 << 20))
    with Store.open(tmp_path / "store.db") as store:
        assert run_campaign(cases, store, engines.SlurmEngine(tmp_path), conditions=conditions) == 3
        peaks = {one.case.parameters["size"]: one.peak_bytes for one in store.measurements()}
        assert {one.outcome for one in store.measurements()} == {Outcome.OK}
        # What is done is not done again, also not by another engine.
        assert run_campaign(cases, store, conditions=conditions) == 0
    assert 35 << 20 < peaks[100] - peaks[60] < 45 << 20
    assert 35 << 20 < peaks[60] - peaks[20] < 45 << 20
    assert not list(tmp_path.glob("oomcast-slurm-*")), "the exchange folder is removed"


@there
def test_a_case_beyond_its_limit_and_one_that_fails_are_told(slurm: Path, tmp_path: Path) -> None:
    cases = [python_case(PLAIN.format(size=400), size=400), python_case("raise ValueError('no')", size=0)]
    with Store.open(tmp_path / "store.db") as store:
        run_campaign(cases, store, engines.SlurmEngine(tmp_path), conditions=Conditions(Limits(60, 100 << 20)))
        told = {one.case.parameters["size"]: one for one in store.measurements()}
    assert told[400].outcome is Outcome.OOM
    assert told[0].outcome is Outcome.CRASH
    assert "ValueError: no" in told[0].message


@there
def test_what_slurm_refuses_is_one_sentence(slurm: Path, tmp_path: Path) -> None:
    engine = engines.SlurmEngine(tmp_path, ("--partition=nowhere",))
    with Store.open(tmp_path / "store.db") as store:
        with pytest.raises(BadInput, match=r"Slurm refused the cases: .*partition"):
            run_campaign([python_case("pass", size=1)], store, engine)
        assert store.status("test").open == 1, "the case is given back"


def test_without_slurm_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        Store.open(tmp_path / "store.db") as store,
        pytest.raises(BadInput, match="the engine slurm needs sbatch, which is not on the PATH"),
    ):
        run_campaign([python_case("pass", size=1)], store, engines.SlurmEngine(tmp_path))
