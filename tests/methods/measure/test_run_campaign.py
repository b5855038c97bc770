"""Campaigns: every case once, through failures, interruptions, other runners and databases that go away."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from campaign_driver import quick_cases
from measure_cases import python_case

from oomcast.errors import BadInput
from oomcast.methods.measure import Conditions, Limits, Outcome, Store, StoreUnavailable, engines, run_campaign
from oomcast.methods.measure import campaign_run as _run
from oomcast.methods.measure import store as _store
from oomcast.methods.measure.engines import local as _local
from oomcast.methods.measure.processes import case_folder
from oomcast.units import GiB, MiB

PATIENT = Conditions(Limits(seconds=60, bytes=256 * MiB))
DRIVER = str(Path(__file__).with_name("campaign_driver.py"))


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store.db") as store:
        yield store


def test_a_campaign_ends_with_every_case_and_repeats_nothing(store, tmp_path):
    cases = quick_cases(6, str(tmp_path / "log"))
    told = []
    assert run_campaign(cases[:4], store, engines.LocalEngine(2), conditions=PATIENT, progress=told.append) == 4
    assert run_campaign(cases, store, conditions=PATIENT) == 2
    assert run_campaign(cases, store, conditions=PATIENT) == 0
    assert sorted((tmp_path / "log").read_text().split()) == list("012345")
    assert [p.done for p in told] == sorted(p.done for p in told)
    assert told[0].eta_seconds is None
    assert (told[-1].done, told[-1].total, told[-1].running, told[-1].eta_seconds) == (4, 4, 0, 0.0)
    assert max(p.running for p in told) == 2
    with store._database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM runners").scalar() == 0


def test_what_fails_is_recorded_and_the_rest_goes_on(store):
    sources = {
        "held = bytearray(1 << 20)": Outcome.OK,
        "1 / 0": Outcome.CRASH,
        "import ctypes; ctypes.string_at(0)": Outcome.CRASH,
        "import time; time.sleep(100)": Outcome.TIMEOUT,
        "held = []\nwhile True: held.append(b'1' * (1 << 20))": Outcome.OOM,
        "import os; os._exit(0)": Outcome.CRASH,
        "import os; os.write(1, os.urandom(1 << 16)); held = bytearray(1 << 21)": Outcome.OK,
    }
    cases = [python_case(source, number) for number, source in enumerate(sources)]
    told = []
    conditions = Conditions(Limits(seconds=3, bytes=100 * MiB))
    run_campaign(cases, store, engines.LocalEngine(2), conditions=conditions, progress=told.append)
    assert [m.outcome for m in store.measurements()] == list(sources.values())
    assert told[-1].failed == 5


def test_two_runners_share_a_campaign(store, tmp_path):
    count, log = 30, tmp_path / "log"
    other = subprocess.Popen([sys.executable, DRIVER, str(tmp_path / "store.db"), "local", str(count), str(log)])
    here = run_campaign(quick_cases(count, str(log)), store, engines.LocalEngine(2), conditions=PATIENT)
    assert other.wait() == 0
    assert sorted(map(int, log.read_text().split())) == list(range(count)), "each case ran once"
    assert store.count() == count
    assert here <= count


def test_cases_of_a_runner_that_dies_are_taken_over(store, tmp_path):
    log = tmp_path / "log"
    slow = f"import os, time\nif not os.path.exists({str(log)!r}): open({str(log)!r}, 'w'); time.sleep(1000)"
    script = (
        "import sys\nfrom measure_cases import python_case\nfrom oomcast.methods.measure import *\n"
        f"with Store.open(sys.argv[1]) as store: run_campaign([python_case({slow!r})], store)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    dying = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "store.db")], env=environment)
    while not log.exists():
        assert dying.poll() is None
        time.sleep(0.01)
    threading.Timer(0.5, lambda: (dying.kill(), dying.wait())).start()
    case = python_case(slow)
    assert run_campaign([case], store, conditions=PATIENT) == 1
    assert [m.outcome for m in store.measurements()] == [Outcome.OK]


def test_ctrl_c_ends_the_cases_and_gives_them_back(tmp_path):
    started = tmp_path / "started"
    source = f"import os, time\nopen({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    script = (
        "import sys\nfrom measure_cases import python_case\nfrom oomcast.methods.measure import *\n"
        "with Store.open(sys.argv[1]) as store:\n"
        f"    try: run_campaign([python_case({source!r})], store)\n"
        "    except KeyboardInterrupt: sys.exit(130)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    runner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "store.db")], env=environment)
    while not started.exists() or not started.read_text():
        assert runner.poll() is None
        time.sleep(0.01)
    runner.send_signal(signal.SIGINT)
    assert runner.wait() == 130
    assert not Path(f"/proc/{started.read_text()}").exists()
    with Store.open(tmp_path / "store.db") as store:
        assert store.status("test").open == 1


def test_a_killed_runner_takes_its_cases_with_it(tmp_path):
    started = tmp_path / "started"
    source = f"import os, time\nopen({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    script = (
        "import sys\nfrom measure_cases import python_case\nfrom oomcast.methods.measure import *\n"
        f"with Store.open(sys.argv[1]) as store: run_campaign([python_case({source!r})], store)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    runner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "store.db")], env=environment)
    while not started.exists() or not started.read_text():
        assert runner.poll() is None
        time.sleep(0.01)
    runner.kill()
    runner.wait()
    case = Path(f"/proc/{started.read_text()}/cmdline")
    until = time.monotonic() + 30
    while _text(case) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _text(case)
    with Store.open(tmp_path / "store.db") as store:
        with store._database.reading() as connection:
            folder = case_folder(connection.exec_driver_sql("SELECT marker FROM cases").scalar())
        assert folder.exists()
        assert store.free_abandoned() == 1
        assert not folder.exists()


def _text(path: Path) -> bytes:
    """A process that has ended but was not waited for has an empty command line."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_no_case_starts_without_room_for_its_limit(store, tmp_path, monkeypatch):
    free = {"bytes": 100 * MiB}
    monkeypatch.setattr(_local, "available_memory", lambda: free["bytes"])
    told = []

    def progress(state) -> None:
        told.append(state)
        if state.waiting:
            free["bytes"] = 400 * MiB

    run_campaign(
        quick_cases(4, str(tmp_path / "log")), store, engines.LocalEngine(4), conditions=PATIENT, progress=progress
    )
    assert any(state.waiting for state in told), "100 MiB are not enough for a limit of 256"
    assert max(state.running for state in told) == 1, "400 MiB are not enough for two"
    assert store.count() == 4


def test_a_limit_beyond_the_machine_is_bad_input(store):
    too_much = Conditions(Limits(bytes=1 << 60))
    with pytest.raises(BadInput, match="more than this machine has"):
        run_campaign([python_case("")], store, conditions=too_much)
    assert store.status("test").open == 1


def test_a_missing_framework_stops_before_anything_is_recorded(store, tmp_path):
    case = dataclasses.replace(python_case(""), framework="keras")
    nowhere = Conditions(PATIENT.limits, interpreters={"keras": str(tmp_path / "python")})
    with pytest.raises(BadInput, match="keras"):
        run_campaign([case], store, conditions=nowhere)
    assert store.status("test").open == 1


def test_a_database_that_goes_away_loses_nothing(tmp_path, monkeypatch):
    """It goes while two cases run; both are kept and written when it is back."""
    monkeypatch.setattr(_store, "_RETRY_AFTER", (0.01,))
    path, away = tmp_path / "store.db", tmp_path / "away.db"
    source = "import time; time.sleep(0.3)"
    cases = [python_case(source, number) for number in range(5)]

    def leave(state) -> None:
        if state.running == 2 and path.is_file():
            store.close()
            path.rename(away)
            path.mkdir()

    store = Store.open(path)
    with pytest.raises(StoreUnavailable, match="kept in"):
        run_campaign(cases, store, engines.LocalEngine(2), conditions=PATIENT, progress=leave)
    store.close()
    path.rmdir()
    away.rename(path)
    with Store.open(path) as again:
        assert again.count() == 2
        assert run_campaign(cases, again, conditions=PATIENT) == 3
        assert again.count() == 5


def test_a_campaign_out_of_time_leaves_the_rest_open(store):
    cases = [python_case("import time; time.sleep(0.2)", number) for number in range(3)]
    assert run_campaign(cases, store, conditions=PATIENT, total_seconds=0) == 0
    assert store.status("test").open == 3
    told = []
    measured = run_campaign(cases, store, conditions=PATIENT, total_seconds=0.05, progress=told.append)
    assert measured <= 1
    assert (store.status("test").open, store.status("test").claimed) == (3 - measured, 0)
    assert told[-1].running == 0
    assert run_campaign(cases, store, conditions=PATIENT, total_seconds=600) == 3 - measured


def test_the_default_limit_shares_the_free_memory(monkeypatch):
    monkeypatch.setattr(_local, "usable_memory", lambda: 8 * GiB)
    with engines.LocalEngine(workers=4).start(Conditions()) as session:
        assert session._limit == 2 * GiB


def test_a_long_campaign_that_others_have_done_is_passed_quickly(store, monkeypatch):
    """Claims look at a window of cases; what is done elsewhere is dropped from it in one question."""
    monkeypatch.setattr(_run, "_WINDOW", 10)
    cases = [python_case("", number) for number in range(95)]
    store.register(cases)
    campaign = _run._Campaign(cases, store, None)
    with store._database.transaction() as connection:
        connection.exec_driver_sql("UPDATE cases SET state = 'done'")

    class Never:
        def has_room(self, device):
            return True

        def collect(self, timeout):
            return []

    campaign.run(Never(), "runner", 60)
    assert campaign.finished_here == 0
