"""The groups of ranks that a job's code uses: for them NCCL's buffers are counted, and for no others."""

from __future__ import annotations

from pathlib import Path

import oomcast
from oomcast.devices import Exchange, RankGroup, find_gpu, nccl_figure
from oomcast.estimation import Estimate

SCRIPT = """
import os, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(4, 64, device="cuda")).sum().backward()
    optimizer.step()
"""
USED = """
halves = [dist.new_group([0, 1, 2, 3]), dist.new_group([4, 5, 6, 7])]
unused, across = dist.new_group(list(range(8))), [dist.new_group([i, i + 4]) for i in range(4)]
on_host = dist.new_group(list(range(8)), backend="gloo")
x = torch.ones(8, 1 << 20, device="cuda")
dist.all_to_all_single(torch.empty_like(x), x, group=halves[rank // 4])
dist.all_reduce(x)
dist.all_reduce(torch.ones(2), group=on_host)
work = [dist.P2POp(dist.isend, x[0], (rank + 4) % 8, across[rank % 4])]
for one in dist.batch_isend_irecv(work):
    one.wait()
"""


def look(tmp_path: Path, body: str, *variables: str) -> Estimate:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + body)
    line = ["torchrun", "--nproc_per_node", "4", "--nnodes", "2", str(script)]
    line = ["env", *variables, *line] if variables else line
    return oomcast.run(line, device="2x4xh100-80gb", environment="torch-2.8-cu128", rank=5)


def test_what_a_script_exchanges_in_which_group(tmp_path: Path) -> None:
    answer = look(tmp_path, USED)
    groups = (
        RankGroup(4, 1, frozenset({Exchange.PAIRS})),
        RankGroup(8, 2, frozenset({Exchange.LARGE_SUMS})),
        RankGroup(2, 2, frozenset({Exchange.NEIGHBOURS})),
    )
    figure = nccl_figure(find_gpu("h100-80gb"), (2, 27), groups)
    assert answer.breakdown["communication"] == figure.typical
    assert figure.low < figure.typical < figure.high
    assert answer.low <= answer.device_total - (figure.typical - figure.low)
    assert answer.high >= answer.device_total + figure.high - figure.typical
    assert any("NCCL 2.27 takes" in sentence for sentence in answer.assumptions)


RING = """
next_rank, before = (rank % 4 + 1) % 4, (rank % 4 + 3) % 4
group = [dist.new_group([0, 1, 2, 3]), dist.new_group([4, 5, 6, 7])][rank // 4]
x = torch.ones(8, 16, device="cuda")
sent, received = [0] * 4, [0] * 4
sent[next_rank] = received[before] = 8
dist.all_to_all_single(torch.empty_like(x), x, received, sent, group=group)
"""


def test_an_all_to_all_with_empty_shares_is_a_message_to_few(tmp_path: Path) -> None:
    ring = (RankGroup(4, 1, frozenset({Exchange.NEIGHBOURS}), near_peers=2),)
    assert look(tmp_path, RING).breakdown["communication"] == nccl_figure(find_gpu("h100-80gb"), (2, 27), ring).typical


def test_a_group_in_which_nothing_is_exchanged_has_no_buffers(tmp_path: Path) -> None:
    assert "communication" not in look(tmp_path, "dist.new_group([0, 1])\n").breakdown


def test_the_variables_of_a_line_and_of_a_script_are_followed(tmp_path: Path) -> None:
    groups = [RankGroup(8, 2, frozenset({Exchange.SUMS}))]
    one = nccl_figure(find_gpu("h100-80gb"), (2, 27), groups, {"NCCL_MAX_NCHANNELS": "1"}).typical
    use = "dist.all_reduce(torch.ones(2, device='cuda'))\n"
    by_line = look(tmp_path, use, "NCCL_MAX_NCHANNELS=1")
    by_script = look(tmp_path, "os.environ['NCCL_MAX_NCHANNELS'] = '1'\n" + use)
    assert by_line.breakdown["communication"] == by_script.breakdown["communication"] == one
    assert any("NCCL_MAX_NCHANNELS=1" in sentence for sentence in by_line.assumptions)
    assert look(tmp_path, use).breakdown["communication"] > one
