"""`python -m lab configs FOLDER`: whether public configuration files get an answer, format by format.

FOLDER holds a folder for each format, with files as their authors published them (axolotl's examples, torchtune's
recipes …). They are not part of the repository: `--fetch` fills FOLDER with those of `config_sources.py`. What a file
leaves to its user (the model, the batch size, the lengths) is given here, and said.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oomcast import estimate
from oomcast.errors import BadInput, OomcastError
from oomcast.spec import Spec

from .config_sources import fetch_files

__all__ = ["add_to"]

_MODEL, _TOKENS = "hf:meta-llama/Llama-3.2-3B", 512
"""What most of the adapters of `config_sources.py` were made for: some hold its sizes."""


@dataclass(frozen=True)
class _Answer:
    file: str
    outcome: str
    """answered, refused (a sentence says why), or failed."""
    gave: tuple[str, ...]
    """What the file does not say."""
    detail: str


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "configs", help="public configuration files, read as they are"
    )
    parser.add_argument("folder", type=Path, help="a folder with a folder of files for each format")
    parser.add_argument(
        "--fetch", type=Path, metavar="CLONES", help="fill the folder first, from clones of public repositories there"
    )
    parser.add_argument("--format", action="append", default=[], help="only this one; may be given several times")
    parser.add_argument("--files", type=int, default=5, help="answers wanted of each format (default: 5; 0: all files)")
    parser.add_argument("--read-only", action="store_true", help="read the files, without running the jobs")
    parser.add_argument("--device", default="h100-80gb")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.fetch is not None:
        fetch_files(options.fetch, options.folder)
    if not options.folder.is_dir():
        raise BadInput(f"there is no folder {options.folder}.")
    short = []
    for folder in sorted(path for path in options.folder.iterdir() if path.is_dir()):
        if options.format and folder.name not in options.format:
            continue
        answers = _answers(folder, options)
        counted = Counter(answer.outcome for answer in answers)
        if options.json:
            print(json.dumps({"format": folder.name, **counted, "files": [asdict(answer) for answer in answers]}))
        else:
            print(f"{folder.name}: " + ", ".join(f"{number} {outcome}" for outcome, number in counted.items()))
            for answer in answers:
                gave = f" [gave {', '.join(answer.gave)}]" if answer.gave else ""
                print(f"  {answer.outcome:8s} {answer.file}{gave}: {answer.detail}", flush=True)
        if options.files and counted["answered"] < options.files:
            short.append(folder.name)
    if short:
        print(f"fewer than {options.files} answers: {', '.join(short)}")
    return 1 if short else 0


def _answers(folder: Path, options: argparse.Namespace) -> list[_Answer]:
    """In the order of their names, until enough are answered."""
    answers: list[_Answer] = []
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        answers.append(_answer(file, options))
        if options.files and sum(answer.outcome == "answered" for answer in answers) >= options.files:
            break
    return answers


def _answer(file: Path, options: argparse.Namespace) -> _Answer:
    gave: dict[str, Any] = {}
    for _ in range(4):
        try:
            return _Answer(file.name, "answered", tuple(gave), _ask(file, gave, options))
        except OomcastError as error:
            missing = {
                "--model": ("model", _MODEL),
                "--batch-size": ("batch_size", 1),
                "--seq-len": ("seq_len", _TOKENS),
            }
            said = next(
                (
                    gift
                    for flag, gift in missing.items()
                    if f"give {flag}" in str(error) or f"with {flag}" in str(error)
                ),
                None,
            )
            if said is None or said[0] in gave:
                outcome = "refused" if isinstance(error, BadInput) else "failed"
                return _Answer(file.name, outcome, tuple(gave), str(error).splitlines()[0])
            gave[said[0]] = said[1]
    return _Answer(file.name, "failed", tuple(gave), "it asks for more than a model, a batch size and a length")


def _ask(file: Path, gave: dict[str, Any], options: argparse.Namespace) -> str:
    if options.read_only:
        workload = Spec.read(file, device=options.device, **gave).workload
        return f"{workload.model}: " + "; ".join(workload.notes)
    answer = estimate(file, device=options.device, **gave)
    return f"{answer.device_total / 2**30:.2f} GiB, {answer.seconds:.0f} s"
