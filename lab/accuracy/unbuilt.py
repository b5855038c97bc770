"""Data sets whose runs cannot be rebuilt yet: every row is read, and its own columns tell the reason.

A row is left out for the first thing that oomcast does not offer; where it offers that one day, a reader takes its
place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from .cases import CaseSet, Skipped
from .table import Row, read_rows

__all__ = ["COMPILED", "QUANTISED", "UNBUILT", "read_unbuilt"]

SEVERAL_GPUS = "several GPUs: no reader yet"
COMPILED = "compiled: what Inductor plans is not asked yet"
QUANTISED = "quantised weights: not offered yet"
UNKNOWN_LENGTHS = "the lengths of its batches are not published"
NO_READER = "one GPU, eager: no reader yet"
NO_FIGURE = "it has no figure"


def _count(text: str) -> int:
    """The largest number in a cell such as `8`, `4;8` or `2x8`; 1 where it says nothing."""
    return max((int(number) for number in re.findall(r"\d+", text)), default=1)


def _several(*sizes: str) -> bool:
    return any(_count(size) > 1 for size in sizes)


def _torchtitan_command(row: Row) -> str:
    command = row.get("command")
    if not command:
        return "its command line is not published"
    processes = re.search(r"--nproc[_-]per[_-]node[= ](\d+)", command)
    world = row.get("world") or (processes[1] if processes else "")
    if not world:
        return "its number of GPUs is not published"
    if _several(world):
        return SEVERAL_GPUS
    return COMPILED if "compile" in command else NO_READER


def _torchtitan_table(row: Row) -> str:
    return _from_words(row, ("context", "row"))


def _galvatron(row: Row) -> str:
    """`pp_tp_dp`, and what is switched on: `1_1_8_c_sp`."""
    sizes = [part for part in row.text("strategy_pp_tp_dp").split("_") if part.isdigit()]
    return SEVERAL_GPUS if _several(*sizes) else NO_READER


def _bigscience(row: Row) -> str:
    sizes = ("GPUs", "Nodes", "NNODES", "DP", "TP", "PP")
    return SEVERAL_GPUS if _several(*(row.get(size) for size in sizes)) else NO_READER


def _internevo(row: Row) -> str:
    return SEVERAL_GPUS if _several(row.get("gpus")) else NO_READER


def _dlrover(row: Row) -> str:
    return SEVERAL_GPUS if _several(row.get("Num of GPUs")) else NO_READER


def _dlperf(row: Row) -> str:
    """`2D_2x4x1_16_1536x16`: data, model and pipeline parallel; the batch; width and layers."""
    found = re.search(r"_(\d+)x(\d+)x(\d+)_", row.text("case"))
    if found is None:
        raise row.error("case", f"{row.get('case')!r} does not say its parallel parts like 2x4x1")
    return SEVERAL_GPUS if _several(*found.groups()) else "it ran in OneFlow, whose allocator is not modelled"


def _ms_swift(row: Row) -> str:
    if not (row.get("GPU Memory (GiB)") or row.get("memory") or row.get("Total steps")):
        return NO_FIGURE
    if _several(*re.findall(r"gpu=(\d+)", row.get("Model"))):
        return SEVERAL_GPUS
    told = f"{row.get('Quantization')} {row.get('model_type')}"
    if re.search(r"int\d|gptq|awq|bnb", told, re.IGNORECASE):
        return QUANTISED
    return UNKNOWN_LENGTHS


def _liger(row: Row) -> str:
    if "torch_compile" in row.get("package_to_build_it"):
        return COMPILED
    return "single operators: they are judged by python -m lab bench liger"


def _mm(row: Row) -> str:
    """The figure is one GPU's, but the models are the package's own."""
    package = row.text("package_to_build_it").split()[0]
    return f"its models need {package}"


def _horus(row: Row) -> str:
    return "Keras nets on an unnamed GPU: they are judged by python -m lab bench frameworks horus"


def _from_words(row: Row, columns: Iterable[str]) -> str:
    words = " | ".join(row.get(column) for column in columns)
    for pattern, reason in (
        (r"\b(?:[2-9]|\d{2,})\s?x|FSDP|\bTP\b|single-node|\bGPUs\b", SEVERAL_GPUS),
        (r"compile", COMPILED),
        (r"nvfp4|mxfp8|float8|fp8|nf4|int8|8-bit|4-bit", QUANTISED),
    ):
        if re.search(pattern, words, re.IGNORECASE):
            return reason
    return "the row does not tell enough to rebuild it"


UNBUILT: Mapping[str, tuple[tuple[str, ...], Callable[[Row], str]]] = {
    "torchtitan_qwen3_14b": (("world", "command"), _torchtitan_command),
    "torchtitan_tables": (("context", "row"), _torchtitan_table),
    "galvatron_profiles": (("strategy_pp_tp_dp",), _galvatron),
    "bigscience": (("GPUs", "Nodes", "NNODES", "DP", "TP", "PP"), _bigscience),
    "internevo": (("gpus",), _internevo),
    "dlrover_llama2": (("Num of GPUs",), _dlrover),
    "dlperf_gpt": (("case",), _dlperf),
    "ms_swift": (
        ("GPU Memory (GiB)", "memory", "Total steps", "Model", "Quantization", "model_type"), _ms_swift),
    "liger_ops": (("package_to_build_it",), _liger),
    "mmaction2_modelzoo": (("package_to_build_it",), _mm),
    "mmsegmentation_modelzoo": (("package_to_build_it",), _mm),
    "horus_fc_mnist": (("hidden_layers", "neurons_per_hidden_layer"), _horus),
}  # fmt: skip
"""Name of the file → the columns that decide, and the reason that they give."""


def read_unbuilt(name: str, path: Path) -> CaseSet:
    """No cases: every row with why it is left out."""
    columns, reason_of = UNBUILT[name]
    skipped = tuple(Skipped(str(row.number), reason_of(row)) for row in read_rows(path, columns))
    return CaseSet(name, (), skipped)
