"""What was calibrated on this machine must not reach the tests; and the job that several of them take."""

from __future__ import annotations

from pathlib import Path

import pytest

JOB = """
import torch
from torch import nn

WIDTH = 256
EPOCHS = 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        return x + self.inner(x)


def model():
    return nn.Sequential(*[Block() for _ in range(3)], nn.Linear(WIDTH, 10))


def batch(batch_size):
    return torch.randn(batch_size, WIDTH), torch.randint(0, 10, (batch_size,))


def optimizer(params):
    return torch.optim.AdamW(params, lr=3e-4)
"""


@pytest.fixture(autouse=True)
def config_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("config")
    monkeypatch.setenv("OOMCAST_CONFIG", str(folder))
    return folder


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return str(path)
