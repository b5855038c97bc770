"""The tables of the measurement store, with their version and the way from an older version to this one."""

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
)

from ...database import Tables, prepare_tables

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
    """Make the tables of measurements, or bring older ones up to date."""
    prepare_tables(connection, name, Tables(_metadata, _schema, SCHEMA_VERSION, MIGRATIONS))
