"""Commands as they are found: the list, near matches, what has moved, and what is loaded for them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from oomcast.cli import main
from oomcast.cli.entry import COMMANDS, GROUP, _listed
from oomcast.devices import all_stacks
from oomcast.estimation import estimator_names
from oomcast.zoo import names

HEAVY = (
    "importlib.metadata",
    "numpy",
    "oomcast.capture",
    "oomcast.devices",
    "oomcast.estimation",
    "oomcast.methods",
    "oomcast.report",
    "oomcast.simulate",
    "pathlib",
    "rich",
    "torch",
)


def loaded_by(*words: str) -> set[str]:
    """Which of the heavy modules a process has loaded when the command line has done this."""
    code = (
        "import sys\nfrom oomcast.cli import main\n"
        f"try:\n    main({list(words)!r})\nexcept SystemExit:\n    pass\n"
        f"print('loaded:', *(m for m in {HEAVY!r} if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_loads_nothing_that_takes_long(command: str) -> None:
    if importlib.util.find_spec(f"oomcast.cli.{command}") is None:
        pytest.skip(f"the file of oomcast {command} is not there yet")
    assert loaded_by(command, "--help") == set()


def test_the_list_of_commands_needs_no_mail_parser_and_is_whole() -> None:
    assert "importlib.metadata" not in loaded_by("--help")
    assert set(_listed().items()) >= {(entry.name, entry.value) for entry in metadata.entry_points(group=GROUP)}


def test_commands_are_read_from_the_files_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "their_package-1.0.dist-info"
    package.mkdir()
    text = f"[console_scripts]\nthem = them:main\n[{GROUP}]\nours = them.command\nmore=them.more\n[other]\nno = them\n"
    (package / "entry_points.txt").write_text(text, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "absent.zip")])
    assert _listed() == {"more": "them.more", "ours": "them.command"}


def test_the_proof_can_fail() -> None:
    assert {"rich", "oomcast.devices", "oomcast.report"} <= loaded_by("devices")
    assert {"oomcast.methods", "oomcast.capture"} <= loaded_by("estimate", "--estimator", "tbem", "--help")


def test_bare_oomcast_shows_help_with_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, summary in COMMANDS.items():
        assert f" {name} {summary}" in shown
    for name in ("campaign", "equation", "dataset"):
        assert f" {name} " in shown
    assert "cannot be loaded" not in shown


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["estimat"], "unknown command 'estimat'; did you mean estimate"),
        (["xyzzy"], "unknown command 'xyzzy'. See oomcast --help."),
        (["estimate", "zoo:mlp", "--batch-size", "1", "--device", "t4", "--optimiser", "sgd"], "mean --optimizer"),
        (["estimate", "zoo:mlp", "extra", "--batch-size", "1", "--device", "t4"], "unrecognized arguments: extra"),
        (
            ["estimate", "zoo:mlp", "--batch-size", "1", "--device", "t4", "--campaign", "x"],
            "--campaign is an option of the estimator tbem; add --estimator tbem.",
        ),
        (["bench", "accuracy", "."], "python -m lab accuracy"),
        (["bench"], "oomcast accuracy shows recorded results"),
        (["environment", "make", "mxnet"], "oomcast venv makes"),
        (["models", "resnet5"], "did you mean resnet50"),
        (["environments", "torch-2.8-cu12"], "did you mean torch-2.8-cu128"),
        (["environments", "xyzzy"], "There are"),
        (
            ["estimate", "zoo:mlp", "--batch-size", "1", "--device", "t4", "--environment", "xyzzy"],
            "torch-2.8-cu128, ",
        ),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sentence in captured.err
    assert len(captured.err.splitlines()) == 1


def test_both_spellings_of_a_flag_and_no_change_behind_two_dashes() -> None:
    from oomcast.cli.parser import Parser

    parser = Parser()
    parser.add_argument("--batch-size")
    parser.add_argument("rest", nargs="*")
    options = parser.parse_args(["--batch_size", "3", "--", "--as_it_is"])
    assert (options.batch_size, options.rest) == ("3", ["--as_it_is"])


def test_the_options_of_an_estimator_come_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--estimator", "equation"], ["--estimator=equation"]):
        with pytest.raises(SystemExit) as left:
            main(["estimate", *words, "--help"])
        assert left.value.code == 0
        assert "--equation FILE" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["estimate", "--help"])
    assert "--equation FILE" not in capsys.readouterr().out


def test_estimators_are_listed_with_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimators", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert tuple(listed) == estimator_names()
    assert [option["flag"] for option in listed["tbem"]["options"]] == ["--campaign"]
    assert main(["estimators"]) == 0
    assert "--campaign FILE" in capsys.readouterr().out


def test_models_lists_the_zoo_and_the_other_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    text = capsys.readouterr().out
    for word in ("zoo:resnet50", "3x224x224", "causal-lm", "timm:", "torchvision:", "hf:", "template:", ".onnx"):
        assert word in text
    assert main(["models", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [model["name"] for model in told["zoo"]] == list(names())
    assert main(["models", "zoo:bert-base"]) == 0
    assert len(capsys.readouterr().out.strip().splitlines()) == 2


def test_environments_lists_the_stacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["environments", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert set(listed) == {stack.name for stack in all_stacks()}
    stack = listed["torch-2.8-cu128"]
    assert (stack["framework"], stack["cuda"], stack["default"]) == ("torch", "12.8", True)
    assert stack["versions"] == "2.5 to below 2.11"
    assert main(["environments"]) == 0
    assert "by name only" in capsys.readouterr().out
    assert main(["environments", "torch-2.6", "--json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == ["torch-2.8-cu128"]


def test_the_page_of_the_command_line_has_every_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    commands = {*COMMANDS, *(entry.name for entry in metadata.entry_points(group=GROUP))}
    assert {name for name in commands if f"| [`{name}`](" not in page} == set()
