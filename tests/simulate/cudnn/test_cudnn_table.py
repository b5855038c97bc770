from __future__ import annotations

import gzip
import json
import random
import re
import zlib
from importlib import resources
from pathlib import Path

import pytest
from convolutions import RESNET_50, convolution

from lab.__main__ import main
from lab.cudnn import distill
from lab.cudnn.choice import Choice
from lab.cudnn.shapes import draw, draw_uneven, of_layer, vary
from oomcast.devices import all_gpus, find_gpu
from oomcast.errors import OomcastError
from oomcast.simulate import DeviceFacts, Transient, WorkspaceTable
from oomcast.simulate.cudnn import convolution_rules
from oomcast.simulate.cudnn.formulas import FEATURES, evaluate, features, fitting, labels, sizes_of
from oomcast.simulate.cudnn.query import Query, query_of
from oomcast.simulate.cudnn.table import (
    FILE,
    LEAF,
    SCALE,
    SCHEMA,
    Table,
    Tree,
    architecture_for,
    generation_table,
    pack,
    shipped_table,
    tree_key,
    unpack,
)
from oomcast.trace import Phase
from oomcast.units import GiB, MiB

KINDS = ("conv_fprop", "conv_dgrad", "conv_wgrad")


def query(operator: str, *args: int, **how: object) -> Query:
    found = query_of(convolution(operator, *args, **how))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_the_tables_stay_small() -> None:
    files = resources.files("oomcast.simulate.cudnn")
    tables = [f for f in files.iterdir() if f.name.endswith(".bin")]
    assert sum(len(f.read_bytes()) for f in tables) < 2_000_000


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
    assert not missing


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
    agreement = head["agreement"]
    assert all(0 <= share <= 1 for shares in agreement.values() for share in shares.values())
    plain = {name: shares["all"] for name, shares in agreement.items() if name.endswith("float32-nchw-all")}
    assert {f"sm_{number}-float32-nchw-all" for number in (70, 75, 80, 86, 89, 90, 100, 120)} <= set(plain)
    assert sum(share >= 0.95 for share in plain.values()) >= 5


def test_the_distiller_shows_what_the_head_states(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["distill", "--show"]) == 0
    printed = capsys.readouterr().out.split("cuDNN 9.10,")[0]
    for name, shares in shipped_table().head["agreement"].items():
        (line,) = [line for line in printed.splitlines() if line.startswith(name.removesuffix("-all") + " ")]
        assert float(line.split()[1]) == pytest.approx(100 * shares["all"], abs=0.051)


def test_held_out_networks_share_no_family_with_those_learnt_from() -> None:
    layers = json.loads(gzip.decompress(distill.LAYERS.read_bytes()))
    families = [
        {re.split(r"[_\d]", name.removeprefix("torchvision "))[0] for name in layers[use]["models"]}
        for use in ("learnt", "held_out")
    ]
    assert families[0]
    assert families[1]
    assert not families[0] & families[1]


def test_the_middle_voice_counts() -> None:
    def constant(label: int) -> tuple[bytes, list[int]]:
        return bytes((LEAF,)), [label]

    asked = query("conv_fprop", 8, 64, 28, 64, 3)
    sizes = sizes_of(asked)
    labels = sorted(range(8), key=lambda label: evaluate(label, sizes))
    voices = [constant(labels[place]) for place in (7, 0, 4)]
    table = Table(distill.table_bytes(92000, {tree_key(80, "float32", True, False, "fprop"): voices}, {}))
    answer = table.ask(find_gpu("a100-40gb"), asked)
    assert answer is not None
    assert answer.plans[0] == evaluate(labels[4], sizes)


def test_agreement_counts_what_it_says() -> None:
    """A table that always says "nothing", against one answer of each sort."""
    part = next(iter(distill.parts(1)))
    gpu = find_gpu("a100-40gb")
    key = tree_key(part.architecture, part.dtype, part.tf32, part.channels_last, "fprop")
    table = Table(distill.table_bytes(92000, {key: [(bytes((LEAF,)), [0])]}, {}))
    asked = [query("conv_fprop", batch, 64, 28, 64, 3) for batch in (1, 2, 4, 8)]
    said = [Choice(0, "a"), Choice(1000, "a"), Choice(2**21, "a"), None]
    shares = distill.agreement(table, part, asked, said, {asked[0]}, gpu)
    assert shares == {
        "all": 0.3333, "fprop": 0.3333, "workspace": 0.0, "new": 0.0, "1 MiB": 0.6667, "bytes": 1.0,
    }  # fmt: skip


def test_learning_names_one_formula_for_each_engine() -> None:
    """Two engines whose answers both fit several formulas: what is learnt gives every answer back."""
    pytest.importorskip("sklearn")
    rng = random.Random(2)
    asked = [draw(rng, "wgrad", "float32", False) for _ in range(60)]
    said = []
    for number, drawn in enumerate(asked):
        sizes = sizes_of(drawn)
        wide = drawn.x[0] > 16
        said.append(None if number % 20 == 0 else Choice(sizes.x + sizes.y + wide * sizes.w, f"engine {wide:d}"))
    for voice in distill.learn(asked, said):
        tree = Tree(*voice)
        for drawn, choice in zip(asked, said, strict=True):
            if choice is not None:
                sizes = sizes_of(drawn)
                assert evaluate(tree.leaf_of(features(drawn, sizes)), sizes) == pytest.approx(choice.size, rel=0.05)


def head_of(schema: int = SCHEMA, **trees: list[int]) -> bytes:
    return zlib.compress(json.dumps({"schema": schema, "cudnn": "9.20", "trees": trees}).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not compressed",
        zlib.compress(b"no head"),
        zlib.compress(b"{}"),
        zlib.compress(b"[1]"),
        zlib.compress(json.dumps({"schema": SCHEMA, "cudnn": "9.20", "trees": {"a": 2}}).encode()),
        head_of(SCHEMA + 1),
        head_of(a=[2, 1]) + b"abc",
        head_of()[:-9],
    ],
)
def test_a_damaged_table_says_so(content: bytes) -> None:
    with pytest.raises(OomcastError, match=r"table\.bin is broken"):
        Table(content)


@pytest.mark.parametrize("packed", [b"abc", zlib.compress(b"abc")])
def test_damaged_trees_say_so_when_they_are_used(packed: bytes) -> None:
    table = Table(head_of(**{tree_key(80, "float32", True, False, "fprop"): [len(packed), 2]}) + packed)
    with pytest.raises(OomcastError, match=r"table\.bin is broken"):
        table.ask(find_gpu("a100-40gb"), query("conv_fprop", 8, 64, 28, 64, 3))


def test_an_architecture_that_is_not_in_the_table() -> None:
    assert architecture_for(find_gpu("gtx-1080-ti")) == 70
    assert architecture_for(find_gpu("l4")) == 89
    assert architecture_for(find_gpu("24GiB")) == 86


def test_tf32_makes_no_difference_before_ampere() -> None:
    keys = {tree_key(75, "float32", tf32, False, "fprop") for tf32 in (True, False)}
    assert len(keys) == 1


def test_trees_survive_packing() -> None:
    # row[1] <= 2.5 ? (row[0] <= -1 ? 7 : 8) : 9, and row[0] <= 0 ? 300 : -1
    first = (bytes((1, 0, LEAF, LEAF, LEAF)), [int(2.5 * SCALE), -SCALE, 7, 8, 9])
    second = (bytes((0, LEAF, LEAF)), [0, 300, -1])
    rows = ((-2.0, 0.0), (0.5, 2.5), (0.5, 2.6))
    packed = pack([first, second])
    for one, other in ((Tree(*first), Tree(*second)), unpack(packed, [5, 3])):
        assert [one.leaf_of(row) for row in rows] == [7, 8, 9]
        assert [other.leaf_of(row) for row in rows] == [300, -1, -1]
    with pytest.raises(ValueError, match="are not 7 nodes"):
        unpack(packed, [5, 2])


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


def test_varied_layers_are_consistent_and_repeatable() -> None:
    layers = [(64, 56, 56, 128, 3, 3, 2, 2, 1, 1, 1, 1, 1), (96, 14, 14, 96, 5, 5, 1, 1, 2, 2, 1, 1, 96),
              (3, 224, 224, 64, 7, 7, 2, 2, 3, 3, 1, 1, 1), (256, 7, 7, 512, 1, 1, 1, 1, 0, 0, 1, 1, 8)]  # fmt: skip
    varied = [vary(random.Random(i), layers) for i in range(300)]
    assert varied == [vary(random.Random(i), layers) for i in range(300)]
    assert len(set(map(tuple, varied))) > 100
    for layer in varied:
        asked = of_layer(layer, 4, "fprop", "float32", False)
        assert min(asked.y) >= 1
        assert asked.x[1] == asked.w[1] * asked.groups
        assert asked.w[0] % asked.groups == 0


def test_kept_answers_are_not_asked_again(tmp_path: Path) -> None:
    class Counting:
        asked = 0

        def choice(self, device: str, tf32: bool, asked: Query) -> Choice | None:
            self.asked += 1
            return Choice(self.asked, "engine") if asked.kind == "fprop" else None

    part, gpu, library = next(iter(distill.parts(1))), find_gpu("a100-40gb"), Counting()
    queries = [query(kind, 8, 64, 28, 64, 3) for kind in KINDS]
    first = distill.Answers(part, gpu, library, tmp_path).of(queries)
    again = distill.Answers(part, gpu, library, tmp_path).of(queries)
    assert first == again == [Choice(1, "engine"), None, None]
    assert library.asked == 3


def test_a_stack_gets_the_answers_of_its_own_generation() -> None:
    assert generation_table((8, 9)) is None
    assert generation_table((9, 20)) is None
    older = generation_table((9, 10))
    assert older is not None
    assert older.name == "table (cudnn 9.10)"
    asked = [query(kind, 32, *layer) for layer in RESNET_50 for kind in KINDS]
    a100, h100 = find_gpu("a100-40gb"), find_gpu("h100-sxm")
    assert all(older.ask(a100, one) is not None for one in asked)
    assert all(older.ask(h100, one) is None for one in asked)  # the newest table answers for these
    assert any(older.ask(a100, one) != shipped_table().ask(a100, one) for one in asked)
    names = {
        stack: convolution_rules(a100, stack, source="table").source_in_use() for stack in ((9, 1), (9, 10), (9, 20))
    }
    assert names == {(9, 1): "table (cudnn 9.20)", (9, 10): "table (cudnn 9.10)", (9, 20): "table (cudnn 9.20)"}
    assert older.ask(a100, asked[0]._replace(channels_last=True)) is None  # it has learnt the plain layout alone


def test_before_9_8_some_gradients_are_those_of_the_older_table() -> None:
    first = generation_table((9, 1))
    assert first is not None
    a100 = find_gpu("a100-40gb")
    for kind in KINDS:
        assert first.ask(a100, query(kind, 32, 64, 28, 128, 3)) is None
        uneven = first.ask(a100, query(kind, 32, 61, 28, 125, 3))
        assert (uneven is not None) == (kind == "conv_wgrad")
        assert (first.ask(a100, query(kind, 32, 48, 28, 64, 3)) is not None) == (kind == "conv_dgrad")
        assert first.ask(a100, query(kind, 32, 72, 28, 72, 3)) is None
    depthwise = query("conv_wgrad", 32, 96, 28, 96, 3)._replace(w=(96, 1, 3, 3))
    assert depthwise.groups == 96
    assert first.ask(a100, depthwise) is None


@pytest.mark.parametrize(
    ("batch", "channels", "image", "outputs", "workspace"),
    # runs 370, 778 and 726 of GPUMemNet hold 484, 716 and 450 MiB more than without any; 1075 and 1121 hold no more
    [(52, 44, 166, 44, 481), (62, 56, 164, 56, 712), (32, 63, 172, 63, 462), (44, 31, 156, 31, 0)],
)
def test_cudnn_of_2024_takes_a_workspace_for_the_input_gradient_of_43_to_64_channels(
    batch: int, channels: int, image: int, outputs: int, workspace: int
) -> None:
    rules = convolution_rules(find_gpu("a100-40gb"), (9, 1), source="table")
    need = WorkspaceTable(DeviceFacts()).with_rules(rules)(
        convolution("conv_dgrad", batch, channels, image, outputs, 3), Phase.BACKWARD
    )
    assert isinstance(need, Transient)
    assert max(need.alternatives) == pytest.approx(workspace * MiB, rel=0.02, abs=MiB)


def test_uneven_layers_are_drawn_alike_from_one_seed_and_are_rarely_multiples_of_eight() -> None:
    drawn = [draw_uneven(random.Random(seed)) for seed in range(200)]
    assert drawn == [draw_uneven(random.Random(seed)) for seed in range(200)]
    assert sum(layer[3] % 8 == 0 for layer, _ in drawn) < 60
    for layer, batch in drawn:
        asked = of_layer(layer, batch, "fprop", "float32", False)
        assert min(asked.y) >= 1
        assert asked.groups == 1
