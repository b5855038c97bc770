"""A database of ours: SQLite in a file, or PostgreSQL by its URL.

The connection, tables with their version and the way from an older version to this one, and errors as one sentence.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Insert,
    MetaData,
    Table,
    create_engine,
    event,
    func,
    inspect,
    literal_column,
    make_url,
    select,
)
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError

from .errors import BadInput, OomcastError, UnreadableFile

__all__ = ["Database", "StoreUnavailable", "Tables", "prepare_tables"]


class Tables(NamedTuple):
    """Tables that belong together, and their version."""

    metadata: MetaData
    schema: Table
    """One of them, with one row and one column: the version."""
    version: int
    migrations: Mapping[int, Callable[[Connection], None]] = {}
    """By the version they start from; each brings the tables to the next."""


def prepare_tables(connection: Connection, name: str, tables: Tables) -> None:
    """Make the tables where there are none, or bring older ones up to date; refuse what this version cannot read."""
    if connection.dialect.name != "sqlite":  # two that start at once would both make them
        connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    present = set(inspect(connection).get_table_names())
    if tables.schema.name not in present:
        if present & set(tables.metadata.tables):
            raise UnreadableFile(
                f"{name} holds tables of other programs under the names that oomcast uses; give another database."
            )
        tables.metadata.create_all(connection)
        connection.execute(tables.schema.insert().values(version=tables.version))
        return
    version = connection.execute(select(tables.schema.c.version)).scalar()
    if version is None:
        raise UnreadableFile(f"{name} does not say which version of oomcast's tables it has; it is damaged.")
    if version > tables.version:
        raise BadInput(
            f"{name} was written by a newer oomcast (tables of version {version}, this one knows {tables.version}); "
            "update oomcast, or give another database."
        )
    while version < tables.version:
        step = tables.migrations.get(version)
        if step is None:
            raise BadInput(
                f"{name} was written by an oomcast too old to read (tables of version {version}); "
                "export it with that version, or give another database."
            )
        step(connection)
        version += 1
        connection.execute(tables.schema.update().values(version=version))


_ADVISORY_LOCK = 0x6F6F6D63  # "oomc": PostgreSQL's lock while tables are made
_BUSY_SECONDS = 60.0


class StoreUnavailable(OomcastError):
    """The database does not answer. The text says why."""


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

    def now(self) -> ColumnElement[float]:
        """The database's own clock, in seconds: machines that share it need not agree on the time."""
        if self.is_sqlite:
            return literal_column("((julianday('now') - 2440587.5) * 86400.0)")
        return literal_column("CAST(extract(epoch from clock_timestamp()) AS double precision)")

    def insert_new(self, table: Table) -> Insert:
        """An insert that leaves rows alone that are there already."""
        if self.is_sqlite:
            return sqlite_insert(table).on_conflict_do_nothing()
        return postgresql_insert(table).on_conflict_do_nothing()

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
    raise BadInput(f"cannot keep anything in {backend!r}; give a file for SQLite, or postgresql://user@host/name.")


def _sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise BadInput("a SQLite database is kept in a file; give its path.")
    folder = Path(url.database).parent
    if not folder.is_dir():
        raise BadInput(f"cannot keep a database in {url.database}: there is no folder {folder}.")
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
