"""The command lines by which people start their scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomcast.errors import BadInput
from oomcast.spec import Effort, Place, Script, Spec, read_launch


@pytest.fixture(autouse=True)
def in_a_folder_with_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "settings.yaml").write_text("mixed_precision: 'bf16'\nnum_processes: 1\nfsdp_config:\n  a: b\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "train.py --lr 1",
        "python train.py --lr 1",
        "/usr/bin/python3.11 -u -W ignore train.py --lr 1",
        "torchrun train.py --lr 1",
        "torchrun --standalone --nproc_per_node=1 --nnodes 1 train.py --lr 1",
        "python -m torch.distributed.run --nproc-per-node gpu train.py --lr 1",
        "accelerate launch --mixed_precision bf16 --multi_gpu --num_processes=1 train.py --lr 1",
        "accelerate launch --config_file settings.yaml train.py --lr 1",
        "env A=1 python train.py --lr 1",
    ],
)
def test_every_way_to_start_a_script_is_read(line: str) -> None:
    launch = read_launch(line.split())
    assert (launch.target, launch.arguments, launch.processes) == ("train.py", ("--lr", "1"), 1)
    assert not launch.is_module


@pytest.mark.parametrize(
    "line", ["python -m pkg.train a", "torchrun -m pkg.train a", "accelerate launch -m pkg.train a"]
)
def test_modules_are_read_as_modules(line: str) -> None:
    launch = read_launch(line.split())
    assert launch.is_module
    assert (launch.target, launch.arguments) == ("pkg.train", ("a",))


def test_what_a_launcher_sets_is_set() -> None:
    assert read_launch(["torchrun", "--nproc_per_node", "4", "--nnodes", "2", "train.py"]).processes == 8
    assert read_launch(["torchrun", "train.py"]).variables["WORLD_SIZE"] == "1"
    words = ("--num_processes", "8", "--num_machines", "2", "--mixed_precision", "fp16", "train.py")
    launch = read_launch(["A=1", "accelerate", "launch", *words])
    assert (launch.for_accelerate, launch.processes, launch.nodes) == (words, 8, 2)
    assert launch.variables == {"A": "1"}
    assert read_launch(["A=1", "B=x=y", "train.py"]).variables == {"A": "1", "B": "x=y"}


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("", "no script is given"),
        ("absent.py", "there is no script 'absent.py'"),
        ("python", "without a script"),
        ("python -c pass", "put it in a file"),
        ("torchrun --nproc_per_node 2", "names no script"),
        ("torchrun --nproc_per_node x train.py", "whole number"),
        ("accelerate config", "only accelerate launch"),
        ("accelerate launch --config_file none.yaml train.py", "cannot be read"),
        ("deepspeed train.py", "give the script itself"),
        (".", "without a __main__.py"),
    ],
)
def test_other_lines_are_refused_in_a_sentence(line: str, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        read_launch(line.split())


def test_a_script_passes_through_json_with_its_line() -> None:
    script = Script(("train.py", "--name", "two words"), max_steps=4)
    spec = Spec.of_script(script, Place("t4"), Effort())
    assert Spec.from_dict(spec.as_dict()) == spec
    assert spec.workload.job.reference == "train.py --name 'two words'"


def test_a_command_of_a_package_is_its_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`yolo train …`: a file on the PATH whose first line names Python."""
    for name, first in (("yolo", "#!/opt/venv/bin/python3.11"), ("other", "#!/bin/sh")):
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f"{first}\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    launch = read_launch(["yolo", "train", "epochs=2"])
    assert (launch.target, launch.arguments) == (str(tmp_path / "bin" / "yolo"), ("train", "epochs=2"))
    with pytest.raises(BadInput, match="'other' is a command that is no Python script"):
        read_launch(["other"])
