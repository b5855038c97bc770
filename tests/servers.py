"""Servers that tests start for themselves, in temporary folders; skipped with the reason where they cannot be."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from oomcast.methods.measure.processes import MARKER, end_marked, new_marker


@pytest.fixture(scope="session")
def postgresql_server():
    """A server of the tests' own, reached through a socket in a temporary folder."""
    pytest.importorskip("psycopg")
    programs = [shutil.which(name) for name in ("initdb", "pg_ctl")]
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin")):
        programs = [
            program or shutil.which(name, path=str(folder))
            for program, name in zip(programs, ("initdb", "pg_ctl"), strict=True)
        ]
    if None in programs:
        pytest.skip("no PostgreSQL server programs (initdb, pg_ctl) on this machine")
    initdb, pg_ctl = programs
    folder = Path(tempfile.mkdtemp(prefix="oompg"))
    # PostgreSQL refuses to run as root.
    user = {}
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    quiet = {"cwd": folder, "check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT, **user}
    data = str(folder / "data")
    subprocess.run([initdb, "-D", data, "-A", "trust", "-U", "oomcast", "-E", "UTF8", "--no-sync"], **quiet)
    options = f"-k {folder} -c listen_addresses='' -c fsync=off"
    subprocess.run([pg_ctl, "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start"], **quiet)
    try:
        yield f"postgresql://oomcast@/postgres?host={folder}"
    finally:
        subprocess.run([pg_ctl, "-D", data, "-m", "immediate", "stop"], **quiet)
        shutil.rmtree(folder)


@pytest.fixture
def postgresql(postgresql_server):
    """Its URL, with nothing in the database."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgresql_server) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return postgresql_server


@pytest.fixture(scope="session")
def ray_cluster():
    """A cluster of one machine, started and ended by Ray's own command."""
    pytest.importorskip("ray")
    # Whether Ray wants a token depends on what earlier clusters left in the user's home: here neither side does.
    given = os.environ.get("RAY_AUTH_MODE")
    os.environ["RAY_AUTH_MODE"] = "disabled"
    try:
        # Ray gives its own parts 30 seconds to start, which a busy machine may not keep.
        for attempt in range(3):
            with _ray_node() as address:
                if address is not None or attempt == 2:
                    assert address is not None, "Ray did not start"
                    yield address
                    break
    finally:
        if given is None:
            del os.environ["RAY_AUTH_MODE"]
        else:
            os.environ["RAY_AUTH_MODE"] = given


@contextmanager
def _ray_node():
    """Its address, or None where it ended before it had one."""
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    marker = new_marker()
    start = ["start", "--head", "--port=0", "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"]
    with (folder / "output").open("w") as output:
        node = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", *start, f"--temp-dir={folder}", "--block"],
            stdout=output,
            stderr=output,
            env={**os.environ, MARKER: marker},
            start_new_session=True,
        )
    try:
        while node.poll() is None and "--address=" not in (folder / "output").read_text():
            time.sleep(0.1)
        told = (folder / "output").read_text()
        yield told.split("--address=")[1].split()[0].strip("'") if "--address=" in told else None
    finally:
        node.terminate()
        node.wait()
        # Ray's daemons have sessions of their own and may outlive the command that started them.
        end_marked(f"{MARKER}={marker}")
        shutil.rmtree(folder, ignore_errors=True)
