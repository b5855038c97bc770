"""Hetu-Galvatron's profiles: each row's strategy becomes a run of `train.py` on its rank."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from oomcast.spec import Script
from oomcast.units import MiB

from ..cases import Case, Measure
from ..table import Row

__all__ = ["GALVATRON_COLUMNS", "read_galvatron"]

GALVATRON_COLUMNS = ("file", "strategy_pp_tp_dp", "layers", "batch", "seq", "rank", "counter", "value_mb")
_SCRIPT = Path(__file__).with_name("train.py")
_COUNTERS = {"ms": Measure.STATES, "act": Measure.FORWARD_KEPT, "act_peak": Measure.PEAK_ABOVE_STATES}
_FILE = re.compile(r"models/(\w+)/configs/memory_profiling_bf16_hidden(\d+)_head(\d+)(?:_seqlen(\d+))?\.json$")
_STRATEGY = re.compile(r"(\d+)_(\d+)_(\d+)(_c)?(_vtp)?(_sp)?$")
_MODELS = {
    "gpt_hf": "gpt",
    "gpt_fa": "gpt_fa",
    "llama_hf": "llama",
    "llama_fa": "llama_fa",
    "bert_hf": "bert",
    "vit_hf": "vit",
}
_VOCABULARIES = {"gpt": 50257, "llama": 32000, "bert": 30522, "vit": 0}
_PADDED_TO = 128
_BERT_INNER = 3072
"""The files of its BERTs do not tell it, so that it is transformers' default for all of them."""
_LLAMA_INNER = 256
"""A Llama's feed-forward part is eight thirds of its width, up to a multiple of this."""
_GPU = "a100-40gb"
"""Not told; its cuBLAS workspaces of 8.125 MiB are those of any card before Hopper."""


def read_galvatron(row: Row) -> Case | str:
    file, strategy = _FILE.search(row.text("file")), _STRATEGY.match(row.text("strategy_pp_tp_dp"))
    if file is None or strategy is None:
        return "its file or its strategy is not written like those that are read here"
    name, width, heads, told_length = file.groups()
    length = row.get("seq") or told_length
    if not length:
        return "the row does not tell the length of its sequences"
    layout = _layout(name, strategy, bool(told_length))
    if isinstance(layout, str):
        return layout
    kind = layout["model"].partition("_")[0]
    padded = 1 if layout["of_2023"] else _PADDED_TO
    inner = {"llama": -(-int(width) * 8 // 3 // _LLAMA_INNER) * _LLAMA_INNER, "bert": _BERT_INNER}.get(
        kind, 4 * int(width)
    )
    layout |= {
        "width": int(width), "heads": int(heads), "layers": row.whole("layers"), "length": int(length),
        "inner": inner, "vocabulary": -(-_VOCABULARIES[kind] // padded) * padded, "batch": row.whole("batch"),
    }  # fmt: skip
    world, rank = layout["pipeline"] * layout["tensor"] * layout["data"], row.whole("rank", least=0)
    if rank not in (0, world - 1):
        return f"rank {rank} of {world} is in the middle of the pipeline"
    return Case.of_script(
        Script(line=("torchrun", "--nproc_per_node", str(world), str(_SCRIPT), json.dumps(layout, sort_keys=True))),
        data="galvatron_profiles",
        campaign="galvatron_profiles",
        row=f"{row.number} {name} {width} {strategy[0]} {layout['layers']}x{length} rank {rank} {row.text('counter')}",
        family=f"{name} {row.text('counter')}",
        gpu=f"{world}x{_GPU}",
        rank=rank,
        stack="torch-2.1",
        measure=_COUNTERS[row.one_of("counter", tuple(_COUNTERS))],
        measured=round(row.number_in("value_mb") * MiB),
        ran=True,
    )


def _layout(name: str, strategy: re.Match[str], length_in_name: bool) -> dict[str, Any] | str:
    """What the strategy says, and what the library did when such profiles were recorded, from its history.

    Files with a length in their name are those before December 2024. Of those, strategies without sequence
    parallelism are of 2023, when GPT was flash-attn's alone; its profiles were copied when Megatron's layers came.
    """
    if name not in _MODELS:
        return f"the layers of {name} are not written here"
    pipeline, tensor, data = (int(size) for size in strategy.groups()[:3])
    recomputes, cuts_vocabulary, by_tokens = (bool(word) for word in strategy.groups()[3:])
    model = _MODELS[name]
    of_2023 = length_in_name and not by_tokens
    if of_2023:
        model = model.partition("_")[0] + "_fa"
    before = length_in_name and not of_2023 and not model.endswith("_fa")
    return {
        "model": model, "pipeline": pipeline, "tensor": tensor, "data": data, "recomputes": recomputes,
        "cuts_vocabulary": cuts_vocabulary, "by_tokens": by_tokens, "of_2023": of_2023,
        "buffers_alone": before or (model.endswith("_fa") and by_tokens), "whole_positions": before,
    }  # fmt: skip
