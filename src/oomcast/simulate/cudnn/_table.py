"""Workspaces without cuDNN's libraries: its choices learnt as decision trees, its sizes computed by formula.

One tree for each architecture, dtype, layout and direction says which formula of `_formulas` cuDNN's first plan
follows. `python -m oomcast.simulate.cudnn.distill` makes the file again; its head has how well it agrees with cuDNN.
"""

from __future__ import annotations

import functools
import json
import zlib
from importlib import resources
from typing import Any

from ...devices import Gpu
from ...errors import OomcastError
from ._ask import Answer
from ._formulas import evaluate, features, sizes_of
from ._query import Query
from ._tree import Tree, unpack

__all__ = ["FILE", "SCHEMA", "Table", "architecture_for", "shipped_table", "tree_key"]

FILE = "table.bin"
SCHEMA = 1
ARCHITECTURES = (70, 75, 80, 86, 89, 90, 100, 120)


def architecture_for(gpu: Gpu) -> int:
    """The architecture of the table that stands for a GPU: its own, else the nearest older one, else the oldest.

    cuDNN's choice does not depend on the rest: neither multiprocessors nor memory nor clocks change it.
    """
    number = gpu.compute_capability[0] * 10 + gpu.compute_capability[1]
    return max((known for known in ARCHITECTURES if known <= number), default=ARCHITECTURES[0])


def tree_key(architecture: int, dtype: str, tf32: bool, channels_last: bool, kind: str) -> str:
    if architecture < 80:
        tf32 = True  # there is none to leave out
    precision = dtype if dtype != "float32" or tf32 else "float32 without tf32"
    return f"sm_{architecture} {precision} {'nhwc' if channels_last else 'nchw'} {kind}"


class Table:
    """The distilled answers of one cuDNN version."""

    def __init__(self, content: bytes) -> None:
        """Raises OomcastError if `content` is damaged or of another version."""
        try:
            head, self._trees = zlib.decompress(content).split(b"\n", 1)
            self.head: dict[str, Any] = json.loads(head)
            schema = self.head["schema"]
            self._places: dict[str, tuple[int, int]] = {}
            start = 0
            for key, nodes in self.head["trees"].items():
                self._places[key] = (start, nodes)
                start += 3 * nodes
        except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as problem:
            raise OomcastError(f"the data file oomcast/simulate/cudnn/{FILE} is broken: {problem}.") from problem
        if schema != SCHEMA or start != len(self._trees):
            raise OomcastError(f"the data file oomcast/simulate/cudnn/{FILE} is broken: schema or length is wrong.")
        self._loaded: dict[str, Tree] = {}

    @property
    def name(self) -> str:
        return f"table (cudnn {self.head['cudnn']})"

    def ask(self, gpu: Gpu, query: Query, *, tf32: bool = True) -> Answer | None:
        """What cuDNN would answer, nearly; None for a dtype that is not in the table.

        The plans after the first are not in the table: the last resort, one without workspace, stands for them, and
        the largest plan is taken to convert all operands and to add one copy of the output.
        """
        if query.dtype == "float64":
            return Answer((0,), 0)
        tree = self._best_tree(architecture_for(gpu), query, tf32)
        if tree is None:
            return None
        sizes = sizes_of(query)
        size = evaluate(tree.leaf_of(features(query, sizes)), sizes)
        converted = size if size < sizes.w else max(size, sizes.x + sizes.y + sizes.w + sizes.split)
        return Answer((size, 0) if size else (0,), converted)

    def _best_tree(self, architecture: int, query: Query, tf32: bool) -> Tree | None:
        """The tree for these, else that of the dtype or layout which is most alike."""
        likes = {"bfloat16": ("bfloat16", "float16")}.get(query.dtype, (query.dtype,))
        layouts = (query.channels_last, False) if query.channels_last else (False,)
        keys = (tree_key(architecture, dtype, tf32, layout, query.kind) for layout in layouts for dtype in likes)
        return next((tree for tree in map(self._tree, keys) if tree is not None), None)

    def _tree(self, key: str) -> Tree | None:
        if key not in self._loaded:
            if key not in self._places:
                return None
            start, nodes = self._places[key]
            self._loaded[key] = unpack(self._trees[start : start + 3 * nodes], nodes)
        return self._loaded[key]


@functools.cache
def shipped_table() -> Table:
    """The table that comes with oomcast."""
    try:
        content = resources.files(__package__).joinpath(FILE).read_bytes()
    except OSError as problem:
        raise OomcastError(f"the data file oomcast/simulate/cudnn/{FILE} cannot be read: {problem}.") from problem
    return Table(content)
