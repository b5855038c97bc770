"""A small training script, written by a test and run on the virtual GPU."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import oomcast
from oomcast.estimation import Estimate

__all__ = ["PARAMETERS", "START", "line_of", "run"]

START = """
import sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.Adam(model.parameters())
def step():
    loss = model(torch.randn(64, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""
PARAMETERS = 2 * 1024 * 1025 * 4


def run(tmp_path: Path, body: str, *arguments: str, start: str = START, **options: Any) -> Estimate:
    path = tmp_path / "train.py"
    path.write_text(start + textwrap.dedent(body))
    return oomcast.run([str(path), *arguments], device="a100-40gb", **options)


def line_of(tmp_path: Path, text: str) -> int:
    lines = (tmp_path / "train.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)
