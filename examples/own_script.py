"""Any training code written for CUDA, run on a GPU that is not there.

python examples/own_script.py
"""

import torch
from torch import nn

import oomcast


def train(steps: int) -> None:
    """As one writes it for a GPU; it knows nothing of oomcast."""
    device = torch.device("cuda")
    model = nn.Sequential(nn.Linear(4096, 16384), nn.GELU(), nn.Linear(16384, 4096)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for step in range(steps):
        x = torch.randn(2048, 4096, device=device)
        with torch.autocast("cuda"):
            loss = nn.functional.mse_loss(model(x), x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(f"step {step}: loss on {loss.device}, peak allocated {peak:.2f} GiB")


if __name__ == "__main__":
    with oomcast.virtual_gpu("a100-40gb") as gpu:
        train(3)
    trace = gpu.trace()
    print(f"{len(trace.allocations):,} allocations recorded")
