"""Makes the table that answers where cuDNN is not installed.

    python -m oomcast.simulate.cudnn.distill --out FILE [--effort 3] [--answers FOLDER] [--only sm_80]

Needs cuDNN (nvidia-cudnn-cu12) and scikit-learn, no GPU; takes about half an hour on one core and gives the same file
every time. cuDNN is asked about the layers of public networks (`layers.json.gz`) at several batch sizes and about
drawn ones; each answer is written as a formula of the shape; a decision tree learns which formula goes with which
shape. `--answers` keeps what cuDNN said, so that a second run need not ask again. The networks listed as `held_out` are
not learnt from: the share of their convolutions that the table gives within 5 % is written into the table's head.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import math
import random
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...devices import Gpu, find_gpu
from ._formulas import features, fitting, sizes_of
from ._library import Library, LibraryError
from ._query import Query, takes_cudnn
from ._shapes import draw
from ._table import SCHEMA, Table, tree_key
from ._tree import LEAF, SCALE, pack

__all__ = ["main"]

LAYERS = Path(__file__).with_name("layers.json.gz")
KINDS = ("fprop", "dgrad", "wgrad")
BATCHES = (8, 16, 32, 64, 128)
OTHER_BATCHES = (1, 2, 4, 6, 12, 20, 24, 40, 48, 96, 192, 256)
EXAMPLES = {
    80: "a100-40gb", 90: "h100-80gb", 86: "rtx-3090", 100: "b200", 89: "rtx-4090", 120: "rtx-5090", 75: "rtx-2080-ti",
    70: "v100-16gb",
}  # fmt: skip
TOLERANCE = 0.03
"""How near a formula must come to an answer to be called its formula: within the 5 % that are promised."""


class Part(NamedTuple):
    """What is learnt about one dtype and layout of one architecture."""

    architecture: int
    dtype: str
    tf32: bool
    channels_last: bool
    batches: int
    """How many of the usual batch sizes are asked for each layer."""
    drawn: int

    @property
    def name(self) -> str:
        return tree_key(self.architecture, self.dtype, self.tf32, self.channels_last, "all").replace(" ", "-")


def parts(effort: int) -> Iterator[Part]:
    """fp32 in the plain layout first: it is torch's default and the hardest. Below effort 2, fp16 answers for bf16."""

    def part(architecture: int, dtype: str, tf32: bool, channels_last: bool, batches: int, drawn: int) -> Part:
        return Part(architecture, dtype, tf32, channels_last, min(batches * effort, len(BATCHES)), drawn * effort)

    modern = [architecture for architecture in EXAMPLES if architecture >= 80]
    for architecture in modern:
        yield part(architecture, "float32", True, False, 5, 15000)
    for architecture in EXAMPLES:
        if architecture < 80:
            yield part(architecture, "float32", True, False, 1, 1000)
            yield part(architecture, "float32", True, True, 1, 500)
        yield part(architecture, "float16", True, False, 2, 2000)
    for architecture in modern:
        yield part(architecture, "float32", False, False, 1, 100)
        yield part(architecture, "float32", True, True, 1, 500)
    for architecture in EXAMPLES:
        yield part(architecture, "float16", True, True, 1, 500)
    for architecture in modern:
        if effort > 1:
            yield part(architecture, "bfloat16", True, False, 2, 2000)
            yield part(architecture, "bfloat16", True, True, 1, 500)
            yield part(architecture, "float32", False, True, 1, 100)


def queries(part: Part, layers: Sequence[Sequence[int]], gpu: Gpu, seed: str, drawn: int, batches: int) -> list[Query]:
    """The same for the same arguments, in all three directions."""
    rng = random.Random(seed)
    found: list[Query] = []
    for layer in layers:
        chosen = rng.sample(BATCHES, batches)
        if drawn and rng.random() < 0.3:
            chosen.append(rng.choice(OTHER_BATCHES))
        for batch in chosen:
            found += (_of_layer(layer, batch, kind, part) for kind in KINDS)
    for _ in range(drawn):
        state = rng.getstate()
        for kind in KINDS:
            rng.setstate(state)
            found.append(draw(rng, kind, part.dtype, part.channels_last))
    return [q for q in found if takes_cudnn(q, gpu.compute_capability, (9, 20)) and _is_usual(q)]


def _of_layer(layer: Sequence[int], batch: int, kind: str, part: Part) -> Query:
    channels, height, width, outputs, rows, columns, sh, sw, ph, pw, dh, dw, groups = layer
    made = (
        (height + 2 * ph - dh * (rows - 1) - 1) // sh + 1,
        (width + 2 * pw - dw * (columns - 1) - 1) // sw + 1,
    )
    x, w, y = (batch, channels, height, width), (outputs, channels // groups, rows, columns), (batch, outputs, *made)
    return Query(kind, x, w, y, part.channels_last, part.dtype, (sh, sw), (ph, pw), (dh, dw))


def _is_usual(query: Query) -> bool:
    """Not beyond 32-bit indices; and a network's first layer needs no gradient of its input."""
    if max(math.prod(query.x), math.prod(query.y)) >= 2**31:
        return False
    return query.kind != "dgrad" or query.x[1] > 3


def answers(part: Part, asked: Sequence[Query], gpu: Gpu, library: Library, kept: Path | None) -> list[int]:
    """cuDNN's first plan for each; -1 where it has none."""
    if kept is not None and kept.exists():
        known: list[int] = json.loads(kept.read_text())
        if len(known) == len(asked):
            return known
    device = json.dumps(gpu.cudnn_properties())
    found = []
    for query in asked:
        try:
            found.append(library.first(device, part.tf32, query))
        except LibraryError:
            found.append(-1)
    if kept is not None:
        kept.write_text(json.dumps(found))
    return found


def learn(asked: Sequence[Query], said: Sequence[int]) -> tuple[bytes, list[int]]:
    """A tree from shapes to formulas, as `Tree` takes it."""
    rows, fits = [], []
    for query, size in zip(asked, said, strict=True):
        sizes = sizes_of(query)
        fit = fitting(size, sizes, TOLERANCE) if size >= 0 else frozenset[int]()
        if fit:
            rows.append(features(query, sizes))
            fits.append(fit)
    order = _common_first(fits)
    names = [min(fit, key=order.__getitem__) for fit in fits]
    learner: Any = importlib.import_module("sklearn.tree").DecisionTreeClassifier
    fitted = learner(random_state=0, criterion="entropy").fit(rows, names)
    return _flat(fitted)


def _common_first(fits: Sequence[frozenset[int]]) -> dict[int, int]:
    """Formulas by how many answers they explain that none before them does: few names for many answers."""
    left = Counter(fits)
    order: dict[int, int] = {}
    while left:
        counts: Counter[int] = Counter()
        for fit, n in left.items():
            for label in fit:
                counts[label] += n
        best = min(counts, key=lambda label: (-counts[label], label))
        order[best] = len(order)
        left = Counter({fit: n for fit, n in left.items() if best not in fit})
    for fit in fits:
        for label in fit:
            order.setdefault(label, len(order) + label)
    return order


def _flat(fitted: Any) -> tuple[bytes, list[int]]:
    tree, classes = fitted.tree_, fitted.classes_
    kinds, values = bytearray(), []

    def label(node: int) -> int:
        return int(classes[int(tree.value[node][0].argmax())])

    def only(node: int) -> int | None:
        """The one answer of all leaves below, if there is only one."""
        if tree.children_left[node] < 0:
            return label(node)
        left = only(tree.children_left[node])
        return left if left is not None and left == only(tree.children_right[node]) else None

    waiting = [0]
    while waiting:
        node = waiting.pop()
        same = only(node)
        if same is not None:
            kinds.append(LEAF)
            values.append(same)
        else:
            kinds.append(int(tree.feature[node]))
            values.append(math.floor(tree.threshold[node] * SCALE))
            waiting += (int(tree.children_right[node]), int(tree.children_left[node]))
    return bytes(kinds), values


def agreement(table: Table, part: Part, asked: Sequence[Query], said: Sequence[int], gpu: Gpu) -> dict[str, float]:
    """The share of answers within 5 %, by direction, and within 5 % or 1 MiB."""
    right: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for query, size in zip(asked, said, strict=True):
        if size < 0:
            continue
        answer = table.ask(gpu, query, tf32=part.tf32)
        off = abs((answer.plans[0] if answer else 0) - size)
        for key in (query.kind, "all"):
            count[key] += 1
            right[key] += off <= 0.05 * size
        right["all or 1 MiB"] += off <= max(0.05 * size, 2**20)
        count["all or 1 MiB"] += 1
    return {key: round(right[key] / count[key], 4) for key in sorted(count)}


def table_bytes(version: int, trees: dict[str, tuple[bytes, list[int]]], head: dict[str, Any]) -> bytes:
    described = {
        "schema": SCHEMA,
        "cudnn": f"{version // 10000}.{version // 100 % 100}",
        **head,
        "trees": {key: len(kinds) for key, (kinds, _) in trees.items()},
    }
    content = json.dumps(described).encode() + b"\n" + b"".join(pack(*tree) for tree in trees.values())
    return zlib.compress(content, 9)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="oomcast.simulate.cudnn.distill", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    parser.add_argument("--answers", type=Path, help="a folder where cuDNN's answers are kept")
    parser.add_argument("--effort", type=int, default=1, help="how many times the usual number of questions (1)")
    parser.add_argument("--only", help="only this architecture, for a trial (sm_80)")
    options = parser.parse_args(arguments)
    if options.answers is not None:
        options.answers.mkdir(parents=True, exist_ok=True)
    layers = json.loads(gzip.decompress(LAYERS.read_bytes()))
    library = Library()
    trees: dict[str, tuple[bytes, list[int]]] = {}
    agreed: dict[str, dict[str, float]] = {}
    count = 0
    for part in parts(options.effort):
        if options.only not in (None, f"sm_{part.architecture}"):
            continue
        begun = time.monotonic()
        gpu = find_gpu(EXAMPLES[part.architecture])
        sets = []
        for use, drawn, batches in (("learnt", part.drawn, part.batches), ("held_out", 0, 1)):
            asked = queries(part, layers[use]["layers"], gpu, f"{use} 1", drawn, batches)
            kept = options.answers / f"{part.name}-{use}.json" if options.answers else None
            sets.append((asked, answers(part, asked, gpu, library, kept)))
        (asked, said), (held, truth) = sets
        count += len(asked)
        own = {}
        for kind in KINDS:
            rows = [(query, size) for query, size in zip(asked, said, strict=True) if query.kind == kind]
            key = tree_key(part.architecture, part.dtype, part.tf32, part.channels_last, kind)
            own[key] = learn([query for query, _ in rows], [size for _, size in rows])
        trees |= own
        agreed[part.name] = agreement(Table(table_bytes(library.version, own, {})), part, held, truth, gpu)
        nodes = sum(len(kinds) for kinds, _ in own.values())
        print(f"{part.name}: {len(asked)} asked, {nodes} nodes, {agreed[part.name]}, {time.monotonic() - begun:.0f} s")
        sys.stdout.flush()
    content = table_bytes(library.version, trees, {"asked": count, "agreement": agreed})
    options.out.write_bytes(content)
    print(f"{options.out}: {len(content)} bytes, {count} questions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
