"""Traces that were captured before: in this process, or in a database that several machines share.

A Trace is found again by everything that decides it: the job with all of its options, the place, the code of oomcast,
the versions of the libraries, and the content of each data file that the job names. What a Python file would import or
read cannot be known before it runs, so job files are not kept.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadInput, UnreadableFile
from ..provenance import TRACE_ROOMS, library_versions, source_digest
from ..spec import JobKind, Spec, Workload
from ..trace import Trace, trace_from_bytes, trace_to_bytes
from ..zoo import find_public_model
from .data_files import data_files, names_in
from .engines import OF_THIS_PROCESS
from .frameworks import guess_framework

if TYPE_CHECKING:
    from ..database import Database, Tables

__all__ = ["InMemory", "InStore", "key_of", "stored_in"]

_MOST_STORED = 2_000


class InMemory:
    """The last ones of this process."""

    def __init__(self) -> None:
        self.most = 0
        self._traces: dict[str, Trace] = {}

    def get(self, key: str) -> Trace | None:
        return self._traces.get(key)

    def put(self, key: str, trace: Trace) -> None:
        self._traces.pop(key, None)
        self._traces[key] = trace  # the newest are at the end
        while len(self._traces) > self.most:
            del self._traces[next(iter(self._traces))]

    def clear(self) -> None:
        self._traces.clear()


def key_of(spec: Spec) -> str:
    """The same for the same question to the same software."""
    workload = spec.workload.as_dict()
    files = [_digest(path) for path in data_files(workload)]
    told = [workload, spec.place.as_dict(), source_digest(*TRACE_ROOMS), library_versions(), sys.version, files]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def stored_in(where: str | None, spec: Spec) -> InStore | None:
    """The store that a question names. Raises BadInput where its job's Trace cannot be kept."""
    if where is None:
        return None
    job = spec.workload.job
    if job.kind in OF_THIS_PROCESS or (job.kind is JobKind.FILE and job.name.endswith(".py")):
        raise BadInput(
            "--store keeps answers for names and data files only: what Python code would read or import cannot be "
            "known before it runs; leave --store out."
        )
    if guess_framework(spec.workload) != "torch":
        raise BadInput("--store keeps answers for PyTorch jobs only; leave it out.")
    for text in names_in(spec.workload.as_dict()):
        if text and os.path.isdir(text):
            raise BadInput(f"--store keeps no answers that read a folder such as {text}; name the files in it.")
    for name in _hub_names(spec.workload):
        if find_public_model(name) is None:
            raise BadInput(
                f"--store keeps no answers for {name}: its sizes are read from this machine's cache, which may change; "
                "give its config.json."
            )
    return _opened(where)


def _hub_names(workload: Workload) -> list[str]:
    """Of models that are looked up by the name of their page."""
    names = [workload.job.name] if workload.job.kind is JobKind.HF else []
    names += [] if workload.reward_model is None else [workload.reward_model.removeprefix("hf:")]
    return [name for name in names if "/" in name and not os.path.exists(name)]


@functools.cache
def _opened(where: str) -> InStore:
    try:
        from ..database import Database
    except ModuleNotFoundError as error:
        raise BadInput(
            f"--store needs the package {error.name}, which is not installed; install it with: "
            "pip install 'oomcast[store]'"
        ) from None
    return InStore(Database(where))


class InStore:
    """A table of Traces; those that nobody has asked for longest go first."""

    def __init__(self, database: Database) -> None:
        from ..database import prepare_tables

        self._database = database
        self._tables = _tables()
        self._traces = self._tables.metadata.tables["kept_traces"]
        with database.transaction() as connection:
            prepare_tables(connection, database.name, self._tables)

    def __contains__(self, key: str) -> bool:
        from sqlalchemy import select

        with self._database.reading() as connection:
            found = connection.execute(select(self._traces.c.key).where(self._traces.c.key == key)).first()
        return found is not None

    def get(self, key: str) -> Trace | None:
        """None where there is none, or where what is there is no whole Trace."""
        from sqlalchemy import select

        table = self._traces
        with self._database.transaction() as connection:
            data = connection.execute(select(table.c.trace).where(table.c.key == key)).scalar()
            if data is not None:
                connection.execute(table.update().where(table.c.key == key).values(used=self._database.now()))
        try:
            return None if data is None else trace_from_bytes(data, name=self._database.name)
        except UnreadableFile:
            return None

    def put(self, key: str, trace: Trace) -> None:
        from sqlalchemy import func, select

        table = self._traces
        with self._database.transaction() as connection:
            connection.execute(table.delete().where(table.c.key == key))
            row = {"key": key, "used": self._database.now(), "trace": trace_to_bytes(trace)}
            connection.execute(self._database.insert_new(table).values(row))
            count = connection.execute(select(func.count()).select_from(table)).scalar_one()
            if count > _MOST_STORED:
                oldest = select(table.c.key).order_by(table.c.used).limit(count - _MOST_STORED)
                connection.execute(table.delete().where(table.c.key.in_(oldest)))


@functools.cache
def _tables() -> Tables:
    from sqlalchemy import Column, Float, Index, Integer, LargeBinary, MetaData, String, Table

    from ..database import Tables

    metadata = MetaData()
    schema = Table("oomcast_kept", metadata, Column("version", Integer, nullable=False))
    Table(
        "kept_traces",
        metadata,
        Column("key", String(64), primary_key=True),
        Column("used", Float, nullable=False),
        Column("trace", LargeBinary, nullable=False),
        Index("kept_by_use", "used"),
    )
    return Tables(metadata, schema, 1)
