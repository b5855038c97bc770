"""Scripts of torchrun as one of their ranks: they run as they are, or end with a sentence; they never wait."""

from __future__ import annotations

from pathlib import Path

import pytest

import oomcast
from oomcast.errors import BadInput
from oomcast.trace import Ending
from oomcast.units import MiB

WIDTH, LAYERS = 1024, 8
P = 4 * LAYERS * (WIDTH * WIDTH + WIDTH)

DDP = f"""
import os, torch, torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
assert dist.get_world_size() == 4 == torch.cuda.device_count() == int(os.environ["WORLD_SIZE"])
model = nn.Sequential(*(nn.Linear({WIDTH}, {WIDTH}) for _ in range({LAYERS}))).to(device)
model = nn.parallel.DistributedDataParallel(model, device_ids=[device])
optimizer = torch.optim.AdamW(model.parameters())
names = [None] * 4
dist.all_gather_object(names, f"rank {{dist.get_rank()}}")
for _ in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(4, {WIDTH}, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach())
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("rank", [None, 2])
def test_a_ddp_script_holds_what_ddp_holds(tmp_path: Path, rank: int | None) -> None:
    script = tmp_path / "train.py"
    script.write_text(DDP)
    answer = oomcast.run(["torchrun", "--nproc_per_node", "4", str(script)], device="4xa100-40gb", rank=rank)
    tensors = answer.peak_allocated - answer.breakdown["workspace"]
    assert abs(tensors - 6 * P) < 0.01 * 6 * P
    assert answer.ranks[0].rank == (rank or 0)


def test_a_line_with_other_processes_than_gpus(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("pass\n")
    with pytest.raises(BadInput, match="starts 8 processes, one for each GPU, but the device has 4; name"):
        oomcast.run(["torchrun", "--nproc_per_node", "8", str(script)], device="4xa100-40gb")
    with pytest.raises(BadInput, match="name --device 2x8xa100-40gb, or let"):
        oomcast.run(["torchrun", "--nnodes", "2", "--nproc_per_node", "8", str(script)], device="8xa100-40gb")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("box = [None]; dist.broadcast_object_list(box, src=0)", "rank 1 waits in broadcast_object_list"),
        ("dist.recv_object_list([None], src=3)", "for an object of rank 3"),
        ("dist.distributed_c10d._get_default_store().get('from elsewhere')", "the entry '.*from elsewhere'"),
        ("dist.init_process_group('nccl', world_size=2, rank=0)", "asks for a process group of 2 ranks"),
    ],
)
def test_what_another_rank_would_send_is_told_and_not_waited_for(tmp_path: Path, lines: str, words: str) -> None:
    script = tmp_path / "train.py"
    start = "" if "init_process_group" in lines else "dist.init_process_group('nccl')\n"
    script.write_text(f"import torch, torch.distributed as dist\n{start}{lines}\n")
    with pytest.raises(BadInput, match=words):
        oomcast.run(["torchrun", "--nproc_per_node", "4", str(script)], device="4xa100-40gb", rank=1)


def test_what_a_script_sets_for_cublas_is_followed(tmp_path: Path) -> None:
    """Deterministic jobs must set it; and a backward that goes to the engine itself, as Megatron's, has its handle."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nfrom torch.autograd import Variable\n"
        "model = torch.nn.Linear(64, 64).cuda()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(3):\n"
        "    loss = model(torch.randn(8, 64, device='cuda')).sum()\n"
        "    Variable._execution_engine.run_backward((loss,), (torch.ones_like(loss),), False, False, (),"
        " allow_unreachable=True, accumulate_grad=True)\n"
        "    optimizer.step()\n    optimizer.zero_grad()\n"
    )
    answer = oomcast.run(["env", "CUBLAS_WORKSPACE_CONFIG=:4096:8", str(script)], device="a100-40gb")
    assert answer.breakdown["workspace"] == 2 * 32 * MiB
    assert {phase for _, phase, *_ in answer.phase_peaks} >= {"forward", "backward", "optimizer"}


def test_a_script_for_one_gpu_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nx = torch.ones(4, device='cuda')\n")
    with pytest.raises(BadInput, match="is not written for several GPUs: it never calls"):
        oomcast.run([str(script)], device="4xa100-40gb")


def test_a_rendezvous_of_the_launcher_is_not_waited_for(tmp_path: Path) -> None:
    """Whatever host the other nodes would meet at: no other rank runs, and nobody is called."""
    script = tmp_path / "train.py"
    script.write_text(DDP.replace("== 4 == torch.cuda.device_count()", "== 4 and 2 == torch.cuda.device_count()")
                      .replace("== int(os.environ[\"WORLD_SIZE\"])", ""))  # fmt: skip
    line = ["torchrun", "--nnodes=1:2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id", "7",
            "--rdzv-endpoint=nowhere.invalid:29400", "--node_rank", "1", str(script)]  # fmt: skip
    answer = oomcast.run(line, device="2x2xa100-40gb")
    assert answer.script is not None
    assert answer.script.reason == "the script came to its end"


def test_the_last_rank_is_looked_at_as_well(tmp_path: Path) -> None:
    """As the last stage of a pipeline, with its logits: the worst of both is the answer."""
    script = tmp_path / "train.py"
    script.write_text(
        DDP.replace(
            "optimizer = ", "logits = torch.empty(64 << 20, device=device) if device == 3 else None\noptimizer = "
        )
    )
    answer = oomcast.run(["torchrun", "--nproc_per_node", "4", str(script)], device="4xa100-40gb")
    first, last = answer.ranks
    assert (first.rank, first.count, last.rank, last.count) == (0, 3, 3, 1)
    assert last.peak_allocated - first.peak_allocated == 256 * MiB
    assert answer.device_total == last.device_total


def test_processes_that_choose_no_gpu_are_told(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(DDP.replace('int(os.environ["LOCAL_RANK"])', "0").replace('"nccl"', '"gloo"'))
    with pytest.raises(BadInput, match=r"works on cuda:0 as rank 3, too: all processes of a node would share"):
        oomcast.run(["torchrun", "--nproc_per_node", "4", str(script)], device="4xa100-40gb")
    script.write_text(
        'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]\n'
        + DDP.replace('int(os.environ["LOCAL_RANK"])', "0").replace("== torch.cuda.device_count() ", "")
    )
    answer = oomcast.run(["torchrun", "--nproc_per_node", "4", str(script)], device="4xa100-40gb")
    assert len(answer.ranks) == 2


def test_a_last_rank_that_waits_for_another_is_told_and_taken_as_the_first(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(DDP.replace("optimizer = ", "dist.broadcast_object_list([None], src=0)\noptimizer = "))
    answer = oomcast.run(["torchrun", "--nproc_per_node", "4", str(script)], device="4xa100-40gb")
    (only,) = answer.ranks
    assert (only.rank, only.count) == (0, 4)
    assert any(
        "rank 3 could not be followed" in text and "broadcast_object_list" in text for text in answer.assumptions
    )


def test_a_device_mesh_joins_the_group_and_chooses_the_gpu_by_itself(tmp_path: Path) -> None:
    """As torch does where the script has not: no process group is made, no device is set, the weights are drawn."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os, torch\n"
        "from torch import nn\n"
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "from torch.distributed.fsdp import fully_shard\n"
        "assert not torch.cuda.is_initialized()\n"
        "mesh = init_device_mesh('cuda', (4,))\n"
        "assert torch.cuda.current_device() == int(os.environ['LOCAL_RANK']) and torch.cuda.is_initialized()\n"
        "with torch.device('meta'):\n"
        f"    model = nn.Sequential(*(nn.Linear({WIDTH}, {WIDTH}) for _ in range({LAYERS})))\n"
        "fully_shard(model, mesh=mesh)\n"
        "model.to_empty(device='cuda')\n"
        "for layer in model:\n"
        "    layer.reset_parameters()\n"
        "optimizer = torch.optim.Adam(model.parameters())\n"
        "for _ in range(3):\n"
        f"    model(torch.randn(4, {WIDTH}, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
    )
    answer = oomcast.run(["torchrun", "--nproc_per_node", "4", str(script)], device="4xa100-40gb")
    assert [kind.rank for kind in answer.ranks] == [0, 3]
    assert abs(answer.breakdown["parameter"] - P / 4) < 0.01 * P / 4


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize(("operation", "rows"), [("SUM", 4096), ("MAX", 1024)])
def test_what_is_added_over_the_ranks_is_as_many_times_as_large(
    tmp_path: Path, device: str, operation: str, rows: int
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"""
import os, torch, torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
rows = torch.tensor(1024, device="{device}")
dist.all_reduce(rows, op=dist.ReduceOp.{operation})
weights = torch.zeros(int(rows.item()), 1024, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.1)
for _ in range(3):
    weights.square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
""")
    answer = oomcast.run(["torchrun", "--nproc_per_node", "4", str(script)], device="4xa100-40gb", rank=0)
    assert answer.breakdown["parameter"] == rows * 1024 * 4


SYMMETRIC = """
import os, torch, torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
from torch import nn

device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl")
own = symmetric.empty(16 * 2**20, dtype=torch.float32, device=f"cuda:{device}")
handle = symmetric.rendezvous(own, dist.group.WORLD)
assert (handle.rank, handle.world_size) == (dist.get_rank(), 4)
assert handle.get_buffer(1, (4, 8), torch.bfloat16).shape == (4, 8)
workspace = symmetric.get_symm_mem_workspace(dist.group.WORLD.group_name, 32 * 2**20)
workspace.barrier()
model = nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 8, device=device)).sum().backward()
    torch.ops.symm_mem.one_shot_all_reduce(own, "sum", dist.group.WORLD.group_name)
    optimizer.step()
"""


def test_symmetric_memory_is_counted_and_told(tmp_path: Path) -> None:
    """A buffer of 64 MiB, its sum in a tensor of its own, and a workspace of 32 MiB; other ranks' buffers are not held
    here."""
    script = tmp_path / "train.py"
    script.write_text(SYMMETRIC)
    answer = oomcast.run(["torchrun", "--nproc_per_node", "4", str(script)], device="4xh100-80gb", rank=1)
    tensors = answer.peak_allocated - answer.breakdown["workspace"]
    assert abs(tensors - (64 + 64 + 32) * MiB) < MiB
    assert any("symmetric memory is counted" in sentence for sentence in answer.assumptions)


@pytest.mark.parametrize(("environment", "version"), [("torch-2.6", (2, 21)), ("torch-2.13", (2, 29))])
def test_a_script_asks_for_the_version_of_nccl(tmp_path: Path, environment: str, version: tuple[int, int]) -> None:
    """It is that of the software stack, whatever is installed here."""
    script = tmp_path / "train.py"
    script.write_text(f"import torch\nassert torch.cuda.nccl.version()[:2] == {version}\n" + DDP)
    answer = oomcast.run(["torchrun", "--nproc_per_node", "4", str(script)], device="4xa100-40gb",
                         environment=environment, rank=0)  # fmt: skip
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED
