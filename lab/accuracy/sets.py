"""The data sets by name: which file of the truth folder each is, and who reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from oomcast.errors import BadInput, UnknownName

from .adapter_rows import ADAPTER_SETS, read_adapter_rows
from .cases import CaseSet
from .contributed import NAME as CONTRIBUTED
from .contributed import read_contributed
from .fine_tuning import FINE_TUNING, read_fine_tuning
from .gpumemnet_rows import read_cnn, read_mlp_step1, read_mlp_step2, read_transformer
from .real_models import read_real_models
from .several_gpus import SEVERAL_GPUS_SETS, read_several_gpus
from .timm_a100 import read_timm_a100
from .timm_fits import read_timm_fits
from .titan_runs import TITAN_SETS, read_titan_runs
from .unbuilt import UNBUILT, read_unbuilt
from .xmem import read_xmem_runs

__all__ = ["DATA_SETS", "read_sets"]

DATA_SETS: Mapping[str, Callable[[Path], CaseSet]] = {
    "timm_a100_fp32": read_timm_a100,
    "timm_rtx3090_fits": read_timm_fits,
    "real_models": read_real_models,
    "gpumemnet_mlp_step1": read_mlp_step1,
    "gpumemnet_mlp_step2": read_mlp_step2,
    "gpumemnet_cnn": read_cnn,
    "gpumemnet_transformer": read_transformer,
    "xmem_runs": read_xmem_runs,
    **{name: partial(read_fine_tuning, name) for name in FINE_TUNING},
    **{name: partial(read_adapter_rows, name) for name in ADAPTER_SETS},
    **{name: partial(read_several_gpus, name) for name in SEVERAL_GPUS_SETS},
    **{name: partial(read_titan_runs, name) for name in TITAN_SETS},
    **{name: partial(read_unbuilt, name) for name in UNBUILT},
    CONTRIBUTED: read_contributed,
}


def read_sets(folder: Path, names: Iterable[str] = ()) -> tuple[CaseSet, ...]:
    """Those data sets, or all that the folder holds."""
    if not folder.is_dir():
        raise BadInput(f"there is no folder {str(folder)!r} with measurements.")
    wanted = list(names)
    for name in wanted:
        if name not in DATA_SETS:
            raise UnknownName("data set", name, DATA_SETS)
        if not _place(folder, name).exists():
            raise BadInput(f"{str(folder)!r} has no {_place(folder, name).name}.")
    found = [name for name in wanted or DATA_SETS if _place(folder, name).exists()]
    if not found:
        raise BadInput(f"{str(folder)!r} holds no file of measurements such as {next(iter(DATA_SETS))}.csv.")
    return tuple(DATA_SETS[name](_place(folder, name)) for name in found)


def _place(folder: Path, name: str) -> Path:
    """A file of rows, or the folder of runs that were packed one by one."""
    return folder / (name if name == CONTRIBUTED else f"{name}.csv")
