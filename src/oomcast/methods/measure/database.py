"""The database behind the measurement store: SQLite in a file, or PostgreSQL by its URL.

Its tables with their version, the way from an older version to this one, the connection, and errors as one sentence.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    URL,
    BigInteger,
    Column,
    Connection,
    Engine,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError

from ...errors import BadInput, OomcastError, UnreadableFile

__all__ = [
    "SCHEMA_VERSION",
    "Database",
    "StoreUnavailable",
    "cases",
    "environments",
    "measurements",
    "members",
    "prepare",
    "runners",
    "sources",
    "timelines",
]

SCHEMA_VERSION = 1

_metadata = MetaData()

_schema = Table("oomcast_schema", _metadata, Column("version", Integer, nullable=False))

sources = Table(
    "sources",
    _metadata,
    Column("id", String(64), primary_key=True),
    Column("packed", LargeBinary, nullable=False),
)
"""Rendered files by their hash, zlib-packed: repetitions share one."""

runners = Table(
    "runners",
    _metadata,
    Column("id", String(64), primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started", Text, nullable=False),
    Column("heartbeat", Float, nullable=False),
)

cases = Table(
    "cases",
    _metadata,
    Column("key", String(128), primary_key=True),
    Column("template", Text, nullable=False),
    Column("framework", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("repetition", Integer, nullable=False),
    Column("steps", Integer, nullable=False),
    Column("parameters", JSON, nullable=False),
    Column("source", String(64), ForeignKey("sources.id"), nullable=False),
    Column("state", String(8), nullable=False),
    Column("runner", String(64), index=True),
    Column("marker", String(64)),
)
"""Case and claim in one row, so that one conditional UPDATE decides who runs it: open, claimed or done."""

members = Table(
    "members",
    _metadata,
    Column("campaign", Text, primary_key=True),
    Column("key", String(128), ForeignKey("cases.key"), primary_key=True),
    Column("role", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Index("members_in_order", "campaign", "position"),
)
"""Which campaigns a case belongs to, and why: one run serves all of them."""

environments = Table(
    "environments",
    _metadata,
    Column("id", String(64), primary_key=True),
    Column("facts", JSON, nullable=False),
)

measurements = Table(
    "measurements",
    _metadata,
    Column("case_key", String(128), ForeignKey("cases.key"), primary_key=True),
    Column("outcome", String(8), nullable=False),
    Column("peak_bytes", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("environment", String(64), ForeignKey("environments.id"), nullable=False),
    Column("counters", JSON, nullable=False),
    Column("message", Text, nullable=False),
    Column("finished", Float, nullable=False),
    Index("measurements_by_outcome", "outcome"),
)

timelines = Table(
    "timelines",
    _metadata,
    Column("case_key", String(128), ForeignKey("measurements.case_key"), primary_key=True),
    Column("points", JSON, nullable=False),
)

MIGRATIONS: Mapping[int, Callable[[Connection], None]] = {}
"""By the version they start from; each brings the tables to the next."""


def prepare(connection: Connection, name: str) -> None:
    """Make the tables in an empty database, or bring older ones up to date; refuse what this version cannot read."""
    present = set(inspect(connection).get_table_names())
    if _schema.name not in present:
        if present & set(_metadata.tables):
            raise UnreadableFile(
                f"{name} holds tables of other programs under the names that oomcast uses; give another database."
            )
        _metadata.create_all(connection)
        connection.execute(_schema.insert().values(version=SCHEMA_VERSION))
        return
    version = connection.execute(select(_schema.c.version)).scalar()
    if version is None:
        raise UnreadableFile(f"{name} does not say which version of oomcast's tables it has; it is damaged.")
    if version > SCHEMA_VERSION:
        raise BadInput(
            f"{name} was written by a newer oomcast (tables of version {version}, this one knows {SCHEMA_VERSION}); "
            "update oomcast, or give another database."
        )
    while version < SCHEMA_VERSION:
        step = MIGRATIONS.get(version)
        if step is None:
            raise BadInput(
                f"{name} was written by an oomcast too old to read (tables of version {version}); "
                "export it with that version, or give another database."
            )
        step(connection)
        version += 1
        connection.execute(_schema.update().values(version=version))


_BUSY_SECONDS = 60.0


class StoreUnavailable(OomcastError):
    """The database does not answer. What was measured meanwhile is kept; the text says where."""


class Database:
    """One database, with transactions that hold their write lock from the start."""

    def __init__(self, where: str | os.PathLike[str]) -> None:
        self.url = _url(where)
        self.name = self.url.set(drivername="postgresql").render_as_string(hide_password=True)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            self.name = str(self.url.database)
            self._engine = _sqlite(self.url)
        else:
            self._engine = _postgresql(self.url)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Read and write; committed at the end, undone if anything is raised."""
        with self._errors(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Read only, beside a writer, one state of the database throughout; rows may be streamed."""
        snapshot = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with self._errors(), self._engine.connect() as connection:
            yield connection.execution_options(stream_results=True, **snapshot)

    def close(self) -> None:
        self._engine.dispose()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OperationalError, InterfaceError) as error:
            raise self._unavailable(error) from error
        except DatabaseError as error:
            if self.is_sqlite and ("not a database" in str(error.orig) or "malformed" in str(error.orig)):
                raise UnreadableFile(f"{self.name} is not a SQLite database, or damaged: {error.orig}.") from error
            if error.connection_invalidated:
                raise self._unavailable(error) from error
            raise StoreUnavailable(f"the database {self.name} refused: {_reason(error)}.") from error

    def _unavailable(self, error: DBAPIError) -> StoreUnavailable:
        return StoreUnavailable(f"the database {self.name} cannot be used: {_reason(error)}.")


def _reason(error: DBAPIError) -> str:
    # The first line says it; drivers add hints, statements and links beneath.
    text = str(error.orig).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error.orig).__name__


def _url(where: str | os.PathLike[str]) -> URL:
    text = os.fspath(where)
    if "://" not in text:
        return URL.create("sqlite", database=str(Path(text).expanduser()))
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise BadInput("cannot read the database's URL; write it like postgresql://user@host/name.") from error
    backend = url.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite":
        return url
    raise BadInput(f"cannot store measurements in {backend!r}; give a file for SQLite, or postgresql://user@host/name.")


def _sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise BadInput("measurements are stored in a file; give its path.")
    folder = Path(url.database).parent
    if not folder.is_dir():
        raise BadInput(f"cannot store measurements in {url.database}: there is no folder {folder}.")
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def _settings(connection: Any, _: Any) -> None:
        # The driver's own transactions start late; ours start by the event below.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get("stream_results", False)
        # A transaction that reads first and writes later could find that another has written in between.
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _postgresql(url: URL) -> Engine:
    try:
        return create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 10})
    except (ImportError, NoSuchModuleError) as error:
        raise BadInput(
            "PostgreSQL needs the package psycopg; install it with: pip install 'oomcast[postgres]'"
        ) from error
