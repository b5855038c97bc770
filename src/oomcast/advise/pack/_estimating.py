"""From the entries of a job list to items: jobs are estimated for each kind of card, given estimates are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...errors import BadInput, OomcastError
from ...estimate import Estimate, estimate
from ._cards import Card
from ._demand import Demand
from ._jobs import GIVEN, JobEntry
from ._problem import Item

__all__ = ["given_demand", "items_of"]


def items_of(
    entries: Sequence[JobEntry],
    cards: Iterable[Card],
    *,
    estimator: str | None = None,
    on_estimate: Callable[[str, str], None] = lambda job, kind: None,
) -> tuple[Item, ...]:
    """`estimator` says which one estimates jobs, or whose given estimate counts where a job has several."""
    kinds = tuple(dict.fromkeys(card.kind for card in cards))
    known: dict[tuple[object, ...], Estimate] = {}
    items = []
    for entry in entries:
        if entry.device is not None and entry.device not in kinds:
            raise BadInput(
                f"job {entry.name!r} may run on {entry.device} only, which is not among the GPUs: {', '.join(kinds)}."
            )
        demands = {}
        for kind in kinds if entry.device is None else (entry.device,):
            if entry.job is None:
                demands[kind] = given_demand(entry, estimator)
                continue
            options = {**entry.options, **({"estimator": estimator} if estimator else {})}
            key = (entry.job, kind, tuple(sorted(options.items())))
            if key not in known:
                on_estimate(entry.name, kind)
                known[key] = _estimated(entry, options, kind)
            demands[kind] = Demand.from_estimate(known[key])
        items.append(Item(entry.name, entry.group, demands))
    return tuple(items)


def given_demand(entry: JobEntry, estimator: str | None) -> Demand:
    """Of a job whose estimates stand in the list."""
    if estimator is not None and estimator in entry.given:
        return entry.given[estimator]
    if estimator is None and (GIVEN in entry.given or len(entry.given) == 1):
        return entry.given.get(GIVEN) or next(iter(entry.given.values()))
    named = ", ".join(name for name in entry.given if name != GIVEN) or "none that has a name"
    if estimator is None:
        raise BadInput(f"job {entry.name!r} has several estimates; choose one with --estimator: {named}.")
    raise BadInput(f"job {entry.name!r} has no estimate by {estimator!r}; it has {named}.")


def _estimated(entry: JobEntry, options: dict[str, object], kind: str) -> Estimate:
    try:
        return estimate(entry.job, device=kind, **options)  # type: ignore[arg-type]
    except OomcastError as error:
        error.args = (f"job {entry.name!r}: {error}",)
        raise
