"""Connecting to SQLite or PostgreSQL, and turning what goes wrong there into one sentence."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError

from ..errors import BadInput, OomcastError, UnreadableFile

__all__ = ["Database", "StoreUnavailable"]

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
