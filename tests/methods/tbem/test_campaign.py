"""Campaign files: what they give, that their cases are the same everywhere, and what is said of a mistake."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oomcast.errors import BadInput, OomcastError
from oomcast.methods.tbem import (
    Campaign,
    Case,
    Factor,
    Value,
    campaign_cases,
    next_campaign_case,
    plan_campaign,
    read_campaign,
)
from oomcast.units import GiB

EXAMPLES = sorted(Path(__file__).parents[3].joinpath("examples/campaigns").glob("*.toml"))

SMALL = """
template = "vgg"
held_out = 3
[factors]
batch_size = [2, 4, 8, 16]
depth = [11, 13, 16, 19]
convolutions = [8, 10, 13, 16]
[fixed]
edge = 32
width = 0.125
dense_width = 64
classes = 10
"""


LISTING_1 = """1 Input = set of nat = [W1,H1,D1]
2 Output = set of nat = [W2,H2,D2]
3 Hyperparameter = set of nat = [K,F,S,P]
4
5 process ShapeVerify (Input,Output,Hyperparameter:
   set) y:bool
6 pre forall[x:set] | x>0
7 post W2=(W1-F+2P)/S+1 and H2=(H1-F+2P)/S+1 and D2=
   K
8   and y = true
9   or
10  W2<>(W1-F+2P)/S+1 or H2<>(H1-F+2P)/S+1 or D2<>
   K
11   and y = false
12 end_process
"""
OWN_JOB = '''"""A job of one's own."""
from __future__ import annotations

import torch

WIDTH = 32
RATE: float = 0.5
LABEL = "a"


def model(depth: int = 3, width=None) -> torch.nn.Module:
    layers = [torch.nn.Linear(16, WIDTH), *(torch.nn.Linear(WIDTH, WIDTH) for _ in range(depth))]
    return torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 10))


def batch(batch_size, *, extra=True):
    return torch.zeros(batch_size, 16), torch.zeros(batch_size, dtype=torch.long)


if __name__ == "__main__":
    raise SystemExit("a case does not run what the job does as a program")
'''


def written(folder: Path, text: str, name: str = "try.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def small(tmp_path: Path) -> Campaign:
    return read_campaign(written(tmp_path, SMALL))


def varied(campaign: Campaign, parameters: Case) -> tuple[Value, ...]:
    return tuple(parameters[factor.name] for factor in campaign.all_factors)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_take_16_runs_and_every_case_can_be_built(path: Path) -> None:
    plan = plan_campaign(read_campaign(path))
    assert plan.plan.array is not None
    assert plan.plan.array.runs == 16
    assert [case.role for case in plan.cases] == ["array"] * 16 + ["held_out"] * 8
    assert not plan.rejected
    assert len({case.key for case in plan.cases}) == 24
    for case in plan.cases:
        compile(case.source, case.key, "exec")


def test_there_are_the_examples_that_the_documentation_names() -> None:
    assert [path.name for path in EXAMPLES] == ["mlp.toml", "unet.toml", "vgg-keras.toml", "vgg.toml"]


def test_the_vgg_example_is_table_1() -> None:
    campaign = read_campaign(next(path for path in EXAMPLES if path.name == "vgg.toml"))
    assert {factor.name: factor.levels for factor in campaign.factors} == {
        "batch_size": (4, 8, 16, 32),
        "depth": (11, 13, 16, 19),
        "convolutions": (8, 10, 13, 16),
    }
    assert plan_campaign(campaign).cost(2.0).combinations == 64


def test_a_file_is_read_as_written(tmp_path: Path) -> None:
    campaign = read_campaign(
        written(
            tmp_path,
            """
            name = "mine"
            template = "unet2d"
            framework = "keras"
            device = "A100 40GB"
            repetitions = 2
            steps = 5
            seed = 9
            held_out = 4
            [plan]
            method = "random"
            runs = 6
            [factors]
            batch_size = [1, 2]
            edge = [32, 64, 96]
            [layer_factors]
            pool = ["max", "average"]
            [held_out_factors]
            edge = [48, 80]
            [fixed]
            width = 4
            [limits]
            seconds = 30
            bytes = "2GiB"
            total_seconds = 3600
            """,
        )
    )
    assert (campaign.name, campaign.framework, campaign.device) == ("mine", "keras", "a100-40gb")
    assert (campaign.repetitions, campaign.steps, campaign.seed, campaign.held_out) == (2, 5, 9, 4)
    assert (campaign.method, campaign.runs) == ("random", 6)
    assert (campaign.limits.seconds, campaign.limits.bytes, campaign.limits.total_seconds) == (30.0, 2 * GiB, 3600.0)
    assert campaign.layer_factors == (Factor("pool", ("max", "average")),)
    plan = plan_campaign(campaign)
    assert plan.cost(1.5).seconds == 1.5 * plan.cost().runs == 1.5 * len(plan.cases) == 1.5 * 20
    assert {case.parameters["edge"] for case in plan.cases if case.role == "held_out"} <= {48, 80}
    assert {case.parameters["width"] for case in plan.cases} == {4}


def test_a_case_for_a_gpu_runs_on_one(small: Campaign) -> None:
    on_gpu = campaign_cases(replace(small, device="a100-40gb"))[0]
    assert on_gpu.device == "a100-40gb"
    assert '"cuda"' in on_gpu.source
    assert '"cuda"' not in campaign_cases(small)[0].source


def test_the_name_is_the_files_where_none_is_given(small: Campaign) -> None:
    assert small.name == "try"


def test_held_out_cases_are_none_of_the_arrays(small: Campaign) -> None:
    cases = campaign_cases(small)
    array = {varied(small, case.parameters) for case in cases if case.role == "array"}
    held_out = {varied(small, case.parameters) for case in cases if case.role == "held_out"}
    assert (len(array), len(held_out)) == (16, 3)
    assert not array & held_out


def test_repetitions_are_cases_of_their_own_and_come_after_the_first_round(small: Campaign) -> None:
    cases = campaign_cases(replace(small, repetitions=2))
    assert len({case.key for case in cases}) == len(cases) == 38
    assert [case.repetition for case in cases] == [0] * 19 + [1] * 19
    assert {case.key for case in campaign_cases(small)} == {case.key for case in cases[:19]}


def test_another_name_is_the_same_run_and_anything_else_another(small: Campaign) -> None:
    keys = {case.key for case in campaign_cases(small)}
    assert {case.key for case in campaign_cases(replace(small, name="other"))} == keys
    for change in ({"framework": "keras"}, {"device": "cuda"}, {"steps": 4}, {"fixed": {**small.fixed, "classes": 11}}):
        assert not keys & {case.key for case in campaign_cases(replace(small, **change))}


def test_keys_are_the_same_in_another_process(small: Campaign, tmp_path: Path) -> None:
    program = (
        "import sys; from oomcast.methods.tbem import campaign_cases, read_campaign\n"
        "print(*[case.key for case in campaign_cases(read_campaign(sys.argv[1]))])"
    )
    path = written(tmp_path, SMALL)
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [case.key for case in campaign_cases(small)]


def test_a_seed_decides_the_held_out_cases(small: Campaign) -> None:
    drawn = {tuple(case.key for case in campaign_cases(replace(small, seed=seed))[16:]) for seed in (0, 0, 1, 2)}
    assert len(drawn) == 3


def test_layers_and_hyperparameters_share_one_array(tmp_path: Path) -> None:
    text = SMALL + '[layer_factors]\nnorm = ["none", "batch"]\npool = ["max", "average"]\nstage1_extra = [0, 1]\n'
    campaign = read_campaign(written(tmp_path, text))
    plan = plan_campaign(campaign)
    assert plan.plan.array is not None
    assert plan.plan.array.levels == (4, 4, 4, 2, 2, 2)
    assert len(plan.plan.cases) == 16
    meetings = {(case["norm"], case["pool"], case["batch_size"]) for case in plan.plan.cases}
    assert len(meetings) == 16


def test_what_cannot_be_built_is_listed_with_its_reason(tmp_path: Path) -> None:
    text = SMALL.replace("edge = 32\n", "") + '[layer_factors]\nedge = [16, 64]\npadding = ["same", "valid"]\n'
    plan = plan_campaign(read_campaign(written(tmp_path, text)))
    array = [case for case in plan.cases if case.role == "array"]
    rejected = [case for case in plan.rejected if case.role == "array"]
    assert len(array) == len({case.key for case in array}) == 16
    assert plan.balance is not None
    assert plan.balance.rejected == len(rejected) > 0
    # No network of 16 pixels can be built, nor one without padding: what is left is table 1, an array in itself.
    assert plan.balance.without == ("edge=16", "padding=valid")
    assert plan.balance.strength == plan.balance.wanted_strength == 2
    assert "strength 2 of 2 is left" in str(plan.balance)
    assert all(case.parameters["edge"] == 16 or case.parameters["padding"] == "valid" for case in rejected)
    assert all(case.process and case.condition and case.rejection.layer for case in rejected)
    assert all(case.process in str(case) and "edge=" in str(case) for case in rejected)
    assert sum(case.role == "held_out" for case in plan.cases) == 3
    assert plan.cost().cases == len(plan.cases)


def test_rows_that_cannot_be_built_are_replaced_evenly(tmp_path: Path) -> None:
    """A rule of one's own forbids one pair of levels; everything else is met as evenly as it can."""
    (tmp_path / "rule.sofl").write_text(
        "process Sizes(batch_size, depth: nat) ok: bool\npre not (batch_size = 16 and depth = 19)\n"
        "post ok = true end_process"
    )
    rule = '[specification]\nfiles = ["rule.sofl"]\ncase = "Sizes"\n'
    plan = plan_campaign(read_campaign(written(tmp_path, SMALL + rule)))
    array = [case for case in plan.cases if case.role == "array"]
    assert len({case.key for case in array}) == 16
    assert not any(case.parameters["batch_size"] == 16 and case.parameters["depth"] == 19 for case in array)
    balance = plan.balance
    assert balance is not None
    assert (balance.rejected, balance.replaced, balance.all_pairs, balance.possible_pairs) == (1, 1, 48, 47)
    assert balance.pairs >= 45
    assert balance.strength == 0  # two levels are met once too often or too seldom
    rejection = next(case for case in plan.rejected if case.role == "array")
    assert (rejection.process, rejection.condition) == ("Sizes", "not (batch_size = 16 and depth = 19)")


def test_listing_1_filters_a_campaign(tmp_path: Path) -> None:
    (tmp_path / "listing1.sofl").write_text(LISTING_1)
    # A stride of 2 over an even edge leaves a half window: the paper's equation has no whole answer.
    rule = '[specification]\nfiles = ["listing1.sofl"]\nconv = "ShapeVerify"\n'
    assert not plan_campaign(read_campaign(written(tmp_path, SMALL + rule))).rejected
    text = 'template = "resnet"\nheld_out = 0\n[factors]\nbatch_size = [2, 4]\nedge = [32, 64]\n' + rule
    with pytest.raises(BadInput, match=r"ShapeVerify rejects it.*W1 = 32"):
        plan_campaign(read_campaign(written(tmp_path, text)))


def test_a_rule_that_asks_for_what_a_layer_has_not(tmp_path: Path) -> None:
    (tmp_path / "listing1.sofl").write_text(LISTING_1)
    rule = '[specification]\nfiles = ["listing1.sofl"]\nlinear = "ShapeVerify"\n'
    with pytest.raises(BadInput, match=r"input of ShapeVerify for a layer of kind 'linear', 'W1'"):
        plan_campaign(read_campaign(written(tmp_path, SMALL + rule)))
    with pytest.raises(OomcastError, match=r"unknown kind of layer 'convolution'"):
        read_campaign(written(tmp_path, SMALL + rule.replace("linear", "convolution")))


def test_a_set_of_seeds_is_one_campaign(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_JOB)
    text = """
    template = ["vgg", "resnet", "mlp"]
    held_out = 4
    [factors]
    batch_size = [2, 4, 8]
    classes = [10, 20, 40]
    [fixed]
    edge = 32
    features = 64
    """
    campaign = read_campaign(written(tmp_path, text))
    plan = plan_campaign(campaign)
    assert plan.plan.array is not None
    assert plan.plan.array.notation == "OA(9, 3, 3, 2) = L9(3³)"
    array = [case for case in plan.cases if case.role == "array"]
    assert {name: sum(case.template == name for case in array) for name in ("vgg", "resnet", "mlp")} == {
        "vgg": 3,
        "resnet": 3,
        "mlp": 3,
    }
    for case in plan.cases:
        assert case.parameters["template"] == case.template
        assert ("edge" in case.parameters) == (case.template != "mlp")
        compile(case.source, case.key, "exec")
    with_job = text.replace('"mlp"]', '"mlp"]\njob = "own.py"').replace("classes = [10, 20, 40]", "")
    mixed = read_campaign(written(tmp_path, with_job))
    assert [seed.name for seed in mixed.seeds][-1] == "own.py"
    with pytest.raises(OomcastError, match=r"unknown parameter of template 'vgg' 'wide'; did you mean width"):
        read_campaign(written(tmp_path, with_job.replace("batch_size = [2, 4, 8]", "wide = [2, 4]")))


@pytest.mark.parametrize(
    ("levels", "written_as"),
    [
        ({"batch_size": (4, 8, 16, 32), "depth": (11, 13, 16, 19), "convolutions": (8, 10, 13, 16)},
         "OA(16, 3, 4, 2) = L16(4³)"),
        ({"batch_size": (4, 8, 16, 32), "norm": ("none", "batch")}, "OA(8, 2, 4¹·2¹, 2) = L8(4¹·2¹)"),
    ],
)  # fmt: skip
def test_the_notation_of_the_papers(small: Campaign, levels: dict[str, tuple[Value, ...]], written_as: str) -> None:
    factors = tuple(Factor(name, values) for name, values in levels.items())
    array = plan_campaign(replace(small, factors=factors, held_out=0)).plan.array
    assert array is not None
    assert array.notation == written_as


def test_a_campaign_of_impossible_cases_says_so(small: Campaign) -> None:
    with pytest.raises(BadInput, match=r"no case that can be built.*does not hold"):
        plan_campaign(replace(small, fixed={**small.fixed, "edge": 8}))


def test_too_many_held_out_cases(small: Campaign) -> None:
    with pytest.raises(BadInput, match=r"only 48 other.*held_out_factors"):
        plan_campaign(replace(small, held_out=49))


def test_a_memory_limit_below_one_case(small: Campaign) -> None:
    limits = replace(small.limits, bytes=100_000)
    with pytest.raises(BadInput, match=r"limits.bytes.*below one case.*weights and gradients"):
        plan_campaign(replace(small, limits=limits))
    plan_campaign(replace(small, limits=replace(limits, bytes=GiB)))


def test_an_adaptive_campaign_goes_on_where_it_is_least_sure(small: Campaign) -> None:
    campaign = replace(small, method="adaptive", runs=12)
    plan = plan_campaign(campaign)
    assert (len(plan.cases), plan.plan.to_come, plan.cost().cases) == (7 + 3, 5, 15)
    done: list[Case] = [case.parameters for case in plan.cases if case.role == "array"]
    held_out = {varied(campaign, case.parameters) for case in plan.cases if case.role == "held_out"}

    def unsure(cases: Sequence[Case]) -> list[float]:
        return [math.prod(float(case[factor.name]) for factor in campaign.factors) for case in cases]

    for _ in range(campaign.runs - len(done)):
        case = next_campaign_case(campaign, done, unsure)
        assert case is not None
        assert case.role == "adaptive"
        assert varied(campaign, case.parameters) not in held_out
        assert case.parameters not in done
        done.append(case.parameters)
    assert varied(campaign, done[7]) in {(16, 19, 13), (16, 16, 16), (8, 19, 16), (16, 19, 16)}


def test_an_array_can_be_added_to(small: Campaign) -> None:
    done = [case.parameters for case in campaign_cases(small) if case.role == "array"]
    held_out = [case.parameters for case in campaign_cases(small) if case.role == "held_out"]
    seen = []
    while (case := next_campaign_case(small, [*done, *seen])) is not None and len(seen) < 4:
        seen.append(case.parameters)
    assert len(seen) == 4
    assert not any(parameters in done or parameters in held_out for parameters in seen)


def test_an_adaptive_campaign_ends_when_nothing_is_left(small: Campaign) -> None:
    campaign = replace(small, factors=(Factor("batch_size", (1, 2, 3, 4)),), held_out=1, method="adaptive", runs=3)
    done: list[Case] = [case.parameters for case in campaign_cases(campaign) if case.role == "array"]
    assert len(done) == 3
    assert next_campaign_case(campaign, done) is None


MISTAKES = {
    "no template": ("[factors]\nbatch_size = [1, 2]", "template: is missing"),
    "unknown template": (SMALL.replace('"vgg"', '"vg"'), r"template: unknown template 'vg'; did you mean vgg"),
    "no factors": ('template = "vgg"', "factors: is missing"),
    "empty factors": ('template = "vgg"\n[factors]', "factors: has no factor"),
    "unknown factor": (SMALL.replace("depth =", "dept ="), "factors.dept: unknown parameter.*did you mean depth"),
    "level not taken": (
        SMALL.replace("[8, 10, 13, 16]", "[3, 10]"),
        r"factors.convolutions: .*does not take 3 .*from 5 to 400",
    ),
    "level of another type": (
        SMALL.replace("[8, 10, 13, 16]", '["many"]'),
        "factors.convolutions: .*does not take 'many'",
    ),
    "true is no number": (SMALL.replace("[8, 10, 13, 16]", "[true]"), "factors.convolutions: .*does not take True"),
    "a list as level": (SMALL.replace("[8, 10, 13, 16]", "[[8]]"), "factors.convolutions: .*does not take"),
    "no list": (SMALL.replace("[8, 10, 13, 16]", "8"), "factors.convolutions: must be a list"),
    "level twice": (SMALL.replace("[8, 10, 13, 16]", "[8, 8]"), "factors.convolutions: .*twice"),
    "factors no table": ('template = "vgg"\nfactors = 3', "factors: must be a table"),
    "factor twice": (SMALL + "[layer_factors]\ndepth = [11, 13]", r"layer_factors.depth: is also under \[factors\]"),
    "factor also fixed": (SMALL + "depth = 11", r"factors.depth: is also under \[fixed\]"),
    "fixed not taken": (SMALL.replace("edge = 32", "edge = 0"), "fixed.edge: .*does not take 0"),
    "unknown key": ("repetition = 2\n" + SMALL, "repetition: unknown key.*did you mean repetitions"),
    "unknown plan key": (SMALL + "[plan]\nstrenght = 2", "plan.strenght: unknown key.*strength"),
    "unknown limit": (SMALL + "[limits]\nsecond = 2", "limits.second: unknown key.*seconds"),
    "unknown method": (SMALL + '[plan]\nmethod = "grid"', "plan.method: .*orthogonal, full, blocks, random, adaptive"),
    "unknown framework": ('framework = "mxnet"\n' + SMALL, "framework: .*torch, keras"),
    "unknown device": ('device = "a10000"\n' + SMALL, "device: .*Or write cpu"),
    "wrong type": ('repetitions = "two"\n' + SMALL, "repetitions: must be a whole number"),
    "true as a number": ("steps = true\n" + SMALL, "steps: must be a whole number"),
    "too small": ("steps = 0\n" + SMALL, "steps: must be a whole number from 1"),
    "no runs": (SMALL + '[plan]\nmethod = "random"', "plan.runs: .*number of runs"),
    "too many runs": (SMALL + '[plan]\nmethod = "random"\nruns = 65', "plan.runs: .*only 64 combinations"),
    "runs for an array": (SMALL + "[plan]\nruns = 12", "plan.runs: counts for random, adaptive and bayesian"),
    "blocks for an array": (SMALL + "[[plan.blocks]]\ndepth = [11]", "plan.blocks: counts for plans of method"),
    "no blocks": (SMALL + '[plan]\nmethod = "blocks"', "plan.blocks: .*at least one block"),
    "block of other levels": (
        SMALL + '[plan]\nmethod = "blocks"\n[[plan.blocks]]\ndepth = [12]',
        "plan.blocks: a block has levels of 'depth' that no factor",
    ),
    "blocks no tables": (SMALL + '[plan]\nmethod = "blocks"\nblocks = 3', "plan.blocks: must be tables"),
    "strength 1": (SMALL + "[plan]\nstrength = 1", "plan.strength: must be a whole number from 2"),
    "impossible array": (
        'template = "mlp"\n[plan]\nstrength = 4\n[factors]\n'
        + "\n".join(f"{name} = {list(range(1, 24))}" for name in ("batch_size", "features", "depth", "width")),
        "plan.method: no orthogonal array of strength 4",
    ),
    "seconds below one case": (SMALL + "[limits]\nseconds = 0.2", "limits.seconds: 0.2 seconds are below one case"),
    "total below one case": (
        SMALL + "[limits]\nseconds = 60\ntotal_seconds = 30",
        "limits.total_seconds: 30 is below one case",
    ),
    "unreadable size": (SMALL + '[limits]\nbytes = "much"', "limits.bytes: .*24GiB"),
    "negative size": (SMALL + "[limits]\nbytes = -1", "limits.bytes: must be a size"),
    "held out of nothing": (SMALL + "[held_out_factors]\nedge = [64]", "held_out_factors.edge: is not a factor"),
    "no TOML": ("template = vgg", "is not a TOML file"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_file_and_key(mistake: str, tmp_path: Path) -> None:
    text, words = MISTAKES[mistake]
    path = written(tmp_path, text)
    with pytest.raises(BadInput, match=f"try.toml:? .*{words}") as caught:
        read_campaign(path)
    assert "\n" not in str(caught.value).strip()
    assert caught.value.exit_code == 2


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_campaign(tmp_path / "none.toml")
    with pytest.raises(BadInput, match="cannot be read"):
        read_campaign(tmp_path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="not a TOML file"):
        read_campaign(path)


toml_values = st.recursive(
    st.one_of(st.integers(-3, 70), st.floats(-2, 100), st.booleans(), st.sampled_from(["max", "", "vgg", "8GiB"])),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


def as_toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.sampled_from(["", "factors", "layer_factors", "fixed", "plan", "limits", "held_out_factors"]),
    st.sampled_from(["depth", "pool", "strength", "method", "runs", "seconds", "bytes", "steps", "held_out", "device"]),
    toml_values,
)
def test_no_value_brings_a_traceback(tmp_path: Path, table: str, key: str, value: object) -> None:
    head = f"{key} = {as_toml(value)}\n" if not table else ""
    tail = f"[{table}]\n{key} = {as_toml(value)}\n" if table else ""
    text = 'template = "vgg"\n' + head + ("" if table == "factors" else "[factors]\nbatch_size = [1, 2]\n") + tail
    try:
        campaign = read_campaign(written(tmp_path, text))
    except OomcastError as error:
        told = str(error)
    else:
        told = f"try.toml is a campaign of {campaign.template}"
    assert "try.toml" in told
