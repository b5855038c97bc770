"""What the benchmark of public scripts says of a row beside oomcast's answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.scripts.command import Outcome, summary
from lab.scripts.what_follows import what_follows


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder / "train.py"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"train": "loss.backward()\nsave_image(picture)\nplot.save('a.png')"}, ()),
        ({"train": "with torch.no_grad():\n    pass"}, ("evaluation",)),
        ({"train": "import torch\ntorch.save(model, 'm.pt')"}, ("saving",)),
        (
            {"train": "from loop import run", "loop": "import keep\nmodel.eval()", "keep": "m.save_pretrained('x')"},
            ("evaluation", "saving"),
        ),
    ],
)
def test_what_a_script_has_is_read_from_its_code(
    tmp_path: Path, files: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert what_follows(write(tmp_path, **files), [tmp_path]) == expected


def test_imports_that_go_round_and_broken_files_end(tmp_path: Path) -> None:
    script = write(tmp_path, train="import other", other="import train\nimport broken", broken="def (")
    assert what_follows(script, [tmp_path]) == ()


@pytest.mark.parametrize(
    ("said", "lacks"),
    [
        ("it raised URLError: <urlopen error [Errno -2] Name or service not known> (a.py:1)", "the network"),
        ("it needs the package fairscale, which is not installed here (a.py:1)", "a package"),
        ("it raised ValueError: Expected input batch_size (2) to match target batch_size (60). (a.py:75)", ""),
    ],
)
def test_what_a_machine_lacks_is_told_from_our_failures(said: str, lacks: str) -> None:
    assert Outcome("row", said=said).lacks == lacks
    assert Outcome("row", steps=3, said=said).lacks == ""


@pytest.mark.parametrize("update", ["p.data.add_(p.grad, alpha=-0.1)", "optimizer.step()"])
def test_two_steps_on_meta_end_whoever_updates_the_parameters(tmp_path: Path, update: str) -> None:
    lines = ["import torch", "model = torch.nn.Linear(4, 4).cuda()"]
    lines += ["optimizer = torch.optim.SGD(model.parameters())"] if "optimizer" in update else []
    lines += ["while True:", "    model(torch.ones(2, 4, device='cuda')).sum().backward()"]
    lines += [f"    for p in model.parameters(): {update}"]
    (tmp_path / "train.py").write_text("\n".join(lines))
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", "lab.scripts.on_meta", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}, timeout=300)
    assert done.returncode == 0


def test_rows_that_have_nothing_to_survive_count_for_neither_side() -> None:
    rows = [
        Outcome("both", 3, "steady", True, True, has=("evaluation", "saving")),
        Outcome("half", 3, "steady", True, False, has=("evaluation", "saving")),
        Outcome("died", 3, "failed", True, False, has=("evaluation",)),
        Outcome("none", 3, "steady"),
        Outcome("fails", said="it raised URLError: no", has=("saving",)),
    ]
    text = summary(rows)
    assert "4 of 5 give a full step (1 others lack" in text
    assert "3 evaluate or save by their code: 3 were seen to, 2 in all that they have" in text
    assert "2 were seen to and survived" in text
