"""Reading measurements: chosen ones, as objects or as columns, streamed so that memory stays flat."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, CursorResult, RowMapping, Select, func, select

from ...errors import UnknownName
from .environment import Environment
from .measurement import CaseSpec, Measurement, Outcome, Value
from .tables import cases, environments, measurements, members, sources, timelines

__all__ = ["EVERYTHING", "Selection", "count_measured", "read_measurements", "read_rows"]

_ROWS_AT_ONCE = 500


@dataclass(frozen=True)
class Selection:
    """Which measurements: every field that is given must match; `parameters` one by one.

    A case that belongs to several campaigns appears once in each.
    """

    campaign: str | None = None
    role: str | None = None
    template: str | None = None
    framework: str | None = None
    device: str | None = None
    outcome: Outcome | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)


EVERYTHING = Selection()


def count_measured(connection: Connection, where: Selection) -> int:
    return int(connection.execute(_measured(select(func.count()), where)).scalar_one())


def read_measurements(connection: Connection, where: Selection, *, timelines_too: bool) -> Iterator[Measurement]:
    columns = [
        *cases.c,
        members.c.campaign,
        members.c.role,
        sources.c.packed,
        *(measurements.c[name] for name in ("outcome", "peak_bytes", "seconds", "counters", "message", "environment")),
    ]
    query = _measured(select(*columns, *([timelines.c.points] if timelines_too else [])), where)
    query = query.join(sources, sources.c.id == cases.c.source)
    if timelines_too:
        query = query.outerjoin(timelines, timelines.c.case_key == cases.c.key)
    known = {name: Environment.from_dict(facts) for name, facts in _environments(connection).items()}
    with _stream(connection, query) as rows:
        for row in rows.mappings():
            yield Measurement(
                case=_case(row),
                outcome=Outcome(row["outcome"]),
                peak_bytes=row["peak_bytes"],
                seconds=row["seconds"],
                environment=known[row["environment"]],
                timeline=tuple((at, held) for at, held in (row["points"] or ())) if timelines_too else (),
                counters=row["counters"],
                message=row["message"],
            )


def read_rows(connection: Connection, names: Sequence[str], where: Selection) -> Iterator[tuple[Any, ...]]:
    plans = [_column(name) for name in names]
    chosen: dict[str, ColumnElement[Any]] = {column.name: column for column, _ in plans}
    query = _measured(select(*chosen.values()), where)
    environment = list(chosen).index("environment") if "environment" in chosen else None
    facts = _environments(connection) if environment is not None else {}
    order = {name: place for place, name in enumerate(chosen)}
    places = [(order[column.name], inner) for column, inner in plans]
    with _stream(connection, query) as rows:
        for row in rows:
            yield tuple(
                row[place] if inner is None else (facts[row[place]] if place == environment else row[place]).get(inner)
                for place, inner in places
            )


def _environments(connection: Connection) -> dict[str, Mapping[str, Any]]:
    """All of them, read once: few machines make many measurements."""
    return {row.id: row.facts for row in connection.execute(select(environments))}


def _measured(query: Select[Any], where: Selection) -> Select[Any]:
    joined = members.join(cases, cases.c.key == members.c.key)
    query = query.select_from(joined.join(measurements, measurements.c.case_key == cases.c.key))
    for table, names in ((members, ("campaign", "role")), (cases, ("template", "framework", "device"))):
        for name in names:
            value = getattr(where, name)
            if value is not None:
                query = query.where(table.c[name] == value)
    if where.outcome is not None:
        query = query.where(measurements.c.outcome == where.outcome.value)
    for name, value in where.parameters.items():
        query = query.where(_parameter_is(name, value))
    return query


def _stream(connection: Connection, query: Select[Any]) -> CursorResult[Any]:
    """In the order of the cases; to be closed, since a reader may stop early."""
    in_order = query.order_by(members.c.campaign, members.c.position)
    return connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(in_order)


def _parameter_is(name: str, value: Value) -> ColumnElement[bool]:
    entry = cases.c.parameters[name]
    same: ColumnElement[bool]
    if isinstance(value, bool):
        same = entry.as_boolean() == value
    elif isinstance(value, str):
        same = entry.as_string() == value
    else:
        same = entry.as_float() == float(value)
    return same


def _case(row: RowMapping) -> CaseSpec:
    return CaseSpec(
        key=row["key"],
        campaign=row["campaign"],
        role=row["role"],
        template=row["template"],
        parameters=row["parameters"],
        framework=row["framework"],
        device=row["device"],
        repetition=row["repetition"],
        steps=row["steps"],
        source=zlib.decompress(row["packed"]).decode(),
    )


_DIRECT: Mapping[str, ColumnElement[Any]] = {
    **{name: members.c[name] for name in ("key", "campaign", "role")},
    **{name: cases.c[name] for name in ("template", "framework", "device", "repetition", "steps")},
    **{name: measurements.c[name] for name in ("outcome", "peak_bytes", "seconds", "message", "finished")},
}
_NESTED: Mapping[str, ColumnElement[Any]] = {
    "parameters": cases.c.parameters,
    "counters": measurements.c.counters,
    "environment": measurements.c.environment,
}


def _column(name: str) -> tuple[ColumnElement[Any], str | None]:
    outer, dot, inner = name.partition(".")
    if dot and outer in _NESTED:
        return _NESTED[outer], inner
    if name not in _DIRECT:
        known = [*_DIRECT, *(f"{outer}.NAME" for outer in _NESTED)]
        raise UnknownName("column", name, known, hint=f"There are: {', '.join(known)}.")
    return _DIRECT[name], None
