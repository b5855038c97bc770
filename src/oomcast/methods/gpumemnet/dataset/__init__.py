"""Data sets of labelled networks: drawn evenly over their features, labelled by the simulator or by real runs.

Why: an estimator that learns errs where its data are thin. Networks of seven architectures are drawn so that every
feature, and the memory that is expected, is spread evenly (`sampling`); how evenly it came out is measured
(`uniformity`). Each is built as it would be trained (`network`, `modules`), labelled over all cores (`labelling`,
`runs`), and written to Parquet or CSV with all that decided it (`settings`, `files`). A build can be stopped (`build`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomcast.lazy import lazy_names

if TYPE_CHECKING:
    from .build import build_dataset, finish_dataset
    from .files import read_dataset, write_dataset
    from .network import ARCHITECTURES, KINDS, Network
    from .rows import COLUMNS, Column, Dataset, Label, Row
    from .sampling import ACTIVATION_NAMES, SPACE
    from .settings import LABELS, Settings
    from .uniformity import render, uniformity_of

__all__ = [
    "ACTIVATION_NAMES",
    "ARCHITECTURES",
    "COLUMNS",
    "KINDS",
    "LABELS",
    "SPACE",
    "Column",
    "Dataset",
    "Label",
    "Network",
    "Row",
    "Settings",
    "build_dataset",
    "finish_dataset",
    "read_dataset",
    "render",
    "uniformity_of",
    "write_dataset",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".build": ("build_dataset", "finish_dataset"),
        ".files": ("read_dataset", "write_dataset"),
        ".network": ("ARCHITECTURES", "KINDS", "Network"),
        ".rows": ("COLUMNS", "Column", "Dataset", "Label", "Row"),
        ".sampling": ("ACTIVATION_NAMES", "SPACE"),
        ".settings": ("LABELS", "Settings"),
        ".uniformity": ("render", "uniformity_of"),
    },
    extra="dataset",
)
