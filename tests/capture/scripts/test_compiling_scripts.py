"""Scripts that call `torch.compile`: followed as compiled code, or run again as eager code and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import oomcast
from oomcast.estimation import Estimate

SCRIPT = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(256, 256), nn.SiLU(), nn.Tanh())))
    def forward(self, x):
        return self.layers(x)
model = Net().cuda()
{compile}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    (compiled(torch.randn(4096, 256, device="cuda")) * 2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def run(folder: Path, how: str, **options: Any) -> Estimate:
    path = folder / "train.py"
    path.write_text(SCRIPT.format(compile=how))
    return oomcast.run([str(path)], device="a100-40gb", **options)


def about_compiling(answer: Estimate) -> list[str]:
    return [sentence for sentence in answer.assumptions if "torch.compile" in sentence]


@pytest.mark.parametrize("how", ["compiled = torch.compile(model)", "model.compile(); compiled = model"])
def test_a_compiled_model_keeps_less_than_the_same_script_by_eager_code(tmp_path: Path, how: str) -> None:
    compiled = run(tmp_path, how)
    eager = run(tmp_path, how, eager_because="a test asks for it")
    assert about_compiling(eager) == ["torch.compile: the memory of eager execution is taken, since a test asks for it"]
    assert not [sentence for sentence in about_compiling(compiled) if "eager" in sentence or "breaks" in sentence]
    # Of each Linear, SiLU and Tanh, eager code keeps an output; min-cut computes the two activations again.
    # What compiling itself takes is more than this small model holds: a phase of its own.
    assert compiled.highest_by_phase["backward"] < eager.highest_by_phase["backward"]
    assert "compiling" in compiled.highest_by_phase
    assert compiled.script is not None
    assert eager.script is not None
    assert compiled.script.optimizer_steps == eager.script.optimizer_steps


def test_compiled_code_that_fails_is_run_again_as_eager_code_and_told(tmp_path: Path) -> None:
    broken = (
        "compiled = torch.compile(model)\n"
        "def fail(*args, **options): raise RuntimeError('no compiler today')\n"
        "import torch._functorch._aot_autograd.runtime_wrappers as wrappers\n"
        "wrappers.AOTDispatchAutograd.process_runtime_tangent = staticmethod(fail)\n"
    )
    answer = run(tmp_path, broken)
    (told,) = about_compiling(answer)
    assert "eager execution is taken" in told
    assert "no compiler today" in told
    assert answer.script is not None
    assert answer.script.optimizer_steps > 1


def test_torch_itself_compiles_nothing_of_its_own_modules_in_place(tmp_path: Path) -> None:
    """`Sequential.compile()` skips the frames of torch's own files: eager code, and no break is made up."""
    answer = run(tmp_path, "model = model.layers; model.compile(); compiled = model")
    eager = run(tmp_path, "compiled = model.layers")
    assert not about_compiling(answer)
    assert answer.peak_allocated == eager.peak_allocated
