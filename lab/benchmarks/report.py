"""What every bench gives back, and how it is printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table

__all__ = ["Bar", "Outcome", "as_mib", "console", "print_outcome"]

console = Console(width=150, highlight=False)
MIB = 2**20


def as_mib(nbytes: float) -> str:
    return f"{nbytes / MIB:,.1f}"


@dataclass(frozen=True)
class Bar:
    """One promise of the issue, and the figure that was found."""

    what: str
    figure: str
    holds: bool | None
    """None: shown for comparison, nothing is promised."""

    @property
    def verdict(self) -> str:
        return "shown" if self.holds is None else "pass" if self.holds else "MISSED"


@dataclass(frozen=True)
class Outcome:
    """The rows of a bench, its bars, and what must be said beside them."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    bars: Sequence[Bar]
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def holds(self) -> bool:
        return all(bar.holds is not False for bar in self.bars)


def print_outcome(outcome: Outcome) -> None:
    table = Table(title=outcome.title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for number, column in enumerate(outcome.columns):
        table.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    for row in outcome.rows:
        table.add_row(*row)
    console.print(table)
    for note in outcome.notes:
        console.print(f"  note: {note}", markup=False)
    for bar in outcome.bars:
        console.print(f"  {bar.verdict}: {bar.what}: {bar.figure}", markup=False, style="bold")
    console.print()
