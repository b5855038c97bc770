"""The measurement store: cases, who runs them, and what they held. SQLite in a file, or PostgreSQL by its URL.

A case is open, claimed or done. Every change is one transaction whose condition decides, so any number of runners on
any number of machines share one campaign, and one that is killed leaves nothing half done.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from ...database import Database, StoreUnavailable
from .measurement import CaseSpec, Measurement, Outcome
from .processes import clean_up, host_identity, is_alive, process_start
from .query import EVERYTHING, Selection, count_measured, read_measurements, read_rows
from .spool import Spool, spool_folder
from .tables import (
    cases,
    environments,
    measurements,
    members,
    prepare,
    runners,
    sources,
    timelines,
)

__all__ = ["Status", "Store"]

OPEN, CLAIMED, DONE = "open", "claimed", "done"
_CHUNK = 500
_RETRY_AFTER = (0.5, 2.0)


@dataclass(frozen=True)
class Status:
    """How far a campaign is."""

    total: int
    open: int
    claimed: int
    outcomes: Mapping[Outcome, int]

    @property
    def done(self) -> int:
        return sum(self.outcomes.values())


class Store:
    """Made by `Store.open`; usable from several threads."""

    def __init__(self, database: Database, spool: Spool) -> None:
        self._database = database
        self._spool = spool

    @classmethod
    def open(cls, where: str | os.PathLike[str], *, spool: str | os.PathLike[str] | None = None) -> Store:
        """A file for SQLite, or `postgresql://user@host/name`. Made if new; what an earlier run could not write there
        (kept in the folder `spool`) is written now."""
        database = Database(where)
        folder = spool_folder(database.name, sqlite_file=str(database.url.database) if database.is_sqlite else None)
        store = cls(database, Spool(Path(spool) if spool is not None else folder))
        try:
            with database.transaction() as connection:
                prepare(connection, database.name)
            store._spool.empty(store._write_kept)
        except BaseException:
            database.close()
            raise
        return store

    @property
    def name(self) -> str:
        """The database as people know it, without its password."""
        return self._database.name

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Cases and who runs them

    def register(self, specs: Iterable[CaseSpec]) -> int:
        """Note cases of campaigns, in order. Cases known already, also from another campaign, keep their state and
        their result. Returns how many a campaign did not have yet."""
        new = 0
        listed = list(specs)
        for start in range(0, len(listed), _CHUNK):
            chunk = listed[start : start + _CHUNK]
            with self._database.transaction() as connection:
                listed_before = select(members.c.campaign, members.c.key).where(
                    members.c.key.in_([spec.key for spec in chunk])
                )
                known = {(row.campaign, row.key) for row in connection.execute(listed_before)}
                fresh = {(spec.campaign, spec.key): spec for spec in chunk if (spec.campaign, spec.key) not in known}
                if fresh:
                    self._register_fresh(connection, list(fresh.values()))
                    new += len(fresh)
        return new

    def _register_fresh(self, connection: Connection, specs: list[CaseSpec]) -> None:
        prepared = [_case_row(spec) for spec in specs]
        texts = {row["source"]: packed for row, packed in prepared}
        connection.execute(self._database.insert_new(sources), [{"id": name, "packed": p} for name, p in texts.items()])
        connection.execute(self._database.insert_new(cases), [row for row, _ in prepared])
        last = func.coalesce(func.max(members.c.position), 0)
        ends: dict[str, int] = {}
        rows = []
        for spec in specs:
            if spec.campaign not in ends:
                query = select(last).where(members.c.campaign == spec.campaign)
                ends[spec.campaign] = connection.execute(query).scalar_one()
            ends[spec.campaign] += 1
            rows.append(
                {"campaign": spec.campaign, "key": spec.key, "role": spec.role, "position": ends[spec.campaign]}
            )
        connection.execute(self._database.insert_new(members), rows)

    def start_runner(self) -> str:
        """Enter this process as one that claims cases; returns its name."""
        runner = uuid.uuid4().hex
        self.heartbeat(runner)
        return runner

    def heartbeat(self, runner: str) -> None:
        """Say that the runner is alive. Runners on other machines know it only by this."""
        with self._database.transaction() as connection:
            beat = runners.update().where(runners.c.id == runner).values(heartbeat=self._database.now())
            if connection.execute(beat).rowcount == 0:
                pid = os.getpid()
                connection.execute(
                    runners.insert().values(
                        id=runner,
                        host=host_identity(),
                        pid=pid,
                        started=process_start(pid),
                        heartbeat=self._database.now(),
                    )
                )

    def end_runner(self, runner: str) -> None:
        """Give back what the runner still had claimed, and forget it."""
        with self._database.transaction() as connection:
            _reopen(connection, cases.c.runner == runner)
            connection.execute(runners.delete().where(runners.c.id == runner))

    def claim(self, keys: Sequence[str], runner: str, marker: str = "") -> str | None:
        """Take the first open case among `keys` for `runner`; None if none of them is open."""
        with self._database.transaction() as connection:
            for start in range(0, len(keys), _CHUNK):
                chunk = keys[start : start + _CHUNK]
                is_open = select(cases.c.key).where(cases.c.key.in_(chunk), cases.c.state == OPEN)
                free = set(connection.execute(is_open).scalars())
                for key in chunk:
                    if key in free:
                        taking = cases.update().where(cases.c.key == key, cases.c.state == OPEN)
                        values = {"state": CLAIMED, "runner": runner, "marker": marker}
                        if connection.execute(taking.values(**values)).rowcount == 1:
                            return key
        return None

    def release(self, key: str, runner: str) -> None:
        """Give back one claimed case that was not measured."""
        with self._database.transaction() as connection:
            _reopen(connection, (cases.c.key == key) & (cases.c.runner == runner))

    def free_abandoned(self, silent_seconds: float = 120.0) -> int:
        """Open the cases of runners that have died: on this host at once, elsewhere after that long without a sign.
        What they left behind here is removed. Returns how many cases were freed."""
        with self._database.transaction() as connection:
            silent = (self._database.now() - runners.c.heartbeat).label("silent")
            rows = connection.execute(select(*runners.c, silent)).all()
            dead = [
                row.id
                for row in rows
                if (not is_alive(row.pid, row.started) if row.host == host_identity() else row.silent > silent_seconds)
            ]
            if not dead:
                return 0
            abandoned = cases.c.runner.in_(dead) & (cases.c.state == CLAIMED)
            for marker in connection.execute(select(cases.c.marker).where(abandoned)).scalars():
                if marker:
                    clean_up(marker)
            freed = _reopen(connection, abandoned)
            connection.execute(runners.delete().where(runners.c.id.in_(dead)))
            return freed

    def states(self, keys: Sequence[str]) -> dict[str, str]:
        """`open`, `claimed` or `done` by key, in the order given; a key that is not known is absent."""
        states: dict[str, str] = {}
        with self._database.reading() as connection:
            for start in range(0, len(keys), _CHUNK):
                wanted = cases.c.key.in_(keys[start : start + _CHUNK])
                for key, state in connection.execute(select(cases.c.key, cases.c.state).where(wanted)):
                    states[key] = state
        return {key: states[key] for key in keys if key in states}

    def reopen(self, campaign: str, outcomes: Iterable[Outcome]) -> int:
        """Forget the measurements with these outcomes, so that their cases are run again. Returns how many."""
        wanted = [outcome.value for outcome in outcomes]
        keys = (
            select(measurements.c.case_key)
            .join(members, members.c.key == measurements.c.case_key)
            .where(members.c.campaign == campaign, measurements.c.outcome.in_(wanted))
        )
        with self._database.transaction() as connection:
            reopened = list(connection.execute(keys).scalars())
            for start in range(0, len(reopened), _CHUNK):
                chunk = reopened[start : start + _CHUNK]
                connection.execute(timelines.delete().where(timelines.c.case_key.in_(chunk)))
                connection.execute(measurements.delete().where(measurements.c.case_key.in_(chunk)))
                _reopen(connection, cases.c.key.in_(chunk))
        return len(reopened)

    # Results

    def finish(self, measurement: Measurement) -> bool:
        """Write a result, at once and for good. False if the case already had one: the first stays.

        A database that does not take it after some tries is a `StoreUnavailable`; the result is then kept in a local
        file, and written when the store is opened again.
        """
        plain = measurement.as_dict()
        for pause in (*_RETRY_AFTER, None):
            try:
                return self._write(plain, measurement.case)
            except StoreUnavailable as error:
                if pause is None:
                    raise self._keep(plain, error) from error
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _keep(self, plain: Mapping[str, Any], error: StoreUnavailable) -> StoreUnavailable:
        try:
            path = self._spool.add(plain)
        except OSError as trouble:
            return StoreUnavailable(f"{error} The result could not be kept in {self._spool.folder} either: {trouble}.")
        return StoreUnavailable(
            f"{error} The result is kept in {path} and will be written when the campaign is run again."
        )

    def _write_kept(self, plain: Mapping[str, Any]) -> bool:
        """False leaves it in the spool: a case that this database does not know, yet."""
        if not self.states([plain["key"]]):
            return False
        self._write(plain)
        return True

    def _write(self, plain: Mapping[str, Any], case: CaseSpec | None = None) -> bool:
        key = plain["key"]
        environment = json.dumps(plain["environment"], sort_keys=True)
        environment_id = hashlib.sha256(environment.encode()).hexdigest()
        if case is not None and not self.states([key]):
            self.register([case])
        with self._database.transaction() as connection:
            first = cases.update().where(cases.c.key == key, cases.c.state != DONE)
            if connection.execute(first.values(state=DONE, runner=None, marker=None)).rowcount == 0:
                return False
            facts = {"id": environment_id, "facts": plain["environment"]}
            connection.execute(self._database.insert_new(environments), [facts])
            connection.execute(
                measurements.insert().values(
                    case_key=key,
                    outcome=Outcome(plain["outcome"]).value,
                    peak_bytes=plain["peak_bytes"],
                    seconds=plain["seconds"],
                    environment=environment_id,
                    counters=plain["counters"],
                    message=plain["message"].replace("\0", ""),
                    finished=self._database.now(),
                )
            )
            connection.execute(timelines.insert().values(case_key=key, points=plain["timeline"]))
        return True

    # Reading

    def status(self, campaign: str) -> Status:
        by_state = (
            select(cases.c.state, func.count())
            .join(members, members.c.key == cases.c.key)
            .where(members.c.campaign == campaign)
            .group_by(cases.c.state)
        )
        by_outcome = (
            select(measurements.c.outcome, func.count())
            .join(members, members.c.key == measurements.c.case_key)
            .where(members.c.campaign == campaign)
            .group_by(measurements.c.outcome)
        )
        with self._database.reading() as connection:
            states = {row[0]: row[1] for row in connection.execute(by_state)}
            outcomes = {Outcome(row[0]): row[1] for row in connection.execute(by_outcome)}
        return Status(sum(states.values()), states.get(OPEN, 0), states.get(CLAIMED, 0), outcomes)

    def campaigns(self) -> tuple[str, ...]:
        with self._database.reading() as connection:
            return tuple(
                connection.execute(select(members.c.campaign).distinct().order_by(members.c.campaign)).scalars()
            )

    def count(self, where: Selection = EVERYTHING) -> int:
        with self._database.reading() as connection:
            return count_measured(connection, where)

    def measurements(self, where: Selection = EVERYTHING, *, timelines_too: bool = False) -> Iterator[Measurement]:
        """Stream them, campaign by campaign in the order of their cases. Timelines only if asked for."""
        with self._database.reading() as connection:
            yield from read_measurements(connection, where, timelines_too=timelines_too)

    def rows(self, names: Sequence[str], where: Selection = EVERYTHING) -> Iterator[tuple[Any, ...]]:
        """Stream chosen columns: those of a case or its result by name, and `parameters.NAME`, `counters.NAME` or
        `environment.NAME`; None where a case has no such entry."""
        with self._database.reading() as connection:
            yield from read_rows(connection, names, where)

    def columns(self, names: Sequence[str], where: Selection = EVERYTHING) -> dict[str, list[Any]]:
        """The same, as one list per column."""
        lists: list[list[Any]] = [[] for _ in names]
        for row in self.rows(names, where):
            for values, value in zip(lists, row, strict=True):
                values.append(value)
        return dict(zip(names, lists, strict=True))

    def timeline(self, key: str) -> tuple[tuple[float, int], ...]:
        with self._database.reading() as connection:
            points = connection.execute(select(timelines.c.points).where(timelines.c.case_key == key)).scalar()
        return tuple((at, held) for at, held in points or ())


def _reopen(connection: Connection, which: ColumnElement[bool]) -> int:
    still = cases.c.state == CLAIMED
    # A measurement that was taken away makes its case claimable again, too.
    gone = (cases.c.state == DONE) & ~select(measurements.c.case_key).where(
        measurements.c.case_key == cases.c.key
    ).exists()
    change = cases.update().where(which & (still | gone)).values(state=OPEN, runner=None, marker=None)
    return connection.execute(change).rowcount


def _case_row(spec: CaseSpec) -> tuple[dict[str, Any], bytes]:
    source = spec.source.encode()
    row = {
        "key": spec.key,
        "template": spec.template,
        "framework": spec.framework,
        "device": spec.device,
        "repetition": spec.repetition,
        "steps": spec.steps,
        "parameters": dict(spec.parameters),
        "source": hashlib.sha256(source).hexdigest(),
        "state": OPEN,
    }
    return row, zlib.compress(source)
