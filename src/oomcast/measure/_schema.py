"""The tables of the measurement store, their version, and the way from an older version to this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
)

from ..errors import BadInput, UnreadableFile

__all__ = [
    "SCHEMA_VERSION",
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
