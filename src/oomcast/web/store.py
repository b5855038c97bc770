"""The store of the service: questions in their order, who answers them, and the answers. SQLite or PostgreSQL.

A question is waiting, taken or over (`done`, `refused`, `failed`). Every change is one transaction whose condition
decides, so a server that is killed leaves nothing half done: what it had taken is waiting again once it is silent.
"""

from __future__ import annotations

import json
import os
import uuid
import zlib
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    and_,
    func,
    or_,
    select,
)

from ..database import Database, Tables, prepare_tables
from ..errors import OomcastError
from .questions import KINDS, MOST_BYTES, Question

__all__ = ["DONE", "FAILED", "REFUSED", "TAKEN", "WAITING", "QueueFull", "Status", "Store", "Taken"]

WAITING, TAKEN, DONE, REFUSED, FAILED = "waiting", "taken", "done", "refused", "failed"
_SILENT_SECONDS = 15.0
"""After so long without a sign of life a server counts as gone."""
_MOST_TRIES = 3
"""A question whose worker's server died so often is not tried again: it may be what kills it."""

_MOST_LARGE = 16
"""Waiting questions that bring more along than others may."""

_metadata = MetaData()
_schema = Table("oomcast_service", _metadata, Column("version", Integer, nullable=False))
_servers = Table(
    "service_servers",
    _metadata,
    Column("id", String(32), primary_key=True),
    Column("heartbeat", Float, nullable=False),
)
_questions = Table(
    "service_questions",
    _metadata,
    Column("id", String(32), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("rank", Integer, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("asked", LargeBinary, nullable=False),
    Column("state", String(8), nullable=False),
    Column("server", String(32)),
    Column("tries", Integer, nullable=False),
    Column("media", String(64), nullable=False),
    Column("answer", LargeBinary),
    Column("used", Float, nullable=False),
    Index("service_in_order", "state", "rank", "number"),
    Index("service_by_use", "used"),
)
_TABLES = Tables(_metadata, _schema, 1)
_RANKS = {kind: place for place, kind in enumerate(KINDS)}
_q = _questions.c


class QueueFull(OomcastError):
    """So many questions are waiting that no further one is taken."""


@dataclass(frozen=True)
class Status:
    """How far a question is; `text` is its answer, or the sentence that refuses it."""

    id: str
    kind: str
    state: str
    place: int | None = None
    """Among those that wait: 1 is the next."""
    media: str = ""
    text: str = ""

    @property
    def is_over(self) -> bool:
        return self.state in (DONE, REFUSED, FAILED)


@dataclass(frozen=True)
class Taken:
    id: str
    question: Question


class Store:
    """Usable from several threads."""

    def __init__(self, where: str | os.PathLike[str], *, most_waiting: int = 1000, most_kept: int = 10_000) -> None:
        self._database = Database(where)
        self._most_waiting, self._most_kept = most_waiting, most_kept
        self.server = uuid.uuid4().hex
        try:
            with self._database.transaction() as connection:
                prepare_tables(connection, self._database.name, _TABLES)
            self.heartbeat()
        except BaseException:
            self._database.close()
            raise

    @property
    def name(self) -> str:
        return self._database.name

    def close(self) -> None:
        """What this server had taken waits again."""
        try:
            with self._database.transaction() as connection:
                connection.execute(
                    _questions.update()
                    .where(_q.server == self.server, _q.state == TAKEN)
                    .values(state=WAITING, server=None, tries=_q.tries - 1)
                )
                connection.execute(_servers.delete().where(_servers.c.id == self.server))
        finally:
            self._database.close()

    def heartbeat(self) -> None:
        """Say that this server lives, and free what others left behind."""
        now = self._database.now()
        with self._database.transaction() as connection:
            beat = _servers.update().where(_servers.c.id == self.server).values(heartbeat=now)
            if connection.execute(beat).rowcount == 0:
                connection.execute(_servers.insert().values(id=self.server, heartbeat=now))
            connection.execute(_servers.delete().where(_servers.c.heartbeat < now - _SILENT_SECONDS))
            left = and_(_q.state == TAKEN, _q.server.not_in(select(_servers.c.id)))
            lost = {"state": FAILED, "server": None, "answer": zlib.compress(_GAVE_UP.encode())}
            connection.execute(_questions.update().where(left, _q.tries >= _MOST_TRIES).values(**lost))
            connection.execute(_questions.update().where(left).values(state=WAITING, server=None))

    def ask(self, id: str, question: Question) -> Status:
        """Note a question, unless it is known; its status. One that failed waits again. Raises QueueFull."""
        status = self.status(id)
        if status is not None and status.state != FAILED:
            return status
        asked = zlib.compress(json.dumps(question.as_dict()).encode())
        with self._database.transaction() as connection:
            waiting = connection.execute(select(func.count()).where(_q.state == WAITING)).scalar_one()
            if waiting >= self._most_waiting:
                raise QueueFull(f"{waiting} questions are waiting already; ask again later.")
            if len(asked) > MOST_BYTES:
                large = select(func.count()).where(_q.state == WAITING, func.length(_q.asked) > MOST_BYTES)
                if connection.execute(large).scalar_one() >= _MOST_LARGE:
                    raise QueueFull(f"{_MOST_LARGE} large questions are waiting already; ask again later.")
            number = connection.execute(select(func.coalesce(func.max(_q.number), 0))).scalar_one() + 1
            row = {
                "id": id,
                "kind": question.kind,
                "rank": _RANKS[question.kind],
                "number": number,
                "asked": asked,
                "state": WAITING,
                "tries": 0,
                "media": "",
                "used": self._database.now(),
            }
            connection.execute(self._database.insert_new(_questions).values(row))
            again = {"state": WAITING, "number": number, "tries": 0, "answer": None, "asked": asked}
            connection.execute(_questions.update().where(_q.id == id, _q.state == FAILED).values(**again))
        found = self.status(id)
        assert found is not None
        return found

    def status(self, id: str) -> Status | None:
        """None for a question that was never asked, or so long ago that it was forgotten."""
        with self._database.reading() as connection:
            row = connection.execute(select(_questions).where(_q.id == id)).first()
            if row is None:
                return None
            if row.state == WAITING:
                before = or_(_q.rank < row.rank, and_(_q.rank == row.rank, _q.number < row.number))
                count = select(func.count()).where(_q.state == WAITING, before)
                return Status(id, row.kind, WAITING, connection.execute(count).scalar_one() + 1)
        return _status(row)

    def used(self, id: str) -> None:
        """Note that an answer was read: those that nobody reads go first."""
        with self._database.transaction() as connection:
            connection.execute(_questions.update().where(_q.id == id).values(used=self._database.now()))

    def take(self) -> Taken | None:
        """The next question, now this server's; None where none is waiting."""
        with self._database.transaction() as connection:
            following = select(_q.id, _q.asked).where(_q.state == WAITING).order_by(_q.rank, _q.number).limit(5)
            for row in connection.execute(following).all():
                taking = _questions.update().where(_q.id == row.id, _q.state == WAITING)
                values = {"state": TAKEN, "server": self.server, "tries": _q.tries + 1}
                if connection.execute(taking.values(**values)).rowcount == 1:
                    return Taken(row.id, Question.from_dict(json.loads(zlib.decompress(row.asked))))
        return None

    def finish(self, id: str, state: str, media: str, text: str) -> None:
        """Write an answer, or why there is none; at once and for good."""
        packed = zlib.compress(text.encode("utf-8", "backslashreplace"))
        values = {"state": state, "server": None, "media": media, "answer": packed, "used": self._database.now()}
        values["asked"] = b""  # it may be large, and whoever asks again brings it along
        with self._database.transaction() as connection:
            mine = and_(_q.id == id, _q.server == self.server)
            connection.execute(_questions.update().where(mine).values(**values))
            self._forget_some(connection)

    def _forget_some(self, connection: Any) -> None:
        is_over = _q.state.in_((DONE, REFUSED, FAILED))
        count = connection.execute(select(func.count()).where(is_over)).scalar_one()
        if count > self._most_kept:
            oldest = select(_q.id).where(is_over).order_by(_q.used).limit(count - self._most_kept)
            connection.execute(_questions.delete().where(_q.id.in_(oldest)))

    def counts(self) -> dict[str, int]:
        """How many questions are in each state."""
        states: ColumnElement[str] = _q.state
        with self._database.reading() as connection:
            found = dict(connection.execute(select(states, func.count()).group_by(states)).tuples().all())
        return {state: found.get(state, 0) for state in (WAITING, TAKEN, DONE, REFUSED, FAILED)}


_GAVE_UP = "the server ended three times while it answered this question; it is not tried again."


def _status(row: Row[Any]) -> Status:
    text = "" if row.answer is None else zlib.decompress(row.answer).decode()
    return Status(row.id, row.kind, row.state, None, row.media, text)
