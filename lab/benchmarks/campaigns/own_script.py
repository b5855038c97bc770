"""A person's own training script, as a campaign starts it: images, convolutions, an optimizer, a loop."""

import argparse

import torch
from torch import nn


def network(width: int, depth: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(depth):
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * width, 1000))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("batch", 16), ("edge", 64), ("width", 64), ("depth", 4), ("steps", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = network(options.width, options.depth).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(options.steps):
        images = torch.randn(options.batch, 3, options.edge, options.edge).to(device)
        labels = torch.randint(0, 1000, (options.batch,)).to(device)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
