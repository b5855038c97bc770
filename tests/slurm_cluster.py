"""A Slurm of one's own for tests: munged, slurmctld and slurmd from Debian, with a configuration of their own.

The one node has a GPU of each of two types, as far as Slurm is concerned: nothing is done with them.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel", "sinfo")
slurm_is_there = pytest.mark.skipif(
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
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 Gres=gpu:tiny:1,gpu:rtx3090:1 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def running_slurm(folder: Path, job_submit: str | None = None) -> Iterator[Path]:
    """With SLURM_CONF set, so that sbatch and the others find it. `job_submit`: a script of Lua that it asks."""
    (munge := folder / "munge").mkdir(mode=0o700)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (munge / "key").write_bytes(os.urandom(1024))
    (munge / "key").chmod(0o400)
    host = socket.gethostname().split(".")[0]
    configuration = folder / "slurm.conf"
    (folder / "gres.conf").write_text("Name=gpu Type=tiny File=/dev/null\nName=gpu Type=rtx3090 File=/dev/zero\n")
    content = CONFIGURATION.format(host=host, folder=folder, ports=_free_ports(2))
    if job_submit is not None:
        (folder / "job_submit.lua").write_text(job_submit)
        content += "JobSubmitPlugins=lua\n"
    configuration.write_text(content)
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
