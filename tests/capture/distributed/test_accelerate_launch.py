"""`accelerate launch` hands its settings on as variables: the script is followed as its file says, not as plain DDP."""

from __future__ import annotations

from pathlib import Path

import pytest

import oomcast
from oomcast.errors import BadInput
from oomcast.estimation import Estimate
from oomcast.units import MiB

pytest.importorskip("accelerate")
pytest.importorskip("yaml")

WIDTH, LAYERS, RANKS = 1024, 8, 4
P = 4 * LAYERS * WIDTH * (WIDTH + 1)
"""Bytes of the parameters."""
SCRIPT = f"""
import torch
from accelerate import Accelerator

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear({WIDTH}, {WIDTH})
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        return x + self.linear(x) * self.scale

class Model(torch.nn.Module):
    _no_split_modules = ["Block"]

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range({LAYERS}))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

accelerator = Accelerator()
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader([torch.zeros({WIDTH}) for _ in range(256)], batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    accelerator.backward(model(batch).float().sum())
    optimizer.step()
    optimizer.zero_grad()
"""
HEAD = f"compute_environment: LOCAL_MACHINE\nnum_machines: 1\nnum_processes: {RANKS}\n"
FSDP = "distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
LAYOUTS = {
    "plain": "distributed_type: MULTI_GPU\nmixed_precision: 'no'\n",
    "fsdp2": f"mixed_precision: 'no'\n{FSDP}  fsdp_version: 2\n  fsdp_cpu_ram_efficient_loading: false\n",
    # Its ranks are made equal by a broadcast of parameters and buffers together, which C++ flattens.
    "fsdp1": f"mixed_precision: 'no'\n{FSDP}  fsdp_version: 1\n  fsdp_sync_module_states: true\n"
    "  fsdp_cpu_ram_efficient_loading: false\n",
    "zero3": "mixed_precision: bf16\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
    "  zero3_init_flag: false\n",
}


def run(folder: Path, layout: str, *flags: str) -> Estimate:
    (folder / "train.py").write_text(SCRIPT)
    (folder / "settings.yaml").write_text(HEAD + LAYOUTS[layout])
    line = ["accelerate", "launch", "--config_file", str(folder / "settings.yaml"), *flags, str(folder / "train.py")]
    return oomcast.run(line, device=f"{RANKS}xa100-40gb", rank=0)


@pytest.mark.parametrize(("layout", "share"), [("plain", 1), ("fsdp2", RANKS), ("fsdp1", RANKS)])
def test_the_file_decides_who_holds_what(tmp_path: Path, layout: str, share: int) -> None:
    """FSDP 1 has a quarter of a block twice at its peak."""
    held, twice = run(tmp_path, layout).breakdown["parameter"], P / LAYERS / RANKS if layout == "fsdp1" else 0
    assert held == pytest.approx(P / share + twice, rel=0.01)


def test_zero_of_a_file_is_run_by_deepspeed(tmp_path: Path) -> None:
    """Its parts of the parameters, in bf16 and as masters in fp32, are a quarter each."""
    pytest.importorskip("deepspeed")
    answer = run(tmp_path, "zero3")
    assert answer.breakdown["parameter"] + answer.breakdown["optimizer_state"] < 2 * P / RANKS + 8 * MiB


def test_flags_are_read_by_accelerate_itself(tmp_path: Path) -> None:
    fewer = run(tmp_path, "fsdp2", "--mixed_precision", "bf16")
    assert fewer.peak_allocated < run(tmp_path, "fsdp2").peak_allocated


def test_what_accelerate_rejects_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="accelerate rejects its settings: You cannot use `--use_parallelism_config`"):
        run(tmp_path, "plain", "--use_parallelism_config")
    with pytest.raises(BadInput, match=r"accelerate rejects its line: .*--mixed_precision"):
        run(tmp_path, "plain", "--mixed_precision", "bf17")
