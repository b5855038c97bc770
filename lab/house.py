"""`python -m lab house`: the size and the order of the source, by figures that a change can be held against."""

from __future__ import annotations

import argparse
import ast
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

__all__ = ["SOURCE", "Module", "add_to", "is_public", "modules", "wide_functions"]

SOURCE = Path(__file__).parents[1] / "src" / "oomcast"
METHODS = "methods"
MOST_PARAMETERS = 8
_RUNS = 15


class Module:
    """One file of the source, parsed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.relative_to(SOURCE).as_posix()
        text = path.read_text(encoding="utf-8")
        self.lines = len(text.splitlines())
        self.tree = ast.parse(text)

    @property
    def exported(self) -> tuple[str, ...] | None:
        """What `__all__` names; None where there is none."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return tuple(ast.literal_eval(node.value))
        return None


def modules() -> list[Module]:
    return [Module(path) for path in sorted(SOURCE.rglob("*.py"))]


def wide_functions(module: Module, most: int = MOST_PARAMETERS) -> Iterator[tuple[str, int]]:
    """Functions that take more than so many parameters, beside `self`; a method is named with its class."""
    owners = [node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    classes = {id(node): owner.name for owner in owners for node in owner.body}
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = node.args
            names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
            count = len([name for name in names if name not in ("self", "cls")])
            if count > most:
                yield f"{classes[id(node)]}.{node.name}" if id(node) in classes else node.name, count


def is_public(function: str, exported: Collection[str]) -> bool:
    """Whether users call it: a function that a room exports, or a method of such a class that is not private."""
    owner, _, method = function.rpartition(".")
    return (owner or method) in exported and not method.startswith("_")


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "house", help="files, lines, wide functions, files that one estimate crosses, cost of --help"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    figures = _figures()
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for what, figure in figures.items():
            print(f"{what:44} {figure}")
    return 0


def _figures() -> dict[str, Any]:
    listed = modules()
    core = [module for module in listed if not module.name.startswith(METHODS)]
    public = {name for module in listed if module.path.name == "__init__.py" for name in module.exported or ()}
    wide = {
        f"{module.name}:{name}": count
        for module in listed
        for name, count in wide_functions(module)
        if not is_public(name, public)
    }
    return {
        "files": len(listed),
        "lines": sum(module.lines for module in listed),
        "files of the core": len(core),
        "lines of the core": sum(module.lines for module in core),
        "private modules": len(
            [module for module in listed if module.path.name.startswith("_") and "__" not in module.path.name]
        ),
        f"functions above {MOST_PARAMETERS} parameters, not public": len(wide),
        "the widest": max(wide, key=lambda name: wide[name]) if wide else "none",
        "files that run in one estimate": _files_of_one_estimate(),
        "oomcast estimate --help, × python -c pass": _cost_of_help(),
    }


_FOLLOWED = """
import inspect, sys, threading
seen = set()
def follow(frame, event, argument):
    if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # the bodies of modules and classes are not
        name = frame.f_code.co_filename
        if "/src/oomcast/" in name:
            seen.add(name.rpartition("/src/oomcast/")[2])
sys.setprofile(follow); threading.setprofile(follow)
import oomcast
{ask}
sys.setprofile(None)
print("\\n".join(sorted(seen)))
"""


def _files_of_one_estimate() -> int:
    """Files of ours in which a function was called: in the asking process, and in the one that captures."""
    spec = "Spec.read('zoo:resnet18', batch_size=8, device='rtx-3090')"
    asking = "oomcast.estimate('zoo:resnet18', batch_size=8, device='rtx-3090', use_calibration=False)"
    capturing = (
        f"from oomcast.spec import Spec\nfrom oomcast.capture.torch.run import capture_here\ncapture_here({spec})"
    )
    files: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for ask in (asking, capturing):
            done = subprocess.run(
                [sys.executable, "-c", _FOLLOWED.format(ask=ask)],
                capture_output=True,
                text=True,
                check=True,
                env={**_environment(), "OOMCAST_CACHE_DIR": folder},
            )
            files.update(done.stdout.split())
    return len(files)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE.parent)}


def _cost_of_help() -> float:
    """Time of the processor, the median of runs that take turns; with bytecode, as an installed package has it."""
    commands = (
        [sys.executable, "-c", "pass"],
        [sys.executable, "-c", "import sys; from oomcast.cli import main; sys.exit(main(['estimate', '--help']))"],
    )
    times: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as folder:
        environment = {**_environment(), "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for command in commands:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        for _ in range(_RUNS):
            for command, spent in zip(commands, times, strict=True):
                before = _time_of_children()
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
                spent.append(_time_of_children() - before)
    return round(statistics.median(times[1]) / statistics.median(times[0]), 2)


def _time_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
