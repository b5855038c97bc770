from __future__ import annotations

import json
import random
import zlib
from importlib import resources

import pytest
from convolutions import RESNET_50, convolution

from oomcast.devices import all_gpus, find_gpu
from oomcast.errors import OomcastError
from oomcast.simulate.cudnn._formulas import FEATURES, evaluate, features, fitting, labels, sizes_of
from oomcast.simulate.cudnn._query import Query, query_of
from oomcast.simulate.cudnn._shapes import draw
from oomcast.simulate.cudnn._table import FILE, SCHEMA, Table, architecture_for, shipped_table, tree_key
from oomcast.simulate.cudnn._tree import LEAF, SCALE, Tree, pack, unpack
from oomcast.units import GiB

KINDS = ("conv_fprop", "conv_dgrad", "conv_wgrad")


def query(operator: str, *args: int, **how: object) -> Query:
    found = query_of(convolution(operator, *args, **how))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_data_stays_small() -> None:
    files = resources.files("oomcast.simulate.cudnn")
    data = [f for f in files.iterdir() if f.name.endswith((".bin", ".gz", ".json"))]
    assert sum(len(f.read_bytes()) for f in data) < 2_000_000


def test_every_gpu_of_the_catalogue_gets_a_sane_answer() -> None:
    table = shipped_table()
    missing: set[tuple[int, str]] = set()
    for gpu in all_gpus():
        for dtype in ("float32", "float16", "bfloat16", "float64"):
            for kind in KINDS:
                answer = table.ask(gpu, query(kind, 16, 64, 56, 128, 3, dtype=dtype))
                if answer is None:
                    missing.add((architecture_for(gpu), dtype))
                    continue
                assert 0 <= answer.plans[0] <= GiB
                assert answer.largest >= answer.plans[0]
                assert answer.plans[-1] == 0
    # What was not distilled has no answer, and an estimate then lists it as not modelled.
    assert not {(architecture, "float32") for architecture in (80, 86, 89, 90, 100, 120)} & missing


@pytest.mark.parametrize("kind", KINDS)
def test_resnet_50_on_an_a100_converts_its_operands(kind: str) -> None:
    """What cuDNN 9.20 says of these: at most both operands and the result, and some splits of a weight gradient."""
    gpu, table = find_gpu("a100-40gb"), shipped_table()
    for layer in RESNET_50[1:]:
        asked = query(kind, 32, *layer)
        sizes = sizes_of(asked)
        answer = table.ask(gpu, asked)
        assert answer is not None
        most = 2 * (sizes.x + sizes.y) + (140 if kind == "conv_wgrad" else 4) * sizes.w
        assert answer.plans[0] <= most


def test_known_answers_of_cudnn_9_20() -> None:
    table, a100 = shipped_table(), find_gpu("a100-40gb")
    first = {
        ("conv_fprop", 32, 64, 56, 64, 3): 25_837_584,
        ("conv_dgrad", 32, 64, 56, 64, 3): 51_527_696,
        ("conv_wgrad", 32, 64, 56, 64, 3): 54_641_215,
        ("conv_dgrad", 64, 128, 112, 128, 3): 822_673_424,
    }
    for (kind, *shape), expected in first.items():
        answer = table.ask(a100, query(kind, *shape))
        assert answer is not None
        assert answer.plans[0] == pytest.approx(expected, rel=0.05)


def test_the_same_question_has_the_same_answer() -> None:
    content = resources.files("oomcast.simulate.cudnn").joinpath(FILE).read_bytes()
    one, other = Table(content), Table(content)
    rng = random.Random(5)
    gpu = find_gpu("h100-80gb")
    for _ in range(50):
        asked = draw(rng, "wgrad", "float16", False)
        assert one.ask(gpu, asked) == other.ask(gpu, asked)


def test_the_head_states_how_well_it_agrees() -> None:
    head = shipped_table().head
    assert head["cudnn"] == "9.20"
    assert head["asked"] > 10_000
    assert len({name.split("-")[0] for name in head["agreement"]}) >= 5
    assert all(0 <= share <= 1 for shares in head["agreement"].values() for share in shares.values())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not compressed",
        zlib.compress(b"no head"),
        zlib.compress(b"{}\n"),
        zlib.compress(b"[1]\n"),
        zlib.compress(json.dumps({"schema": SCHEMA + 1, "cudnn": "9.20", "trees": {}}).encode() + b"\n"),
        zlib.compress(json.dumps({"schema": SCHEMA, "cudnn": "9.20", "trees": {"a": 2}}).encode() + b"\nabc"),
    ],
)
def test_a_damaged_table_says_so(content: bytes) -> None:
    with pytest.raises(OomcastError, match=r"table\.bin is broken"):
        Table(content)


def test_an_architecture_that_is_not_in_the_table() -> None:
    assert architecture_for(find_gpu("gtx-1080-ti")) == 70
    assert architecture_for(find_gpu("l4")) == 89
    assert architecture_for(find_gpu("24GiB")) == 86


def test_tf32_makes_no_difference_before_ampere() -> None:
    keys = {tree_key(75, "float32", tf32, False, "fprop") for tf32 in (True, False)}
    assert len(keys) == 1


def test_a_tree_survives_packing() -> None:
    # row[1] <= 2.5 ? (row[0] <= -1 ? 7 : 8) : 9
    kinds, values = bytes((1, 0, LEAF, LEAF, LEAF)), [int(2.5 * SCALE), -SCALE, 7, 8, 9]
    for tree in (Tree(kinds, values), unpack(pack(kinds, values), 5)):
        assert [tree.leaf_of(row) for row in ((-2.0, 0.0), (0.0, 2.5), (0.0, 2.6))] == [7, 8, 9]


def test_formulas_find_themselves() -> None:
    rng = random.Random(3)
    for kind in ("fprop", "dgrad", "wgrad"):
        asked = draw(rng, kind, "float32", False)
        sizes = sizes_of(asked)
        assert len(features(asked, sizes)) == len(FEATURES)
        for label in range(0, labels(), 37):
            size = evaluate(label, sizes)
            fits = fitting(size, sizes, 0.0)
            assert label in fits or size == 0
            assert all(evaluate(other, sizes) == size for other in fits)


def test_drawn_convolutions_are_consistent_and_repeatable() -> None:
    drawn = [draw(random.Random(i), "fprop", "float32", True) for i in range(200)]
    assert drawn == [draw(random.Random(i), "fprop", "float32", True) for i in range(200)]
    for asked in drawn:
        assert asked.x[1] == asked.w[1] * asked.groups
        assert asked.y[:2] == (asked.x[0], asked.w[0])
        assert asked.w[0] % asked.groups == 0
