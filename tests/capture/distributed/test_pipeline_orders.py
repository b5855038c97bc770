"""Orders of pipelines: job files hold what a script holds that uses torch.distributed.pipelining itself."""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.capture.torch.distributed.schedules import enough_micro_batches
from oomcast.estimation import Estimate
from oomcast.spec import Parallel
from oomcast.units import MiB

GPUS, MICRO_BATCHES, WIDTH, ROWS, BLOCKS = 4, 16, 64, 4096, 16
SCRIPT = """
    import os, sys, torch, torch.distributed as dist
    from torch import nn
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import get_schedule_class

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(64, 256), nn.Linear(256, 64)

        def forward(self, x):
            return x + self.fc2(torch.relu(self.fc1(x)))

    name, pieces, n = sys.argv[1], int(sys.argv[2]), 16
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    count = world * pieces
    own = (rank, count - 1 - rank) if "ZBV" in name else range(rank, count, world)
    sent = torch.empty(4096, 64, device="meta", requires_grad=True)
    forms = {} if sys.argv[3:] else {"input_args": (sent,), "output_args": (sent,)}
    parts = [nn.Sequential(*(Block() for _ in range(16 // count))).to(device) for _ in own]
    stages = [PipelineStage(part, number, count, device, **forms) for part, number in zip(parts, own)]
    schedule = get_schedule_class(name)(stages if name != "1F1B" else stages[0], n, loss_fn=lambda out, _: out.sum())
    optimizer = torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        batch = (torch.zeros(4096 * n, 64, device=device),) if rank == 0 else ()
        schedule.step(*batch, target=torch.zeros(n), return_outputs=False)
        optimizer.step()
"""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc2(torch.relu(self.fc1(x)))  # type: ignore[no-any-return]


JOB = SimpleNamespace(
    model=lambda: nn.Sequential(*(Block() for _ in range(BLOCKS))),
    batch=lambda size: torch.zeros(size, WIDTH),
    loss=lambda model, batch: model(batch).sum(),
)


def ask(layout: str, device: str = f"{GPUS}xh100-80gb", job: Any = JOB, **options: Any) -> Estimate:
    words = {"batch_size": ROWS, "optimizer": "sgd", "accumulation": MICRO_BATCHES, "steps": 2, **options}
    return oomcast.estimate(job, device=device, parallel=layout, **words)


@pytest.mark.parametrize(
    ("layout", "name", "pieces", "rank"),
    [
        ("pp=4", "1F1B", 1, 1),
        ("pp=4,schedule=interleaved", "Interleaved1F1B", 2, 0),
        ("pp=4,schedule=interleaved,pieces=4", "Interleaved1F1B", 4, 2),
        ("pp=4,schedule=zero-bubble", "InterleavedZeroBubble", 1, 3),
        ("pp=4,schedule=zbv", "ZBVZeroBubble", 2, 2),
    ],
)
def test_a_job_holds_what_a_script_holds(tmp_path: Path, layout: str, name: str, pieces: int, rank: int) -> None:
    """The script runs all sixteen micro-batches, the job those that tell what all hold."""
    written = run_script(tmp_path, rank, name, str(pieces))
    job = ask(layout, rank=rank)
    assert abs(job.peak_allocated - written.peak_allocated) <= 1.5 * MiB  # one of what is sent is 1 MiB


def run_script(folder: Path, rank: int, *words: str) -> Estimate:
    script = folder / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    line = ["torchrun", "--nproc_per_node", str(GPUS), str(script), *words]
    return oomcast.run(line, device=f"{GPUS}xh100-80gb", rank=rank)


@pytest.mark.parametrize(("name", "pieces"), [("1F1B", "1"), ("Interleaved1F1B", "2")])
def test_a_script_whose_stages_find_out_what_they_receive(tmp_path: Path, name: str, pieces: str) -> None:
    """The first rank's own stages tell it; a later one waits for what it receives."""
    named, found_out = (run_script(tmp_path, 0, name, pieces, *words) for words in ((), ("find-out",)))
    assert found_out.peak_allocated == named.peak_allocated
    with pytest.raises(oomcast.errors.BadInput, match="rank 1 waits in PipelineStage for the form of what stage 0"):
        run_script(tmp_path, 1, name, pieces, "find-out")


def test_a_later_stage_that_recomputes_its_blocks_holds_less() -> None:
    """What was received is there for the recomputation, too."""
    answers = (ask("pp=4", rank=1, checkpointing=asked) for asked in (False, True))
    whole, recomputed = (answer.peak_allocated - answer.breakdown["workspace"] for answer in answers)
    assert recomputed < 0.6 * whole


def test_the_ranks_have_their_stages() -> None:
    roles = [kind.role for kind in ask("pp=4,schedule=zbv").ranks]
    assert roles == [f"stages {number}, {9 - number} of 8" for number in (1, 2, 3, 4)]


def test_sharded_stages_are_gathered_and_reduced_as_torch_does_it() -> None:
    """Each GPU of four pairs has two of eight stages with two blocks each, gathered, and their gradients whole."""
    block = 4 * (2 * 4 * 1024**2 + 5 * 1024)

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(1024, 4096), nn.Linear(4096, 1024)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.fc2(torch.relu(self.fc1(x)))  # type: ignore[no-any-return]

    job = SimpleNamespace(**{**vars(JOB), "model": lambda: nn.Sequential(*(Wide() for _ in range(BLOCKS)))})
    job.batch = lambda size: torch.zeros(size, 1024)
    answer = ask("fsdp2,pp=4,schedule=interleaved", "8xh100-80gb", job, rank=2, batch_size=4)
    own = answer.peak_allocated - answer.breakdown["workspace"]
    shards, gathered, gradients = 4 * block / 2, 4 * block, 4 * block
    assert abs(own - (shards + gathered + gradients + block / 2)) <= 0.05 * own


@pytest.mark.parametrize(
    ("layout", "options", "words"),
    [
        ("pp=4,schedule=interleaved", {"accumulation": 9}, "cannot divide 9 micro-batches into 2 equal rounds"),
        ("pp=4,schedule=zbv", {"accumulation": 3}, "give --accumulation 4 or more"),
        ("pp=4,schedule=interleaved,pieces=3", {}, "a pipeline of 12 stages does not divide the 16 blocks"),
    ],
)
def test_what_cannot_be_such_an_order_is_told(layout: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(oomcast.errors.BadInput, match=words):
        ask(layout, **options)


def test_more_micro_batches_need_not_be_run() -> None:
    """The first GPU of interleaved stages has the most under way, however many there are to come."""
    parallel = Parallel.parse("pp=4,schedule=interleaved")
    assert enough_micro_batches(parallel, 0, 64) == enough_micro_batches(parallel, 0, 32) < 20
    assert enough_micro_batches(parallel, 0, 8) == 8
