"""`--checkpoint-modules` as a user meets it: read alike by every command, told where it is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomcast.advise.pack import read_jobs
from oomcast.cli import main
from oomcast.errors import BadInput
from oomcast.spec import Workload

TINY = ["estimate", "zoo:vit_t_16", "--batch-size", "4", "--device", "rtx-3060", "--steps", "2"]


def total(capsys: pytest.CaptureFixture[str], *arguments: str) -> int:
    assert main([*TINY, *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    return int(found["peak_allocated"])


def test_named_blocks_are_all_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    everything = total(capsys, "--checkpointing")
    assert total(capsys, "--checkpoint-modules", "blocks.*") == everything
    assert total(capsys, "--checkpoint-modules", "blocks.0, blocks.1") >= everything


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--checkpointing", "--checkpoint-modules", "blocks.0"], "exclude each other"),
        (["--checkpoint-modules", "block.0"], "unknown module 'block.0'; did you mean blocks.0"),
        (["--checkpoint-modules", ""], "empty name"),
    ],
)
def test_wrong_names_are_told(capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str) -> None:
    assert main([*TINY, *arguments]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert sentence in told


def test_the_page_and_the_terminal_say_which(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--checkpoint-modules", "blocks.0,blocks.1"]) == 0
    assert "checkpointing: blocks.0, blocks.1" in " ".join(capsys.readouterr().out.split())


def test_names_survive_the_way_through_json() -> None:
    workload = Workload.create("zoo:vit_t_16", checkpointing=["blocks.0", "head"])
    assert Workload.from_dict(json.loads(json.dumps(workload.as_dict()))) == workload
    assert Workload.create("zoo:vit_t_16", checkpointing="blocks.0,head") == workload
    assert Workload.create("zoo:vit_t_16", checkpointing=[]) == Workload.create("zoo:vit_t_16")


def test_a_job_list_may_name_modules(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    written = '[[job]]\nname = "a"\njob = "zoo:vit_t_16"\nbatch_size = 8\ncheckpointing = '
    path.write_text(written + '"blocks.*"')
    assert read_jobs(path).jobs[0].options["checkpointing"] == ("blocks.*",)
    path.write_text(written + "true")
    assert read_jobs(path).jobs[0].options["checkpointing"] is True
    path.write_text(written + "3")
    with pytest.raises(BadInput, match="true, false, or names of modules"):
        read_jobs(path)
