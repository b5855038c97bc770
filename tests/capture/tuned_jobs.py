"""A small Llama that is tuned in several ways, and what its Trace holds."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from oomcast.capture.torch.run import capture_here
from oomcast.spec import Spec
from oomcast.trace import Category, EventKind, Trace

HIDDEN, LAYERS, WIDE, VOCABULARY, TOKENS, RANK = 128, 2, 256, 2048, 64, 4
LLAMA = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": WIDE,
    "vocab_size": VOCABULARY,
}
LINEAR = LAYERS * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * WIDE)
"""Weights of the blocks' linear layers: what is quantised."""
REST = 2 * VOCABULARY * HIDDEN + (2 * LAYERS + 1) * HIDDEN
"""Embedding, head and norms."""
LORA = LAYERS * RANK * (4 * 2 * HIDDEN + 3 * (HIDDEN + WIDE))


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} is not installed")


def write_llama(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return str(path)


def traced(job: str, **options: Any) -> Trace:
    settings = {"device": "a100-40gb", "batch_size": 2, "seq_len": TOKENS, "steps": 2, "optimizer": "adamw", **options}
    return capture_here(Spec.read(job, **settings))


def held(trace: Trace, category: Category) -> int:
    """The most bytes of a category that are alive at once."""
    now = most = 0
    for event in trace.events:
        if event.kind in (EventKind.ALLOCATE, EventKind.FREE) and trace.allocations[event.index].category is category:
            size = trace.allocations[event.index].nbytes
            now += size if event.kind is EventKind.ALLOCATE else -size
            most = max(most, now)
    return most


def peak(trace: Trace) -> int:
    now = most = 0
    for event in trace.events:
        size = trace.allocations[event.index].nbytes if event.kind in (EventKind.ALLOCATE, EventKind.FREE) else 0
        now += size if event.kind is EventKind.ALLOCATE else -size
        most = max(most, now)
    return most
