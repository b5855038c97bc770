"""Data sets whose runs cannot be rebuilt yet: every row is read, and its own columns tell the reason.

A row is left out for the first thing that oomcast does not offer; where it offers that one day, a reader takes its
place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from .cases import CaseSet, Skipped
from .table import Row, read_rows

__all__ = ["COMPILED", "LOW_PRECISION", "UNBUILT", "read_unbuilt"]

COMPILED = "compiled: what Inductor plans is not asked yet"
LOW_PRECISION = "products in 8 or 4 bits (recipes of torchao for training) are not put together here"


def _bigscience(row: Row) -> str:
    """Whole gigabytes of nvidia-smi; GPUs, layers or widths are told in the text around the table, if at all."""
    return "it ran in Megatron-DeepSpeed, whose pipeline and ZeRO over fp16 are not put together here"


def _internevo(row: Row) -> str:
    return "the row does not tell the length of its sequences, and InternEvo's own ZeRO is not put together here"


def _dlperf(row: Row) -> str:
    if row.get("file").startswith("OneFlow"):
        return "it ran in OneFlow, whose allocator is not modelled"
    return "the row does not tell the length of its sequences and its vocabulary"


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


UNBUILT: Mapping[str, tuple[tuple[str, ...], Callable[[Row], str]]] = {
    "bigscience": (("DS", "Size", "NHIDDEN", "Layers"), _bigscience),
    "internevo": (("fsdp",), _internevo),
    "dlperf_gpt": (("file",), _dlperf),
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
