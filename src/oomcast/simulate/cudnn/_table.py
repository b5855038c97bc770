from __future__ import annotations
from ...devices import Gpu
from ._ask import Answer
from ._query import Query


class Table:
    name = "table"

    def ask(self, gpu: Gpu, query: Query, *, tf32: bool = True) -> Answer | None:
        return None


def shipped_table() -> Table:
    return Table()
