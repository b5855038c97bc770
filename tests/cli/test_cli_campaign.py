from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from campaign_builder import ENVIRONMENT, SMALL, fill_store, made_up_rows, small_campaign, write_small
from oomcast.cli import main
from oomcast.methods.tbem import fit_gap, plan_campaign, read_campaign, write_gap
from oomcast.methods.tbem.templates import TEMPLATES

MANY = list(range(1, 301))
"""An array of two such factors would have 90,000 runs."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    printed = capsys.readouterr().err
    assert printed.startswith("oomcast: ")
    assert "Traceback" not in printed
    assert len(printed.strip().splitlines()) == 1
    return printed


@pytest.mark.parametrize("template", list(TEMPLATES))
def test_new_writes_a_file_that_can_be_planned(template: str, folder: Path) -> None:
    assert main(["campaign", "new", template, "--framework", "keras"]) == 0
    campaign = read_campaign(folder / f"{template}.toml")
    assert campaign.framework == "keras"
    assert len(campaign.factors) == 4
    plan = plan_campaign(campaign)
    assert len(plan.cases) == 24
    assert plan.balance is None or not plan.balance.without  # every level can be built
    assert (campaign.limits.seconds or 0) * len(plan.cases) < 3600


def test_new_overwrites_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mlp.toml").write_text("mine")
    assert main(["campaign", "new", "mlp"]) == 2
    assert "mlp.toml exists" in one_sentence(capsys)
    assert (folder / "mlp.toml").read_text() == "mine"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("width =", "wdth =", "did you mean width"),
        ("[32, 256]", "[32, -1]", "it takes a whole number from"),
        ("held_out = 2", "held_out = 99", "only 4 other configurations are left"),
        ("seconds = 60", 'bytes = "1KiB"', "is below one case"),
        ("seconds = 60", "seconds = 0.1", "below one case"),
        ("[8, 64]\nwidth = [32, 256]", f"{MANY}\nwidth = {MANY}", "plan.method"),
        ("[factors]", "[factors", "is not a TOML file"),
        ('template = "mlp"', 'template = "mpl"', "did you mean mlp"),
    ],
)
@pytest.mark.parametrize("action", ["plan", "run"])
def test_bad_campaigns_are_one_sentence(
    action: str, old: str, new: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_small(folder, SMALL.replace(old, new))
    assert main(["campaign", action, str(path)]) == 2
    printed = one_sentence(capsys)
    assert words in printed
    assert not path.with_suffix(".gap.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "none.toml"], "cannot be read"),
        (["plan", "small.toml", "--svg", "x.svg"], "add --screen"),
        (["plan", "small.toml", "--store", "none.db"], "there is no store none.db"),
        (["run", "small.toml", "--engine", "cloud"], "local, ray or slurm"),
        (["run", "small.toml", "--address", "auto"], "add --engine ray"),
        (["run", "small.toml", "--python", "python3"], "write it like keras=PATH"),
        (["run", "small.toml", "--python", "torch=no-such-python"], "cannot be run"),
        (["run", "small.toml", "--workers", "0"], "at least 1"),
        (["run", "small.toml", "--threads", "0"], "at least 1"),
        (["run", "small.toml", "--store", "mysql://x/y"], "cannot keep anything"),
        (["status", "small.toml"], "run the campaign first"),
        (["fit", "small.toml"], "run the campaign first"),
        (["report", "small.toml"], "oomcast campaign fit small.toml"),
        (["new", "vgg", "--framework", "jax"], "There are torch and keras"),
    ],
)
def test_bad_options_are_one_sentence(
    arguments: list[str], words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_small(folder)
    assert main(["campaign", *arguments]) == 2
    assert words in one_sentence(capsys)


def test_missing_package_is_told_with_its_extra(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small(folder)
    for name in [name for name in sys.modules if name.startswith("oomcast.methods.measure")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    assert main(["campaign", "status", "small.toml"]) == 2
    assert "pip install 'oomcast[campaign]'" in one_sentence(capsys)


def test_plan_shows_the_array_and_renders_its_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_small(folder)
    assert main(["campaign", "plan", "small.toml", "--render", "sources"]) == 0
    printed = capsys.readouterr().out
    assert "orthogonal array OA(4, 3, 2, 2) = L4(2³), instead of 8 combinations" in printed
    files = sorted(path.name for path in (folder / "sources").iterdir())
    assert files == [
        "array_001.py",
        "array_002.py",
        "array_003.py",
        "array_004.py",
        "held_out_005.py",
        "held_out_006.py",
    ]
    compile((folder / "sources" / files[0]).read_text(), files[0], "exec")


def test_plan_names_process_and_condition_of_what_it_rejects(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    factors = "[factors]\nbatch_size = [1, 2]\nedge = [16, 32]\nlevels = [4, 5]\n"
    text = f'template = "unet3d"\n{factors}[plan]\nmethod = "full"\n'
    assert main(["campaign", "plan", str(write_small(folder, text)), "--json"]) == 0
    rejected = json.loads(capsys.readouterr().out)["rejected"]
    assert rejected
    assert all(one["process"] == "BatchNormalization" and one["condition"] for one in rejected)


def test_screening_ranks_by_captures_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_small(folder)
    assert main(["campaign", "plan", "small.toml", "--screen", "--svg", "screen.svg", "--json"]) == 0
    ranked = json.loads(capsys.readouterr().out)["screening"]
    assert {one["factor"] for one in ranked} == {"batch_size", "width", "depth"}
    assert ranked[0]["factor"] == "width"
    assert sum(one["share"] for one in ranked) <= 1 + 1e-9
    assert (folder / "screen.svg").read_text().startswith("<svg")
    assert not path.with_suffix(".db").exists()


def test_from_store_to_estimate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_small(folder)
    fill_store(path.with_suffix(".db"), plan_campaign(read_campaign(path)).cases)
    assert main(["campaign", "status", "small.toml"]) == 0
    assert "6 of 6 done" in capsys.readouterr().out
    assert main(["campaign", "fit", "small.toml", "--json"]) == 0
    fitted = json.loads(capsys.readouterr().out)
    assert fitted["others"]["cases"] == 2
    assert fitted["others"]["gap"] < fitted["others"]["static"]
    assert main(["campaign", "report", "small.toml"]) == 0
    assert "small" in (folder / "small.html").read_text()
    capsys.readouterr()
    job = ["estimate", "template:mlp,width=64,depth=4", "--batch-size", "16", "--device", "cpu", "--json"]
    assert main([*job, "--estimator", "tbem", "--campaign", "small.gap.json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["device_total"] == sum(answer["breakdown"].values())
    assert answer["device"] == "cpu"


def test_second_fit_captures_nothing_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_small(folder)
    campaign = small_campaign(folder)
    write_gap(fit_gap(campaign, made_up_rows(campaign), ENVIRONMENT.as_dict()), folder / "small.gap.json")
    fill_store(path.with_suffix(".db"), plan_campaign(campaign).cases)

    def refuse(*_: object) -> None:
        raise AssertionError("captured again")

    monkeypatch.setattr("oomcast.methods.tbem.gap.case_trace", refuse)
    assert main(["campaign", "fit", "small.toml"]) == 0


def test_report_compares_campaigns_and_knows_its_factors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = small_campaign(folder)
    write_gap(fit_gap(campaign, made_up_rows(campaign), ENVIRONMENT.as_dict()), folder / "small.gap.json")
    assert main(["campaign", "report", "small.gap.json", "small.toml", "--output", "both.html"]) == 0
    assert (folder / "both.html").read_text().count("<h2>small</h2>") == 2
    assert main(["campaign", "report", "small.toml", "--against", "dept"]) == 2
    assert "did you mean depth" in one_sentence(capsys)
    assert main(["campaign", "report", "small.toml", "--against", "width", "--output", "width.html"]) == 0
    assert "Memory against width" in (folder / "width.html").read_text()
