"""PyTorch's part of DNNMem's table needs nothing but oomcast: its image models are the zoo's."""

from __future__ import annotations

import pytest

from lab.benchmarks.frameworks_parts import CELLS, PARTS, cell


@pytest.mark.parametrize("name", ["resnet50", "inception-v3"])
def test_a_cell_has_all_its_parts(name: str) -> None:
    found = cell("torch", name, CELLS[name][0])
    assert sum(found[part] for part in PARTS) == found["total"]
    assert found["weights"] > 90_000_000
    assert found["activations"] > found["weights"]
