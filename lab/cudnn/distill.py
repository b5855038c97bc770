"""Makes the table that answers where cuDNN is not installed.

    python -m lab distill --out FILE [--effort 3] [--answers FOLDER] [--only sm_80]
    python -m lab distill --show

Needs cuDNN (nvidia-cudnn-cu12) and scikit-learn, no GPU; takes an hour or more on one core. cuDNN is asked about the
layers of public networks (`layers.json.gz`) at several batch sizes, about layers like them and about drawn ones; each
answer is written as a formula of the shape, one formula for each engine where that is possible; decision trees learn
which formula goes with which shape. `--answers` keeps what cuDNN said, so that a second run need not ask again. The
networks listed as `held_out` are not learnt from: the share of their convolutions that the table gives within 5 % is
written into the table's head, and `--show` prints it.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import math
import random
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from oomcast.devices import Gpu, find_gpu
from oomcast.simulate.cudnn.formulas import features, fitting, sizes_of
from oomcast.simulate.cudnn.query import Query, takes_cudnn
from oomcast.simulate.cudnn.table import LEAF, OLDER_FILE, SCALE, SCHEMA, Table, compress, pack, shipped_table, tree_key
from oomcast.units import MiB

from .choice import Choice, Choosing
from .shapes import Layer, draw, draw_uneven, of_layer, shrunk, vary

__all__ = ["add_to"]

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
UNEVEN = 30000
UNEVEN_WEIGHTS = 2
"""How many times as many for weight gradients, whose choices vary most."""
VOICES = 3
"""How many trees are learnt for each direction."""
MEASURED = (
    "Measured on every distinct layer of each held-out network (a layer counts once for each network that has it), at "
    "one batch size of 8 to 128 drawn for it, in each direction that torch gives to cuDNN: the share of workspaces "
    "within 5 % of cuDNN's, none against none being right; 'workspace': among those above 0; 'new': among the shapes "
    "that were not asked for the learning, since networks share layers; '1 MiB': within 5 % or 1 MiB; 'bytes': the "
    "sum of the differences as a share of the sum of the workspaces."
)

Nodes = tuple[bytes, list[int]]
"""A tree: each node's kind and value."""


class Part(NamedTuple):
    """What is learnt about one dtype and layout of one architecture."""

    architecture: int
    dtype: str
    tf32: bool
    channels_last: bool
    batches: int
    """How many of the usual batch sizes are asked for each layer."""
    varied: int
    """How many layers are changed at random; half as many are wholly drawn."""
    uneven: int = 0
    """How many layers are drawn whose numbers of channels are no multiples of anything."""
    shrunk: bool = False
    """Whether every layer is asked for small images too."""

    @property
    def name(self) -> str:
        return tree_key(self.architecture, self.dtype, self.tf32, self.channels_last, "all").replace(" ", "-")


def parts(effort: int) -> Iterator[Part]:
    """fp32 in the plain layout first: it is torch's default and the hardest. Below effort 2, fp16 answers for bf16."""

    def part(architecture: int, dtype: str, tf32: bool, channels_last: bool, batches: int, varied: int) -> Part:
        return Part(architecture, dtype, tf32, channels_last, min(batches * effort, len(BATCHES)), varied * effort)

    modern = [architecture for architecture in EXAMPLES if architecture >= 80]
    for architecture in EXAMPLES:
        usual = part(architecture, "float32", True, False, 5, 10000)
        # Measured networks of uneven widths are known of one alone, whose trees grow much by them; old ones' do not.
        uneven = UNEVEN if architecture == 80 else 0 if architecture in modern else UNEVEN // 3
        yield usual._replace(uneven=uneven * effort, shrunk=True)
    for architecture in EXAMPLES:
        yield part(architecture, "float16", True, False, 2, 5000)
    for architecture in EXAMPLES:
        yield part(architecture, "float32", True, True, 1, 2000)
        yield part(architecture, "float16", True, True, 1, 2000)
    for architecture in modern:
        yield part(architecture, "float32", False, False, 1, 500)
        yield part(architecture, "float32", False, True, 1, 500)
    for architecture in modern:
        if effort > 1:
            yield part(architecture, "bfloat16", True, False, 2, 5000)
            yield part(architecture, "bfloat16", True, True, 1, 2000)


def learnt_queries(part: Part, layers: Sequence[Layer], gpu: Gpu) -> list[Query]:
    """The layers at some usual batch sizes and a few others, layers like them, and drawn ones; in all directions."""
    rng = random.Random("learnt 2")
    chosen: list[tuple[Layer, int]] = []
    for layer in layers:
        chosen += ((layer, batch) for batch in rng.sample(BATCHES, part.batches))
        if rng.random() < 0.2:
            chosen.append((layer, rng.choice(OTHER_BATCHES)))
    for _ in range(part.varied):
        batch = rng.choice(BATCHES if rng.random() < 0.8 else OTHER_BATCHES)
        chosen.append((vary(rng, layers), batch))
    if part.shrunk:
        small = random.Random("small 1")
        shrunken = [(shrunk(small, layer), small.choice(BATCHES)) for layer in layers]
        chosen += ((layer, batch) for layer, batch in shrunken if layer is not None)
    found = [_of_layer(layer, batch, kind, part) for layer, batch in chosen for kind in KINDS]
    uneven = random.Random("uneven 1")
    for number in range(part.uneven * UNEVEN_WEIGHTS):
        layer, batch = draw_uneven(uneven)
        kinds = KINDS if number < part.uneven else ("wgrad",)
        found += (_of_layer(layer, batch, kind, part) for kind in kinds)
    for _ in range(part.varied // 2):
        state = rng.getstate()
        for kind in KINDS:
            rng.setstate(state)
            found.append(draw(rng, kind, part.dtype, part.channels_last))
    return _asked_by_torch(dict.fromkeys(found), gpu)


def held_out_queries(part: Part, layers: Sequence[Layer], gpu: Gpu) -> list[Query]:
    """Each layer of each network that was held out (as often as networks have it) at one of the usual batch sizes."""
    rng = random.Random("held_out 1")
    chosen = [(layer, rng.sample(BATCHES, 1)[0]) for layer in layers]
    return _asked_by_torch([_of_layer(layer, batch, kind, part) for layer, batch in chosen for kind in KINDS], gpu)


def _of_layer(layer: Layer, batch: int, kind: str, part: Part) -> Query:
    return of_layer(layer, batch, kind, part.dtype, part.channels_last)


def _asked_by_torch(queries: Iterable[Query], gpu: Gpu) -> list[Query]:
    return [query for query in queries if takes_cudnn(query, gpu.compute_capability, (9, 20)) and _is_usual(query)]


def _is_usual(query: Query) -> bool:
    """Not beyond 32-bit indices; and a network's first layer needs no gradient of its input."""
    if max(math.prod(query.x), math.prod(query.y)) >= 2**31:
        return False
    return query.kind != "dgrad" or query.x[1] > 3


class _Chooses(Protocol):
    def choice(self, device: str, tf32: bool, query: Query, /) -> Choice | None: ...


class Answers:
    """What cuDNN said for one part, kept in a file: only what is not in it is asked."""

    def __init__(self, part: Part, gpu: Gpu, library: _Chooses, folder: Path | None) -> None:
        self._part = part
        self._device = json.dumps(gpu.cudnn_properties())
        self._library = library
        self._file = folder / f"{part.name}.json.gz" if folder else None
        self._known: dict[str, list[Any] | None] = {}
        if self._file is not None and self._file.exists():
            self._known = json.loads(gzip.decompress(self._file.read_bytes()))

    def of(self, queries: Sequence[Query]) -> list[Choice | None]:
        """cuDNN's first plan for each; None where it has none."""
        count = len(self._known)
        found = [self._of(query) for query in queries]
        if self._file is not None and len(self._known) > count:
            self._file.write_bytes(gzip.compress(json.dumps(self._known).encode(), 1))
        return found

    def _of(self, query: Query) -> Choice | None:
        shapes = (query.x, query.w, query.stride, query.padding, query.dilation)
        key = " ".join((query.kind, *("x".join(map(str, shape)) for shape in shapes)))
        if key not in self._known:
            choice = self._library.choice(self._device, self._part.tf32, query)
            self._known[key] = None if choice is None else list(choice)
        known = self._known[key]
        return None if known is None else Choice(*known)


def learn(asked: Sequence[Query], said: Sequence[Choice | None], voices: int = VOICES) -> list[Nodes]:
    """Trees from shapes to formulas: the first is free to use all features at each node, the others only some."""
    rows: list[tuple[float, ...]] = []
    fits: list[frozenset[int]] = []
    engines: dict[str, list[int]] = {}
    for query, choice in zip(asked, said, strict=True):
        sizes = sizes_of(query)
        fit = fitting(choice.size, sizes, TOLERANCE) if choice is not None else frozenset[int]()
        if choice is not None and fit:
            engines.setdefault(choice.engine, []).append(len(rows))
            rows.append(features(query, sizes))
            fits.append(fit)
    names = [0] * len(rows)
    for places in engines.values():
        order = _common_first([fits[place] for place in places])
        for place in places:
            names[place] = min(fits[place], key=order.__getitem__)
    learner: Any = importlib.import_module("sklearn.tree").DecisionTreeClassifier
    trees = []
    for voice in range(voices):
        fitted = learner(random_state=voice, criterion="entropy", max_features=0.4 if voice else None).fit(rows, names)
        trees.append(_flat(fitted, fitted.apply(rows), fits))
    return trees


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


def _flat(fitted: Any, leaves: Sequence[int], fits: Sequence[frozenset[int]]) -> Nodes:
    """The tree in the order of `Tree`, cut where one formula does for all answers below; `leaves` has each answer's."""
    tree, classes = fitted.tree_, fitted.classes_
    below: list[list[frozenset[int]]] = [[] for _ in range(tree.node_count)]
    for leaf, fit in zip(leaves, fits, strict=True):
        below[leaf].append(fit)
    serving: list[frozenset[int]] = [frozenset()] * tree.node_count
    for node in reversed(range(tree.node_count)):
        left, right = tree.children_left[node], tree.children_right[node]
        parts_below = below[node] if left < 0 else (serving[left], serving[right])
        serving[node] = frozenset.intersection(*parts_below)

    def label(node: int) -> int:
        commonest = int(classes[int(tree.value[node][0].argmax())])
        return min(serving[node], default=commonest, key=lambda name: (name != commonest, name))

    kinds, values = bytearray(), []
    waiting = [0]
    while waiting:
        node = waiting.pop()
        if serving[node] or tree.children_left[node] < 0:
            kinds.append(LEAF)
            values.append(label(node))
        else:
            kinds.append(int(tree.feature[node]))
            values.append(math.floor(tree.threshold[node] * SCALE))
            waiting += (int(tree.children_right[node]), int(tree.children_left[node]))
    return bytes(kinds), values


def agreement(
    table: Table, part: Part, asked: Sequence[Query], said: Sequence[Choice | None], known: Set[Query], gpu: Gpu
) -> dict[str, float]:
    """Shares of the answers that are within 5 % of cuDNN's, and the bytes by which they are off; see MEASURED."""
    right: Counter[str] = Counter()
    count: Counter[str] = Counter()
    off_by = total = 0
    for query, choice in zip(asked, said, strict=True):
        if choice is None:
            continue
        answer = table.ask(gpu, query, tf32=part.tf32)
        off = abs((answer.plans[0] if answer else 0) - choice.size)
        off_by += off
        total += choice.size
        keys = [query.kind, "all", *(["workspace"] if choice.size else []), *(["new"] if query not in known else [])]
        for key in keys:
            count[key] += 1
            right[key] += off <= 0.05 * choice.size
        count["1 MiB"] += 1
        right["1 MiB"] += off <= max(0.05 * choice.size, MiB)
    return {key: round(right[key] / count[key], 4) for key in sorted(count)} | {"bytes": round(off_by / total, 4)}


def table_bytes(version: int, trees: dict[str, list[Nodes]], head: dict[str, Any]) -> bytes:
    packed = {key: compress(pack(voices)) for key, voices in trees.items()}
    described = {
        "schema": SCHEMA,
        "cudnn": f"{version // 10000}.{version // 100 % 100}",
        **head,
        "trees": {key: [len(packed[key]), *(len(kinds) for kinds, _ in voices)] for key, voices in trees.items()},
    }
    return zlib.compress(json.dumps(described).encode(), 9) + b"".join(packed.values())


def show(table: Table) -> str:
    """What the table states of itself, as lines to print."""
    columns = ("all", "fprop", "dgrad", "wgrad", "workspace", "new", "1 MiB", "bytes")
    lines = [f"cuDNN {table.head['cudnn']}, {table.head['asked']} answers. {table.head['measured']}"]
    lines += [table.head.get("note", ""), ""]
    lines.append(f"{'%':<34}" + "".join(f"{column:>10}" for column in columns))
    for name, shares in table.head["agreement"].items():
        lines.append(f"{name.removesuffix('-all'):<34}" + "".join(f"{100 * shares[c]:>10.1f}" for c in columns))
    return "\n".join(lines)


def make(out: Path, folder: Path | None, effort: int, only: str, voices: int = VOICES) -> None:
    """Asks, learns and measures part by part; the file is written after each, so that a broken run leaves one."""
    layers = json.loads(gzip.decompress(LAYERS.read_bytes()))
    library = Choosing()
    trees: dict[str, list[Nodes]] = {}
    agreed: dict[str, dict[str, float]] = {}
    count = 0
    for part in parts(effort):
        if only not in part.name:
            continue
        begun = time.monotonic()
        gpu = find_gpu(EXAMPLES[part.architecture])
        answers = Answers(part, gpu, library, folder)
        asked = learnt_queries(part, layers["learnt"]["layers"], gpu)
        held = held_out_queries(part, layers["held_out"]["layers"], gpu)
        truth, said = answers.of(held), answers.of(asked)
        count += len(asked)
        own = {}
        for kind in KINDS:
            rows = [(query, choice) for query, choice in zip(asked, said, strict=True) if query.kind == kind]
            key = tree_key(part.architecture, part.dtype, part.tf32, part.channels_last, kind)
            own[key] = learn([query for query, _ in rows], [choice for _, choice in rows], voices)
        trees |= own
        table = Table(table_bytes(library.version, own, {}))
        agreed[part.name] = agreement(table, part, held, truth, set(asked), gpu)
        head = {"asked": count, "measured": MEASURED, "agreement": agreed}
        content = table_bytes(library.version, trees, head)
        out.write_bytes(content)
        nodes = sum(len(kinds) for voices in own.values() for kinds, _ in voices)
        print(f"{part.name}: {len(asked)} asked, {nodes} nodes, {agreed[part.name]}, {time.monotonic() - begun:.0f} s")
        print(f"{out}: {len(content)} bytes", flush=True)


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("distill", description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="the file to write")
    what.add_argument("--show", action="store_true", help="print how well the table that ships agrees with cuDNN")
    parser.add_argument("--answers", type=Path, help="a folder where cuDNN's answers are kept")
    parser.add_argument("--effort", type=int, default=1, help="how many times the usual number of questions (1)")
    parser.add_argument(
        "--only", default="", help="only parts with this in their name, for a trial (sm_80-float32-nchw)"
    )
    parser.add_argument("--trees", type=int, default=VOICES, help=f"how many answer together ({VOICES}); 1 is smallest")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.show:
        print(show(shipped_table()))
        print(f"\n{show(shipped_table(OLDER_FILE))}")
        return 0
    if options.answers is not None:
        options.answers.mkdir(parents=True, exist_ok=True)
    make(options.out, options.answers, options.effort, options.only, options.trees)
    return 0
