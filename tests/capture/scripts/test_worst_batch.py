"""`--worst-batch`: what is found out about a data set's sizes, and what is run first."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import oomcast
from oomcast.estimation import Estimate
from oomcast.trace import Ending

START = """
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset

model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.Adam(model.parameters())
shapes = []

def padded(rows):
    return pad_sequence(rows, batch_first=True)

def train(loader):
    for x in loader:
        x = x["x"] if isinstance(x, dict) else x
        shapes.append(tuple(x.shape))
        optimizer.zero_grad()
        model(x.cuda()).square().mean().backward()
        optimizer.step()
"""


def run(tmp_path: Path, body: str, **options: Any) -> Estimate:
    script = tmp_path / "train.py"
    script.write_text(START + textwrap.dedent(body))
    answer = oomcast.run(str(script), device="a100-40gb", **{"worst_batch": True, **options})
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
    return answer


def told(answer: Estimate) -> str:
    assert answer.script is not None
    return "\n".join(answer.script.batches)


LENGTHS = """
    data = [torch.zeros(length, 256) for length in [8] * 90 + [512, 256] + [8] * 8]
"""


def test_the_largest_comes_again_once_the_optimizer_has_its_state(tmp_path: Path) -> None:
    """The peak is in the second step: in the first one Adam's state is not there yet."""
    body = """
    big = nn.Linear(2048, 2048).cuda()
    optimizer = torch.optim.Adam([*model.parameters(), *big.parameters()])
    train(DataLoader(data, batch_size=2, shuffle=True, collate_fn=padded))
    assert shapes[:3] == [(2, 512, 256)] * 3, shapes
    """
    answer = run(tmp_path, LENGTHS + body)
    assert "100 samples have 2,048 values (median), 2,048 (90th percentile), 131,072 (largest)" in told(answer)
    assert "each 8–512 × 256" in told(answer)
    assert "the largest 2 together were run first" in told(answer)


def test_batches_that_the_loader_puts_together_itself_stay_together(tmp_path: Path) -> None:
    """Not shuffled, or with a budget: the two largest samples never meet, so their batch is not invented."""
    body = """
    class Budget:
        def __iter__(self):
            yield from ([n, n + 1, n + 2] for n in range(0, 87, 3))
            yield [90]
            yield [91]
        def __len__(self):
            return 31
    train(DataLoader(data, batch_sampler=Budget(), collate_fn=padded))
    assert shapes[:3] == [(1, 512, 256)] * 3, shapes
    """
    assert "the largest of its 31 batches was run first" in told(run(tmp_path, LENGTHS + body))
    in_order = """
    data = [torch.zeros(length, 256) for length in (400, 8, 8, 400, 300, 300)]
    train(DataLoader(data, batch_size=2, collate_fn=padded))
    assert shapes[0] == (2, 400, 256), shapes
    """
    answer = run(tmp_path, in_order)
    assert "the largest of its 3 batches was run first" in told(answer)


def test_sizes_that_only_the_collate_function_knows(tmp_path: Path) -> None:
    """As loaders of neighbourhoods do: the data set is a list of nodes."""
    body = """
    class Held:
        def __init__(self, x):
            self.x = x
        def __copy__(self):
            return Held(self.x)
    def around(nodes):
        return {"x": torch.zeros(sum(1 + 100 * (node == 7) for node in nodes), 256)}
    train(DataLoader(range(40), batch_size=4, collate_fn=around))
    assert shapes[:3] == [(104, 256)] * 3, shapes
    """
    answer = run(tmp_path, body)
    assert "10 batches have 1,024 values (median)" in told(answer)
    assert "x 4–104 × 256" in told(answer)


def test_a_stream_is_looked_through(tmp_path: Path) -> None:
    body = """
    class Packed(IterableDataset):
        def __iter__(self):
            for length in [16] * 10 + [300] + [16] * 10:
                yield torch.zeros(length, 256)
    train(DataLoader(Packed(), batch_size=None))
    assert shapes[:3] == [(300, 256)] * 3, shapes
    """
    assert "21 batches have" in told(run(tmp_path, body))


def test_a_batch_that_the_script_empties_is_whole_the_next_time(tmp_path: Path) -> None:
    body = """
    class Rows(Dataset):
        def __len__(self):
            return 40
        def __getitem__(self, number):
            return {"x": torch.zeros(64 + number, 256)}
    def rows(samples):
        return {"x": padded([sample["x"] for sample in samples])}
    for batch in DataLoader(Rows(), batch_size=4, shuffle=True, collate_fn=rows):
        x = batch.pop("x")
        optimizer.zero_grad()
        model(x.cuda()).square().mean().backward()
        optimizer.step()
    """
    run(tmp_path, body)
    run(tmp_path, body, worst_batch=False, synthetic_data=True)


def test_samples_of_one_size_are_told_as_such(tmp_path: Path) -> None:
    body = """
    train(DataLoader(torch.zeros(64, 256), batch_size=4, shuffle=True))
    assert len(shapes) == 16
    """
    assert "the 8 batches looked at have 1,024 values each" in told(run(tmp_path, body))
