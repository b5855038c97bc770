"""Workspaces without cuDNN's libraries: its choices learnt as decision trees, its sizes computed by formula.

A few decision trees (`Tree`) for each architecture, dtype, layout and direction say which formula of `formulas`
cuDNN's first plan follows; the middle one of their sizes is taken. A file holds three bytes for each node: each node
before its left side, then its right side. `python -m lab.cudnn.distill` makes the files again, and with `--show` prints
how well they agree with cuDNN, which their heads state.
"""

from __future__ import annotations

import functools
import itertools
import json
import lzma
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from typing import Any

from ...devices import Gpu
from ...errors import OomcastError
from .ask import Answer
from .formulas import evaluate, features, sizes_of
from .query import Query

__all__ = [
    "FILE",
    "LEAF",
    "SCALE",
    "SCHEMA",
    "Table",
    "Tree",
    "architecture_for",
    "compress",
    "generation_table",
    "pack",
    "shipped_table",
    "tree_key",
    "unpack",
]

LEAF = 255
SCALE = 512
"""Thresholds are kept in steps of 1/512: a seventh of a percent, where the feature is a logarithm."""


class Tree:
    """Answers with a leaf's number."""

    def __init__(self, kinds: bytes, values: Sequence[int]) -> None:
        """`kinds` has each node's feature, or LEAF; `values` its threshold times SCALE, or the leaf's number."""
        self._kinds = kinds
        self._values = values
        self._right = _right_children(kinds)

    def leaf_of(self, row: Sequence[float]) -> int:
        at = 0
        kinds, values, right = self._kinds, self._values, self._right
        while kinds[at] != LEAF:
            at = at + 1 if row[kinds[at]] * SCALE <= values[at] else right[at]
        return values[at]


def _right_children(kinds: bytes) -> array[int]:
    """Where each node's right side begins: after all of its left side."""
    right = array("l", bytes(array("l").itemsize * len(kinds)))
    waiting: list[int] = []
    for at, kind in enumerate(kinds):
        if kind != LEAF:
            waiting.append(at)
        elif waiting:
            right[waiting.pop()] = at + 1
    return right


def pack(trees: Sequence[tuple[bytes, Sequence[int]]]) -> bytes:
    """Bytes of some trees: the kinds of all nodes, then their values, sorted by kind.

    The thresholds of one feature are alike, and so are leaves; low and high bytes apart: both compress better so.
    """
    kinds = b"".join(tree_kinds for tree_kinds, _ in trees)
    values = [value for _, tree_values in trees for value in tree_values]
    numbers = array("h", (values[at] for at in sorted(range(len(kinds)), key=kinds.__getitem__)))
    if sys.byteorder == "big":
        numbers.byteswap()
    raw = numbers.tobytes()
    return kinds + raw[0::2] + raw[1::2]


def unpack(packed: bytes, nodes: Sequence[int]) -> tuple[Tree, ...]:
    """The trees of `packed`, which have that many nodes each; raises ValueError if it holds others."""
    count = sum(nodes)
    if len(packed) != 3 * count:
        raise ValueError(f"{len(packed)} bytes are not {count} nodes")
    kinds = packed[:count]
    raw = bytearray(2 * count)
    raw[0::2], raw[1::2] = packed[count : 2 * count], packed[2 * count :]
    numbers = array("h")
    numbers.frombytes(bytes(raw))
    if sys.byteorder == "big":
        numbers.byteswap()
    of_kind: dict[int, Iterator[int]] = {}
    begin = 0
    for kind, found in sorted(Counter(kinds).items()):
        of_kind[kind] = iter(numbers[begin : begin + found])
        begin += found
    values = array("h", map(next, map(of_kind.__getitem__, kinds)))
    ends = list(itertools.accumulate(nodes))
    return tuple(Tree(kinds[end - size : end], values[end - size : end]) for end, size in zip(ends, nodes, strict=True))


FILE = "table.bin"
"""Of cuDNN 9.20: every architecture, dtype and layout."""
OLDER_FILE = "table-9.10.bin"
"""Of cuDNN 9.10, whose answers are those of 9.8: the parts that measured runs tell apart from the newest."""
SCHEMA = 4
ARCHITECTURES = (70, 75, 80, 86, 89, 90, 100, 120)


_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "pb": 0}]


def compress(trees: bytes) -> bytes:
    return lzma.compress(trees, format=lzma.FORMAT_RAW, filters=_FILTERS)


def decompress(packed: bytes) -> bytes:
    """Raises LZMAError where they are damaged."""
    return lzma.decompress(packed, format=lzma.FORMAT_RAW, filters=_FILTERS)


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
    """The distilled answers of one cuDNN version.

    The file is a head, as JSON, and the trees of each key, each compressed on its own: an estimate needs few of them.
    The trees are packed by LZMA, an eighth smaller than by zlib.
    """

    is_general = True

    def __init__(self, content: bytes, file: str = FILE) -> None:
        """Raises OomcastError if `content` is damaged or of another version."""
        self._file = file
        try:
            reader = zlib.decompressobj()
            self.head: dict[str, Any] = json.loads(reader.decompress(content) + reader.flush())
            self._packed = reader.unused_data
            schema = self.head["schema"]
            self._places: dict[str, tuple[int, int, list[int]]] = {}
            start = 0
            for key, (length, *nodes) in self.head["trees"].items():
                self._places[key] = (start, length, nodes)
                start += length
        except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as problem:
            raise self._broken(problem) from problem
        if schema != SCHEMA or start != len(self._packed):
            raise self._broken("schema or length is wrong")
        self._loaded: dict[str, tuple[Tree, ...]] = {}
        self._answered: dict[tuple[int, bool, Query], Answer | None] = {}

    def _broken(self, problem: object) -> OomcastError:
        return OomcastError(f"the data file oomcast/simulate/cudnn/{self._file} is broken: {problem}.")

    @property
    def name(self) -> str:
        return f"table (cudnn {self.head['cudnn']})"

    def ask(self, gpu: Gpu, query: Query, *, tf32: bool = True) -> Answer | None:
        """What cuDNN would answer, nearly; None for a dtype that is not in the table.

        The plans after the first are not in the table: the last resort, one without workspace, stands for them, and
        the largest plan is taken to convert all operands and to add one copy of the output.
        """
        key = (architecture_for(gpu), tf32, query)
        if key not in self._answered:
            self._answered[key] = self._answer(*key)
        return self._answered[key]

    def _answer(self, architecture: int, tf32: bool, query: Query) -> Answer | None:
        if query.dtype == "float64":
            return Answer((0,), 0)
        trees = self._best_trees(architecture, query, tf32)
        if not trees:
            return None
        sizes = sizes_of(query)
        row = features(query, sizes)
        size = sorted(evaluate(tree.leaf_of(row), sizes) for tree in trees)[len(trees) // 2]
        converted = size if size < sizes.w else max(size, sizes.x + sizes.y + sizes.w + sizes.split)
        return Answer((size, 0) if size else (0,), converted)

    def _best_trees(self, architecture: int, query: Query, tf32: bool) -> tuple[Tree, ...]:
        """The trees for these, else those of the dtype or layout which is most alike; none if there are none."""
        likes = {"bfloat16": ("bfloat16", "float16")}.get(query.dtype, (query.dtype,))
        layouts = (query.channels_last, False) if query.channels_last else (False,)
        keys = (tree_key(architecture, dtype, tf32, layout, query.kind) for layout in layouts for dtype in likes)
        return next((self._trees_of(key) for key in keys if key in self._places), ())

    def _trees_of(self, key: str) -> tuple[Tree, ...]:
        if key not in self._loaded:
            start, length, nodes = self._places[key]
            try:
                self._loaded[key] = unpack(decompress(self._packed[start : start + length]), nodes)
            except (lzma.LZMAError, ValueError) as problem:
                raise self._broken(f"the trees of {key} are not whole ({problem})") from problem
        return self._loaded[key]


class Generation:
    """What an older cuDNN answers otherwise than the newest, as far as it is known."""

    def __init__(self, table: Table, differs: Callable[[Query], bool], is_general: bool) -> None:
        self._table = table
        self._differs = differs
        self.is_general = is_general
        self.name = table.name

    def ask(self, gpu: Gpu, query: Query, *, tf32: bool = True) -> Answer | None:
        return self._table.ask(gpu, query, tf32=tf32) if self._differs(query) else None


def generation_table(cudnn: tuple[int, int]) -> Generation | None:
    """The answers of that generation of cuDNN, where they differ from the newest one's and are at hand.

    cuDNN before 9.8 cannot be asked without a GPU. What 9.20 answers fits the measured runs of 9.1 (A100, fp32) best,
    but for two kinds of gradients, where 9.10 does; see `_is_as_in_9_10`.
    """
    if (9, 8) <= cudnn < (9, 15):
        return Generation(shipped_table(OLDER_FILE), lambda query: not query.channels_last, is_general=True)
    if (9, 0) <= cudnn < (9, 8):
        return Generation(shipped_table(OLDER_FILE), _is_as_in_9_10, is_general=False)
    return None


def _is_as_in_9_10(query: Query) -> bool:
    """Whether cuDNN 9.1 answers as 9.10 does, not as 9.20; channels are those of whole tensors, not of groups.

    Weights' gradients where the channels are no multiple of 8: median and p90 of the error of 96 random CNNs 2.3 and
    14.8 % with 9.20's answers alone, 1.7 and 13.7 % with 9.10's, 1.6 and 7.3 % so; ten named models 0.4, 1.5 and 0.4 %.
    It was chosen among fourteen such conditions.

    Inputs' gradients where both sides have 43 to 64 channels, more than two thirds of a tile of 64: 9.20 takes an
    engine without workspace there. Of twelve random CNNs of such layers, 44 to 712 MiB too low before, ten come within
    22 MiB of the figure; of 272 random CNNs, 128 instead of 121 within 12 MiB, and their p90 is 6.6 instead of 7.5 %.
    With 72 channels 9.20 is right again, and below 43 both mostly agree.
    """
    channels = query.x[1], query.y[1]
    if query.kind == "wgrad":
        return any(number % 8 for number in channels)
    return query.kind == "dgrad" and all(43 <= number <= 64 for number in channels)


@functools.cache
def shipped_table(file: str = FILE) -> Table:
    """A table that comes with oomcast; that of the newest cuDNN has every architecture."""
    try:
        content = resources.files(__package__).joinpath(file).read_bytes()
    except OSError as problem:
        raise OomcastError(f"the data file oomcast/simulate/cudnn/{file} cannot be read: {problem}.") from problem
    return Table(content, file)
