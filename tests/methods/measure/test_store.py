"""The store: cases claimed once, results written once, read back as they were; the same on SQLite and PostgreSQL."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import tracemalloc

import pytest

pytest.importorskip("sqlalchemy")

from hypothesis import given, settings
from hypothesis import strategies as st
from measure_cases import python_case
from sqlalchemy import text

from oomcast.database import Database
from oomcast.errors import BadInput, UnknownName, UnreadableFile
from oomcast.methods.measure import Environment, Measurement, Outcome, Selection, Store, StoreUnavailable
from oomcast.methods.measure import store as _store
from oomcast.methods.measure import tables as _schema
from oomcast.methods.measure.processes import clean_up, process_start

HERE = Environment("3.11.7", "python", "", "machine", 2, 1 << 34, 1, "glibc 2.36")


def result(case, outcome=Outcome.OK, peak=1 << 20, **more) -> Measurement:
    return Measurement(case, outcome, peak, 0.5, HERE, timeline=((0.0, 5), (0.1, peak)), counters={"a": 7}, **more)


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    return request.getfixturevalue("postgresql")


@pytest.fixture
def store(where):
    with Store.open(where) as store:
        yield store


def test_a_measurement_comes_back_as_it_was(store):
    case = python_case("x = 'ä\0'", 3, batch=4, rate=0.5, pool="max", norm=True)
    given = result(case, Outcome.CRASH, 1 << 50, message="it „broke“.")
    assert store.finish(given)
    assert list(store.measurements(timelines_too=True)) == [given]
    (short,) = store.measurements()
    assert short.timeline == ()
    assert store.timeline(case.key) == given.timeline
    assert list(next(store.measurements()).case.parameters) == ["batch", "rate", "pool", "norm"]


def test_the_first_result_of_a_case_stays(store):
    case = python_case("")
    assert store.finish(result(case, peak=10))
    assert not store.finish(result(case, peak=20))
    assert [m.peak_bytes for m in store.measurements()] == [10]


def test_one_run_serves_every_campaign_that_has_the_case(store):
    first, second = python_case("", campaign="one"), python_case("", campaign="two")
    assert store.register([first, first]) == 1
    assert store.register([first, second]) == 1
    store.finish(result(first))
    assert store.campaigns() == ("one", "two")
    assert store.status("two").done == store.status("two").total == 1
    assert [m.case for m in store.measurements(Selection(campaign="two"))] == [second]


def test_cases_are_claimed_in_order_and_once(store):
    cases = [python_case("", number) for number in range(5)]
    store.register(cases)
    keys = [case.key for case in cases]
    ours, theirs = store.start_runner(), store.start_runner()
    taken = [store.claim(keys, runner) for runner in (ours, theirs, ours, theirs, ours, theirs)]
    assert taken == [*keys, None]
    store.release(keys[1], ours)
    assert store.states(keys)[keys[1]] == "claimed", "a runner can only give back what is its own"
    store.release(keys[1], theirs)
    store.finish(result(cases[0]))
    assert store.states(keys) == dict(zip(keys, ["done", "open", *["claimed"] * 3], strict=True))
    store.end_runner(ours)
    assert list(store.states(keys).values()).count("open") == 3
    status = store.status("test")
    assert (status.total, status.open, status.claimed, status.done) == (5, 3, 1, 1)


def test_many_threads_never_get_the_same_case(store):
    cases = [python_case("", number) for number in range(60)]
    store.register(cases)
    keys = [case.key for case in cases]
    taken: list[str] = []

    def take() -> None:
        runner = store.start_runner()
        while (key := store.claim(keys, runner)) is not None:
            taken.append(key)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(keys)


def test_cases_of_the_dead_are_freed_and_only_those(store):
    cases = [python_case("", number) for number in range(3)]
    store.register(cases)
    keys = [case.key for case in cases]
    alive, dead, away = (store.start_runner() for _ in range(3))
    for runner in (alive, dead, away):
        store.claim(keys, runner)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    runners = _schema.runners
    with store._database.transaction() as connection:
        connection.execute(runners.update().where(runners.c.id == dead).values(pid=child.pid, started="1"))
        connection.execute(runners.update().where(runners.c.id == away).values(host="another host"))
    assert store.free_abandoned(silent_seconds=60) == 1
    assert list(store.states(keys).values()) == ["claimed", "open", "claimed"]
    with store._database.transaction() as connection:
        connection.execute(runners.update().values(heartbeat=runners.c.heartbeat - 100))
    assert store.free_abandoned(silent_seconds=60) == 1, "ours is late too, but its process lives"
    assert list(store.states(keys).values()) == ["claimed", "open", "open"]
    store.heartbeat(away)
    assert store.claim(keys, away) == keys[1]


def test_a_pid_used_again_is_not_the_runner(store):
    case = python_case("")
    store.register([case])
    store.claim([case.key], store.start_runner())
    assert process_start(os.getpid())
    with store._database.transaction() as connection:
        connection.execute(_schema.runners.update().values(started="12345"))
    assert store.free_abandoned() == 1


def test_selection_and_columns(store):
    for number in range(12):
        case = python_case("", number, batch=number % 3, norm=number % 2 == 0, pool="max" if number < 6 else "avg")
        store.finish(result(case, Outcome.OOM if number == 4 else Outcome.OK, peak=number))
    names = ["peak_bytes", "parameters.batch", "parameters.none", "outcome", "counters.a", "environment.python"]
    columns = store.columns(names, Selection(parameters={"batch": 1, "norm": True}))
    assert columns == {
        "peak_bytes": [4, 10],
        "parameters.batch": [1, 1],
        "parameters.none": [None, None],
        "outcome": ["oom", "ok"],
        "counters.a": [7, 7],
        "environment.python": ["3.11.7", "3.11.7"],
    }
    assert store.columns(["peak_bytes"], Selection(outcome=Outcome.OK, parameters={"pool": "max"}))["peak_bytes"] == [
        *(0, 1, 2, 3, 5)
    ]
    assert (
        store.count(Selection(campaign="test", role="array", template="plain", framework="python", device="cpu")) == 12
    )
    assert store.count(Selection(campaign="other")) == 0
    with pytest.raises(UnknownName, match="peak_bytes"):
        store.columns(["peak_byte"])


def test_failed_cases_can_be_opened_again(store):
    cases = [python_case("", number) for number in range(3)]
    for case, outcome in zip(cases, (Outcome.OK, Outcome.CRASH, Outcome.TIMEOUT), strict=True):
        store.finish(result(case, outcome))
    assert store.reopen("test", [Outcome.CRASH, Outcome.OOM]) == 1
    assert list(store.states([case.key for case in cases]).values()).count("open") == 1
    assert store.finish(result(cases[1]))
    assert store.status("test").outcomes == {Outcome.OK: 2, Outcome.TIMEOUT: 1}


def test_a_newer_or_unknown_schema_is_refused(where):
    with Store.open(where) as store, store._database.transaction() as connection:
        connection.execute(text("UPDATE oomcast_schema SET version = 99"))
    with pytest.raises(BadInput, match="newer oomcast"):
        Store.open(where)
    with store._database.transaction() as connection:
        connection.execute(text("UPDATE oomcast_schema SET version = 0"))
    with pytest.raises(BadInput, match="too old"):
        Store.open(where)
    with store._database.transaction() as connection:
        connection.execute(text("DELETE FROM oomcast_schema"))
    with pytest.raises(UnreadableFile, match="damaged"):
        Store.open(where)
    store.close()


def test_an_older_schema_is_brought_up_to_date(where, monkeypatch):
    case = python_case("")
    with Store.open(where) as store:
        store.finish(result(case))

    def add_note(connection) -> None:
        connection.execute(text("ALTER TABLE measurements ADD COLUMN note TEXT"))

    monkeypatch.setattr(_schema, "SCHEMA_VERSION", _schema.SCHEMA_VERSION + 1)
    monkeypatch.setattr(_schema, "MIGRATIONS", {_schema.SCHEMA_VERSION - 1: add_note})
    for _ in range(2):
        with Store.open(where) as store, store._database.reading() as connection:
            assert connection.execute(text("SELECT note FROM measurements")).all() == [(None,)]
    with Store.open(where) as store:
        assert store.count() == 1


def test_tables_of_others_are_left_alone(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE cases (a)")
    connection.close()
    with pytest.raises(UnreadableFile, match="other programs"):
        Store.open(path)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ("{tmp}/none/store.db", BadInput, "no folder"),
        ("{tmp}", StoreUnavailable, "unable to open"),
        ("{tmp}/text", UnreadableFile, "not a database"),
        (":memory:", BadInput, "a file"),
        ("mysql://me@host/db", BadInput, "mysql"),
        ("postgresql://", StoreUnavailable, "cannot be used"),
        ("postgresql://me:secret@127.0.0.1:1/db", StoreUnavailable, "cannot be used"),
        ("://", BadInput, "URL"),
    ],
)
def test_what_cannot_be_a_store_is_told(tmp_path, monkeypatch, given, error, words):
    if given.startswith("postgresql"):
        pytest.importorskip("psycopg")
        monkeypatch.setenv("PGHOST", "127.0.0.1")
        monkeypatch.setenv("PGPORT", "1")
    (tmp_path / "text").write_text("this is no database at all, " * 100)
    with pytest.raises(error, match=words) as caught:
        Store.open(given.format(tmp=tmp_path))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_result_the_database_refuses_is_kept_and_written_later(tmp_path, monkeypatch):
    monkeypatch.setattr(_store, "_RETRY_AFTER", ())
    case = python_case("")
    path = tmp_path / "store.db"
    store = Store.open(path)
    store.register([case])
    store.close()
    path.rename(tmp_path / "away")
    for rest in tmp_path.glob("store.db-*"):
        rest.unlink()
    path.mkdir()
    given = result(case)
    with pytest.raises(StoreUnavailable, match="kept in"):
        store.finish(given)
    store.close()
    path.rmdir()
    (tmp_path / "away").rename(path)
    with Store.open(path) as again:
        assert list(again.measurements(timelines_too=True)) == [given]
    assert not list((tmp_path / "store.db.spool").iterdir())


def test_a_server_that_cuts_its_connections_loses_nothing(postgresql, tmp_path):
    cases = [python_case("", number) for number in range(3)]
    cut = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = user"
    )
    with Store.open(postgresql, spool=tmp_path) as store:
        other = Database(postgresql)
        store.register(cases)
        for case in cases:
            with other.transaction() as connection:
                connection.execute(cut)
            assert store.finish(result(case))
        other.close()
        assert set(store.states([case.key for case in cases]).values()) == {"done"}
    assert not list(tmp_path.iterdir())


def test_a_spool_cut_off_in_the_middle_loses_only_the_last_line(tmp_path):
    cases = [python_case("", number) for number in range(2)]
    with Store.open(tmp_path / "store.db") as store:
        store.register(cases)
        path = store._spool.add(result(cases[0]).as_dict())
        with path.open("ab") as file:
            file.write(json.dumps(result(cases[1]).as_dict()).encode()[:-20])
    with Store.open(tmp_path / "store.db") as store:
        assert [m.case for m in store.measurements()] == [cases[0]]
        assert store.status("test").open == 1


def test_a_spooled_result_waits_for_its_case(tmp_path):
    case = python_case("")
    with Store.open(tmp_path / "store.db") as store:
        store._spool.add(result(case).as_dict())
    with Store.open(tmp_path / "store.db") as store:
        assert store.count() == 0
        store.register([case])
    with Store.open(tmp_path / "store.db") as store:
        assert [m.case for m in store.measurements()] == [case]


@pytest.mark.parametrize("marker", ["", "H", "PATH", "../precious", "f" * 31, "F" * 32])
def test_markers_from_a_database_that_are_not_ours_touch_nothing(tmp_path, monkeypatch, marker):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    precious = tmp_path / "precious"
    for folder in (tmp_path / "temporary" / f"oomcast-case-{marker[:2]}", precious):
        folder.mkdir(parents=True, exist_ok=True)
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, "H": "H"})
    clean_up(marker)
    assert precious.is_dir()
    assert bystander.poll() is None
    bystander.terminate()
    assert bystander.wait() == -15


def test_reading_many_keeps_memory_flat(tmp_path):
    """Objects of 6,000 measurements take some 15 MB."""
    count = 6_000
    with Store.open(tmp_path / "store.db") as store:
        cases = [python_case("# the same for all", number) for number in range(count)]
        store.register(cases)
        store.finish(result(cases[0]))
        one = "SELECT {} FROM measurements"
        columns = "outcome, peak_bytes, seconds, environment, counters, message, finished"
        with store._database.transaction() as connection:
            connection.execute(
                text(
                    f"INSERT INTO measurements (case_key, {columns}) SELECT c.key, {columns} FROM cases c, "
                    f"({one.format(columns)}) WHERE c.state = 'open'"
                )
            )
            connection.execute(text("UPDATE cases SET state = 'done'"))
        del cases
        next(store.measurements())
        tracemalloc.start()
        try:
            assert sum(1 for _ in store.measurements()) == count
            assert sum(row[0] for row in store.rows(["parameters.number", "key"])) == count * (count - 1) // 2
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters='\0."'), min_size=1, max_size=8),
        st.one_of(
            st.integers(-(2**53), 2**53),
            st.booleans(),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(max_size=5),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_parameters_come_back(tmp_path_factory, parameters):
    path = tmp_path_factory.mktemp("any") / "store.db"
    case = python_case("")
    case = type(case)(**{**vars(case), "parameters": parameters})
    with Store.open(path) as store:
        store.finish(result(case))
        (back,) = store.measurements()
        assert dict(back.case.parameters) == parameters
        assert list(map(type, back.case.parameters.values())) == list(map(type, parameters.values()))
        name = next(iter(parameters))
        assert store.columns([f"parameters.{name}"])[f"parameters.{name}"] == [parameters[name]]
