"""`oomcast spec check FILE.sofl`: compiles specifications, shows their conditions, and tries cases on them."""

from __future__ import annotations

import argparse
import csv
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BadInput, UnreadableFile
from ..command_parts import add_actions, needing

if TYPE_CHECKING:
    from .specification import Library, Process, Rejection

__all__ = ["SUMMARY", "add_to"]

SUMMARY = "check formal specifications (SOFL) of layers and cases, and filter cases by them"
_EXAMPLES = """examples:
  oomcast spec check listing1.sofl
  oomcast spec check listing1.sofl --case W1=224,H1=224,D1=3,W2=224,H2=224,D2=64,K=64,F=3,S=1,P=1
  oomcast spec check listing1.sofl --cases cases.csv --passing kept.csv

exit codes: 0 all is well, 3 a case is rejected, 2 bad input, 1 failure"""
_REJECTED = 3


def add_to(commands: Any) -> None:
    actions = add_actions(
        commands,
        "spec",
        SUMMARY,
        "Formal specifications in the form of SOFL: what a layer or a case must satisfy before it is run.",
        _EXAMPLES,
    )
    parser = actions.add_parser("check", help="read and compile specifications; try cases on them")
    parser.add_argument("files", nargs="+", metavar="FILE", help="specifications (.sofl), read as one name space")
    parser.add_argument("--process", metavar="NAME", help="the process that cases are for (default: the only one)")
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        metavar="NAME=VALUE,…",
        help="a case to try; may be given again. A sequence is written as in JSON: x=[8,512]",
    )
    parser.add_argument("--cases", metavar="FILE", help="a CSV file of cases, one a line, names in the first")
    parser.add_argument("--passing", metavar="FILE", help="with --cases: write the lines that pass there")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=needing("campaign", _check))


def _check(options: argparse.Namespace) -> int:
    from ...cli.terminal import terminal
    from .specification import read_library

    library = read_library([Path(file) for file in options.files])
    if not library.processes:
        raise BadInput(f"{', '.join(options.files)} has no process; write process Name(…) … end_process.")
    if options.passing and not options.cases:
        raise BadInput("--passing takes the lines of --cases that pass; add --cases FILE.")
    tried = _tried(options, library)
    if options.json:
        plain = {name: _plain(process) for name, process in library.processes.items()}
        print(json.dumps({"processes": plain, "cases": [_outcome(*one) for one in tried]}, indent=2))
    else:
        for process in library.processes.values():
            terminal().print("\n".join(_lines(process)), markup=False, highlight=False, soft_wrap=True)
        for case, rejection in tried:
            words = ", ".join(f"{name}={value}" for name, value in case.items())
            terminal().print(f"{words}: {rejection or 'passes'}", markup=False, highlight=False, soft_wrap=True)
        if tried:
            passing = sum(rejection is None for _, rejection in tried)
            print(f"{passing} of {len(tried)} cases pass")
    if options.passing:
        _write_cases(Path(options.passing), [case for case, rejection in tried if rejection is None])
    return _REJECTED if any(rejection is not None for _, rejection in tried) else 0


def _tried(options: argparse.Namespace, library: Library) -> list[tuple[dict[str, Any], Rejection | None]]:
    cases = [dict(_settings(text)) for text in options.case]
    if options.cases:
        cases += _read_cases(Path(options.cases))
    if not cases:
        return []
    if options.process is None and len(library.processes) > 1:
        raise BadInput(f"say which process the cases are for: --process {' or '.join(library.processes)}.")
    process = library.process(options.process or next(iter(library.processes)))
    return [(case, process.check(case)) for case in cases]


def _settings(text: str) -> Iterator[tuple[str, Any]]:
    """`a=1,s=[1,2]`: commas within brackets belong to the value."""
    depth, start = 0, 0
    pieces = []
    for index, letter in enumerate(text):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            pieces.append(text[start:index])
            start = index + 1
    for piece in [*pieces, text[start:]]:
        name, equals, value = piece.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"cannot read {piece.strip()!r} in --case; write NAME=VALUE.")
        yield name.strip(), _value(value)


def _value(text: str) -> Any:
    try:
        value = json.loads(text.strip().replace("(", "[").replace(")", "]"))
    except ValueError:
        return text.strip()
    return _tuples(value)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _read_cases(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows = [dict(row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UnreadableFile(f"the cases {path} cannot be read: {error}.") from None
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise UnreadableFile(f"{path}:{number}: this line has another number of columns than the first.")
    return [{name.strip(): _value(text) for name, text in row.items()} for row in rows]


def _write_cases(path: Path, cases: Sequence[dict[str, Any]]) -> None:
    from ..command_parts import write_text

    names = list(cases[0]) if cases else []
    lines = [",".join(names), *(",".join(json.dumps(case[name]) for name in names) for case in cases)]
    write_text(path, "\n".join(lines) + "\n")
    print(f"wrote {len(cases)} cases to {path}")


def _lines(process: Process) -> Iterator[str]:
    """The process in the form of the TBEM paper's Definition 3: guards C and definitions D of each scenario."""
    inputs = ", ".join(f"{name}: {type_}" for name, type_ in process.inputs)
    outputs = ", ".join(f"{name}: {type_}" for name, type_ in process.outputs)
    yield f"{process.name}({inputs}) {outputs}   {process.file}:{process.line}"
    yield "  pre  " + " and ".join(condition.text for condition in process.preconditions)
    for number, (guards, defines) in enumerate(_scenarios(process), 1):
        yield f"  C{number}   " + " or ".join(" and ".join(guard) or "true" for guard in guards)
        yield f"  D{number}   " + " and ".join(defines)


def _scenarios(process: Process) -> Iterator[tuple[list[list[str]], list[str]]]:
    """The guards, as alternatives, of each definition; alternatives that share one are told together."""
    for _, group in itertools.groupby(process.scenarios, key=lambda scenario: id(scenario.defines)):
        same = list(group)
        guards = [[condition.text for condition in scenario.guards] for scenario in same]
        yield guards, [condition.text for _, _, condition in same[0].defines]


def _plain(process: Process) -> dict[str, Any]:
    return {
        "file": process.file,
        "line": process.line,
        "inputs": {name: str(type_) for name, type_ in process.inputs},
        "outputs": {name: str(type_) for name, type_ in process.outputs},
        "pre": [condition.text for condition in process.preconditions],
        "scenarios": [{"guards": guards, "defines": defines} for guards, defines in _scenarios(process)],
    }


def _outcome(case: dict[str, Any], rejection: Rejection | None) -> dict[str, Any]:
    return {"case": case, "passes": rejection is None, "rejection": str(rejection) if rejection is not None else None}
