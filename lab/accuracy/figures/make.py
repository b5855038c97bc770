"""`python -m lab figures DIR`: make the table of cited figures again from a folder of measurements."""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from oomcast.spec import JobKind

from ..cases import Case
from ..running import sample
from ..sets import read_sets
from ..vision_jobs import TorchvisionJob
from . import FILE, MOST_ROWS, Figure, Source, figures_to_json
from .form import JOBS

__all__ = ["add_to", "quote"]

_ROWS = {"gpumemnet_mlp_step1": 20, "gpumemnet_mlp_step2": 20, "gpumemnet_cnn": 50, "gpumemnet_transformer": 16}
_WHOLE = ("real_models", "litgpt", "rasbt_memory", "hf_docs_bert_large", "torchtune")
_IN_THE_ZOO = ("vgg16", "resnet50", "mobilenet_v2")
_GPUMEMNET = "itu-rad/GPUMemNet"
_COMMIT = "f01eb0592e1b2030d3bceb73441747912b6652a6"
_SOURCES = {
    "gpumemnet_mlp_step1": Source(_GPUMEMNET, _COMMIT, "Datasets/MLP/mlp_data_step1.csv"),
    "gpumemnet_mlp_step2": Source(_GPUMEMNET, _COMMIT, "Datasets/MLP/mlp_data_step2.csv"),
    "gpumemnet_cnn": Source(_GPUMEMNET, _COMMIT, "Datasets/CNN"),
}
"""Of the files whose rows do not name their own; without one here or there, a row is left out."""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "figures",
        help="make the table of cited figures again",
        description=f"Choose at most {MOST_ROWS} measured runs, and write them with their sources into {FILE}.",
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder with the files of measurements")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    quoted = list(quote(options.folder))
    content = figures_to_json(quoted)
    path = Path(str(resources.files(__package__).joinpath(FILE)))
    rows = ",\n".join(json.dumps(row, sort_keys=True) for row in content["rows"])
    cited = json.dumps(content["sources"], indent=1, sort_keys=True)
    path.write_text(f'{{"schema": {content["schema"]}, "sources": {cited},\n"rows": [\n{rows}\n]}}\n', encoding="utf-8")
    print(f"{len(quoted)} figures from {len(content['sources'])} sources: {path}")
    return 0


def quote(folder: Path) -> Iterator[Figure]:
    """The runs to cite: some of each large file, all of the small ones, each with its source."""
    for one in read_sets(folder, (*_ROWS, *_WHOLE)):
        lines = _lines(folder / f"{one.name}.csv")
        cases = [case for case in map(_with_zoo, one.cases) if _has_form(case)]
        for case in sample(cases, _ROWS.get(one.name)):
            line = lines[int(case.row.split()[0]) - 2]
            source = _own_source(line) or _SOURCES.get(one.name)
            if source is not None:
                yield Figure(replace(case, notes=""), source, line.get("Filename", ""))


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _own_source(line: dict[str, str]) -> Source | None:
    """The last commit that the line names is the one with the published figure."""
    commits = re.findall(r"\b[0-9a-f]{40}\b", line.get("commit") or "")
    if not (line.get("repo") and line.get("file") and commits):
        return None
    return Source(line["repo"], commits[-1], line["file"])


def _with_zoo(case: Case) -> Case:
    """What the zoo has needs no other library."""
    job = case.workload.job.target
    if isinstance(job, TorchvisionJob) and job.name in _IN_THE_ZOO and job.head is None:
        options = {key: value for key, value in case.workload.as_dict().items() if key != "job"}
        return replace(case, workload=case.workload.create(f"zoo:{job.name}", **options))
    return case


def _has_form(case: Case) -> bool:
    """Whether it can be written down, and rebuilt without bitsandbytes, which not everybody has."""
    job = case.workload.job
    return job.kind is JobKind.ZOO or (
        type(job.target).__name__ in JOBS and not getattr(job.target, "quantization", "")
    )
