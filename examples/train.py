"""A training script as people write it for a GPU: data loaders, mixed precision, evaluation, checkpoints.

It knows nothing of oomcast. On any machine: oomcast run --device rtx-4090 -- examples/train.py --batch-size 512
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 8, batch_first=True)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(x)


class Classifier(nn.Module):
    def __init__(self, words: int, width: int, depth: int, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embedding(tokens) + self.places).mean(1))


def loader(samples: int, batch_size: int, length: int, shuffle: bool) -> DataLoader:
    data = TensorDataset(torch.randint(0, 30_000, (samples, length)), torch.randint(0, 10, (samples,)))
    return DataLoader(data, batch_size, shuffle=shuffle, num_workers=2, pin_memory=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    device = torch.device("cuda")
    torch.backends.cudnn.benchmark = True
    model = Classifier(30_000, 512, 8, options.length).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    scaler = torch.amp.GradScaler("cuda")
    training = loader(50_000, options.batch_size, options.length, shuffle=True)
    testing = loader(5_000, 2 * options.batch_size, options.length, shuffle=False)
    best = float("inf")
    for epoch in range(options.epochs):
        model.train()
        for tokens, labels in training:
            tokens, labels = tokens.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        model.eval()
        total = 0.0
        with torch.no_grad():
            for tokens, labels in testing:
                total += nn.functional.cross_entropy(model(tokens.to(device)), labels.to(device)).item()
        print(f"epoch {epoch}: {total / len(testing):.3f}")
        if total < best:
            best = total
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "best.pt")


if __name__ == "__main__":
    main()
