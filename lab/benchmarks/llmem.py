"""`python -m lab bench llmem DIR`: LLMem's formula, run here beside what it answered for its rivals, and the truth.

LLMem (Kim et al., IJCAI 2024; its estimator is public: taehokim20/LLMem, commit 3d289b4, size_estimator.py) is a sum
over the modules of a decoder that is fine-tuned by Colossal-AI's chunks in half precision with checkpoints. It starts
from a base that it measures on the GPU: context and chunks. xMem's authors ran it on their own jobs, which are neither
(float32, no checkpoints, 128 tokens where LLMem takes its own data's 512): their answers are in DIR/xmem_runs.csv.

Here the sum is made again; of the base, which only a GPU shows, the first answer for each model and card gives one
number, and all other answers must follow from it. Models of GPT-2's form are left out: they have no Linear layers, and
LLMem passes over theirs, with the answer that is published.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomcast.units import MiB

from ..accuracy.public_models import find_public_model
from ..accuracy.table import read_rows
from .report import Bar, Outcome, print_outcome

__all__ = ["Decoder", "decoder", "llmem"]

_CHUNK = 2 * MiB
_HALF, _FLOAT, _TOKEN = 2, 4, 8
LENGTH = 512
"""Tokens of the longest sample in the data that LLMem brings with it, as it cuts them."""
PUBLISHED = "0.016 on one GPU, 0.030 on several (its own models)"


@dataclass(frozen=True)
class Decoder:
    """What LLMem looks at."""

    weights: tuple[int, ...]
    """Values of each parameter of embeddings and linear layers, in order; the last is the head's."""
    layers: int
    width: int
    vocabulary: int


def decoder(name: str) -> Decoder | None:
    """None for a model whose layers LLMem does not see, or whose sizes are not written here."""
    import torch
    import transformers

    found = find_public_model(name)
    if found is None:
        return None
    with torch.device("meta"):
        config = getattr(transformers, found.config_class)(**dict(found.settings))
        model: Any = getattr(transformers, found.model_class)._from_config(config)
    seen = [module for module in model.modules() if isinstance(module, (torch.nn.Linear, torch.nn.Embedding))]
    weights = [value.numel() for module in seen for value in module.parameters(recurse=False)]
    if sum(weights) < sum(value.numel() for value in model.parameters()):
        linear = {value for module in seen for value in module.parameters(recurse=False)}
        rest = sum(value.numel() for value in model.parameters() if value not in linear)
        if rest > weights[-1]:  # more than norms and biases: its blocks are not made of linear layers
            return None
    return Decoder(tuple(weights), config.num_hidden_layers, config.hidden_size, config.vocab_size)


def llmem(model: Decoder, batch_size: int, base: int, length: int = LENGTH) -> int:
    """Bytes on one GPU. `base` is what LLMem measures there before: the context, and the chunks of the weights."""
    states = sum(2 * _in_chunks(_FLOAT * values) for values in model.weights[:-1])
    head = _in_chunks(_HALF * model.weights[-1])
    tokens = _in_chunks(_TOKEN * batch_size * length)
    # Checkpoints: the embeddings of tokens and places, and what each layer puts out.
    kept = (2 + model.layers) * _in_chunks(_HALF * batch_size * length * model.width)
    # The head's output, and the same shifted by one, twice: the loss.
    row = _FLOAT * batch_size * model.vocabulary
    logits = _in_chunks(row * length) + 2 * _in_chunks(row * (length - 1))
    return base + states + head + tokens + kept + logits


def _in_chunks(size: int) -> int:
    return -(-size // _CHUNK) * _CHUNK


@dataclass(frozen=True)
class _Answer:
    model: str
    gpu: str
    batch_size: int
    published: int
    measured: int | None


def _answers(path: Path) -> list[_Answer]:
    columns = ("model", "gpu", "batch_size", "llmem_bytes", "ground_bytes", "real_oom")
    found = []
    for row in read_rows(path, columns):
        if row.get("llmem_bytes") and float(row.text("llmem_bytes")) > 0:
            held = row.whole("ground_bytes") if row.text("real_oom") == "False" else None
            told = round(float(row.text("llmem_bytes")))
            found.append(_Answer(row.text("model"), row.text("gpu"), row.whole("batch_size"), told, held))
    return found


def outcome_of(answers: Sequence[_Answer]) -> Outcome:
    rows, worst = [], []
    for name in dict.fromkeys(answer.model for answer in answers):
        own = [answer for answer in answers if answer.model == name]
        errors = [abs(answer.published / answer.measured - 1) for answer in own if answer.measured]
        published = f"{statistics.median(errors):.0%}" if errors else "-"
        model = decoder(name)
        if model is None:
            rows.append((name, str(len(own)), published, "-", "-", "LLMem does not see its layers"))
            continue
        bases: dict[str, int] = {}
        differences = []
        for answer in own:
            if answer.gpu not in bases:
                bases[answer.gpu] = answer.published - llmem(model, answer.batch_size, 0)
            else:
                here = llmem(model, answer.batch_size, bases[answer.gpu])
                differences.append(abs(here / answer.published - 1))
        worst += differences
        told = ", ".join(f"{base / MiB:,.0f} MiB" for base in bases.values())
        rows.append((name, str(len(own)), published, str(len(differences)), f"{max(differences, default=0):.3%}", told))
    errors = [abs(answer.published / answer.measured - 1) for answer in answers if answer.measured]
    columns = ("model", "answers", "median error", "made again", "worst difference", "base")
    bars = [
        Bar("LLMem's answers, made again within 0.1 %", f"worst {max(worst):.3%} of {len(worst)}", max(worst) <= 0.001),
        Bar(f"median error on these runs; published {PUBLISHED}", f"{statistics.median(errors):.0%}", None),
    ]
    return Outcome("LLMem: its sum here, and its answers for xMem's runs", columns, rows, bars)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench llmem", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="with xmem_runs.csv")
    outcome = outcome_of(_answers(parser.parse_args().folder / "xmem_runs.csv"))
    print_outcome(outcome)
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
