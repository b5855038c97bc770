from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaign_builder import ENVIRONMENT, MIB, made_up_rows, small_campaign
from oomcast.errors import BadInput, UnreadableFile
from oomcast.estimation import estimate
from oomcast.methods.tbem import Gap, StaticValue, fit_gap, plan_campaign, read_gap, write_gap


@pytest.fixture
def gap(tmp_path: Path) -> Gap:
    campaign = small_campaign(tmp_path)
    return fit_gap(campaign, made_up_rows(campaign), ENVIRONMENT.as_dict())


@pytest.fixture
def gap_file(gap: Gap, tmp_path: Path) -> Path:
    return write_gap(gap, tmp_path / "small.gap.json")


def test_gap_of_the_trace_is_found_where_the_factors_do_not_tell_it(gap: Gap) -> None:
    assert gap.features == "static"
    mape = gap.mape(gap.checks)
    assert mape.cases == 2
    assert mape.gap < 1e-6
    assert mape.gap < mape.direct / 2
    assert mape.gap < mape.static / 2


def test_held_out_rows_change_nothing_in_the_fit(gap: Gap, tmp_path: Path) -> None:
    campaign = small_campaign(tmp_path)
    fitted = fit_gap(campaign, gap.runs, ENVIRONMENT.as_dict())
    row = gap.checks[0]
    assert fitted.predict(row.parameters, row.static) == gap.predict(row.parameters, row.static)
    assert fitted.predict_direct(row.parameters) == gap.predict_direct(row.parameters)


def test_features_can_be_named_and_every_kind_is_judged(gap: Gap, tmp_path: Path) -> None:
    campaign = small_campaign(tmp_path)
    named = fit_gap(campaign, gap.rows, ENVIRONMENT.as_dict(), "factors")
    assert named.features == "factors"
    assert set(named.mape(named.checks).by_features) == {"static", "factors", "both", "bayesian"}
    with pytest.raises(BadInput, match="not of 'colours'"):
        fit_gap(campaign, gap.rows, ENVIRONMENT.as_dict(), "colours")


def test_too_few_runs_are_told(gap: Gap, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has 3 finished cases to learn from; at least 4"):
        fit_gap(small_campaign(tmp_path), gap.rows[:3], ENVIRONMENT.as_dict())


def test_estimate_never_falls_below_the_parameters(gap: Gap) -> None:
    nothing = StaticValue(total=0, parameters=900 * MIB, largest=0)
    assert gap.predict(gap.rows[0].parameters, nothing) >= 900 * MIB


def test_file_keeps_everything(gap: Gap, gap_file: Path) -> None:
    again = read_gap(gap_file)
    assert again.rows == gap.rows
    assert again.ratios == gap.ratios
    assert again.factors == gap.factors
    for row in gap.rows:
        assert again.predict(row.parameters, row.static) == gap.predict(row.parameters, row.static)
        assert again.predict_direct(row.parameters) == gap.predict_direct(row.parameters)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "something"}, "is not a file of oomcast campaign fit"),
        ({"schema": 99}, "has schema 99"),
        ({"features": "colours"}, "is damaged"),
        ({"rows": [{}]}, "is damaged"),
        ({"ratios": [-1]}, "is damaged"),
        ({"gap": {}}, "is damaged"),
    ],
)
def test_other_files_are_refused(gap_file: Path, change: dict[str, object], words: str) -> None:
    gap_file.write_text(json.dumps({**json.loads(gap_file.read_text()), **change}))
    with pytest.raises(UnreadableFile, match=words):
        read_gap(gap_file)
    gap_file.write_bytes(b"\x80\x04garbage")
    with pytest.raises(UnreadableFile, match="is not a file of oomcast campaign fit"):
        read_gap(gap_file)


@pytest.mark.parametrize(
    ("job", "batch", "device", "words"),
    [
        ("template:vgg", 8, "cpu", "was fitted to template 'mlp', not to 'vgg'"),
        ("template:mpl", 8, "cpu", "did you mean mlp"),
        ("template:mlp,width=64,depth=3", 4096, "cpu", "batch_size of 8, 64; it tells nothing of 4096"),
        ("template:mlp,width=64,depth=3,norm=batch", 8, "cpu", "with norm = 'none' only"),
        ("template:mlp,wdth=64", 8, "cpu", "did you mean width"),
        ("template:mlp,width", 8, "cpu", "write NAME=VALUE"),
        ("template:mlp,width=wide,depth=3", 8, "cpu", "does not take width = 'wide'"),
        ("template:mlp,width=64,depth=3", 8, "a100-40gb", "was measured on cpu; it tells nothing of a100-40gb"),
        ("zoo:resnet50", 8, "cpu", "takes template:mlp,NAME=VALUE"),
    ],
)
def test_what_the_campaign_does_not_know_is_refused(
    gap_file: Path, job: str, batch: int, device: str, words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        estimate(job, batch_size=batch, device=device, estimator="tbem", campaign=gap_file)


@pytest.mark.parametrize(("level", "words"), [(7777, "no run is at a level of"), (10**400, "no value of a parameter")])
def test_levels_that_no_run_has_are_refused(gap_file: Path, level: int, words: str) -> None:
    plain = json.loads(gap_file.read_text())
    name = next(iter(plain["factors"]))
    plain["factors"][name] = [level + place for place in range(len(plain["factors"][name]))]
    gap_file.write_text(json.dumps(plain))
    with pytest.raises(UnreadableFile, match=words):
        read_gap(gap_file)


def test_options_that_do_not_belong_together_are_refused(gap_file: Path) -> None:
    with pytest.raises(BadInput, match="needs a fitted campaign"):
        estimate("template:mlp", batch_size=8, device="cpu", estimator="tbem")
    with pytest.raises(BadInput, match="takes no campaign"):
        estimate("zoo:resnet50", batch_size=8, device="a100-40gb", campaign=gap_file)
    with pytest.raises(BadInput, match="part of the real runs"):
        estimate("template:mlp", batch_size=8, device="cpu", estimator="tbem", campaign=gap_file, optimizer="adam")


def test_estimate_of_a_template_and_of_its_rendered_file_agree(gap: Gap, gap_file: Path, tmp_path: Path) -> None:
    case = plan_campaign(small_campaign(tmp_path)).cases[0]
    values = case.parameters
    file = tmp_path / "rendered.py"
    file.write_text(case.source)
    batch = int(values["batch_size"])
    written = f"template:mlp,width={values['width']},depth={values['depth']}"
    by_name = estimate(written, batch_size=batch, device="cpu", estimator="tbem", campaign=gap_file)
    by_file = estimate(file, batch_size=batch, device="cpu", estimator="tbem", campaign=gap_file)
    assert by_name.device_total == by_file.device_total
    assert sum(by_name.breakdown.values()) == by_name.device_total
    assert by_name.breakdown["gap"] > 250 * MIB
    assert by_name.low <= by_name.device_total <= by_name.high <= by_name.device_usable == 8 << 30
    assert by_name.coverage < 0.95
    assert any("cannot promise more" in sentence for sentence in by_name.assumptions)
    assert by_name.provenance["estimator"] == "tbem"
    file.write_text(case.source.replace("nn.ReLU", "nn.GELU"))
    with pytest.raises(BadInput, match="was changed after oomcast rendered it"):
        estimate(file, batch_size=batch, device="cpu", estimator="tbem", campaign=gap_file)
    file.write_text("def model(): ...\n")
    with pytest.raises(BadInput, match="was not rendered by oomcast"):
        estimate(file, batch_size=batch, device="cpu", estimator="tbem", campaign=gap_file)
