"""`python -m lab scripts FOLDER`: public scripts, unmodified, through `oomcast run`.

FOLDER keeps the repositories, each as `owner+name`; one that is not there is cloned from GitHub by its name. Every
script runs in its own checkout, on data made for it, and nothing that it writes may stay there.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oomcast.errors import BadInput, OomcastError
from oomcast.spec import read_launch

from .frameworks import FRAMEWORKS
from .table import SCRIPTS, PublicScript
from .what_follows import what_follows

__all__ = ["Outcome", "add_to", "summary"]


_OF_NETWORKS = (
    "URLError",
    "Error downloading",
    "ConnectionError",
    "Max retries",
    "Name or service",
    "OfflineMode",
    "couldn't connect",
    "HTTPError",
)
_OF_PACKAGES = ("needs the package", "ImportError", "is not installed", "no script")


@dataclass(frozen=True)
class Outcome:
    name: str
    steps: int = 0
    ending: str = ""
    evaluation: bool = False
    saving: bool = False
    writes_outside: tuple[str, ...] = ()
    seconds: float = 0.0
    device_total: int = 0
    against_job: float | None = None
    """How far the peak is from that of the job, as a share of it."""
    said: str = ""
    has: tuple[str, ...] = ()
    """Of `evaluation` and `saving`: what its code has besides training."""
    times: float | None = None
    """The time of its own two steps on torch's meta device, its data loading with them."""

    @property
    def full_step(self) -> bool:
        return self.steps >= 2

    @property
    def reached(self) -> tuple[str, ...]:
        return tuple(name for name, seen in (("evaluation", self.evaluation), ("saving", self.saving)) if seen)

    @property
    def survived(self) -> bool:
        """Whether nothing that it did after its training step was too much for the virtual GPU."""
        return self.full_step and self.ending != "failed"

    @property
    def lacks(self) -> str:
        """What this machine has not and the script needs; "" where the failure is ours, or there is none."""
        if self.full_step:
            return ""
        if any(word in self.said for word in _OF_NETWORKS):
            return "the network"
        return "a package" if any(word in self.said for word in _OF_PACKAGES) else ""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "scripts",
        help="public training scripts through oomcast run",
        description="Run public training scripts, unmodified, on tiny data: what is seen of each.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where the repositories are kept, as owner+name")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="only scripts whose name or line has this in it"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th of them, as a sample of the table")
    parser.add_argument("--device", default="a100-40gb", metavar="GPU")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S")
    parser.add_argument(
        "--ratio",
        action="store_true",
        help="also run each script's own two steps on torch's meta device, with nothing recorded, and compare the time",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    chosen = [one for one in (*SCRIPTS, *FRAMEWORKS) if not options.only or _is_meant(one, options.only)]
    chosen = chosen[:: max(options.every, 1)]
    if not chosen:
        raise BadInput("no script of the table has such a name.")
    # Commands such as `yolo` and `accelerate` are those of this environment.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    outcomes = []
    for script in chosen:
        outcome = _tried(script, options)
        outcomes.append(outcome)
        if not options.json:
            print(_line(outcome), flush=True)
    if options.json:
        print(json.dumps([{**asdict(one), "reached": one.reached, "lacks": one.lacks} for one in outcomes], indent=2))
    else:
        print(summary(outcomes))
    return 0


def summary(outcomes: list[Outcome]) -> str:
    """A row whose code has neither evaluation nor saving has nothing to survive."""
    full = [one for one in outcomes if one.full_step]
    having = [one for one in full if one.has]
    seen = [one for one in having if one.reached]
    lacking = sum(bool(one.lacks) for one in outcomes)
    return (
        f"{len(full)} of {len(outcomes)} give a full step ({lacking} others lack the network or a package here), "
        f"{sum(one.survived for one in full)} survive what follows, "
        f"{sum(not one.writes_outside for one in outcomes)} wrote nowhere else.\n"
        f"{len(having)} evaluate or save by their code: {len(seen)} were seen to, "
        f"{sum(set(one.has) <= set(one.reached) for one in having)} in all that they have; "
        f"{sum(one.survived for one in seen)} were seen to and survived."
    )


def _is_meant(script: PublicScript, words: list[str]) -> bool:
    return any(word in f"{script.name} {script.line}" for word in words)


def _line(outcome: Outcome) -> str:
    if outcome.steps < 2:
        lacks = f"this machine lacks {outcome.lacks}: " if outcome.lacks else ""
        return f"{'LACKS ' if lacks else 'FAILS '} {outcome.name}: {lacks}{outcome.said}"
    job = "" if outcome.against_job is None else f", {outcome.against_job:+.2%} from its job"
    writes = f", WROTE {', '.join(outcome.writes_outside[:3])}" if outcome.writes_outside else ""
    times = "" if outcome.times is None else f" ({outcome.times:.1f} x two steps on meta)"
    has = f"has {' and '.join(outcome.has) or 'neither evaluation nor saving'}"
    phases = f"{has}, reached {' and '.join(outcome.reached) or 'neither'}"
    return (
        f"{'ok    ' if outcome.survived else 'DIED  '} {outcome.name}: {outcome.device_total >> 20} MiB, "
        f"{outcome.steps} steps, {outcome.seconds:.0f} s{times}, {phases}{job}{writes}"
        f"; {outcome.said}"
    )


def _tried(script: PublicScript, options: argparse.Namespace) -> Outcome:
    import oomcast

    checkout = _checkout(script.repository, options.folder)
    folder = checkout / script.folder
    line = script.line
    if script.make is not None:
        place = folder / script.place if script.place else options.folder / "data" / script.make.__name__
        _make_once(script.make, place, anew=not script.place)
        line = line.replace("{data}", str(place.resolve()))
    has = _has(script, line, folder, checkout)
    before = _files(checkout)
    home, path = os.getcwd(), os.environ.get("PYTHONPATH", "")
    if script.on_path:
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str((checkout / script.on_path).resolve()), *([path] if path else [])]
        )
    os.chdir(folder)
    try:
        sys.stderr.write(f"{script.name}\n")
        began = time.monotonic()
        answer = oomcast.run(
            shlex.split(line),
            device=options.device if script.gpus == 1 else f"{script.gpus}x{options.device}",
            time_limit=options.time_limit,
            worst_batch=script.worst_batch,
        )
        taken = time.monotonic() - began
        alone = _on_meta(checkout, script.folder, shlex.split(line)) if options.ratio else None
    except OomcastError as error:
        return Outcome(script.name, said=str(error), has=has, writes_outside=_changed(before, _files(checkout)))
    finally:
        os.chdir(home)
        os.environ["PYTHONPATH"] = path
    assert answer.script is not None
    written = _changed(before, _files(checkout))
    against = None if script.job is None else _against(script.job, answer, folder, options.device)
    return Outcome(
        script.name,
        answer.script.optimizer_steps,
        answer.script.ending.value,
        not any("evaluation" in phase for phase in answer.script.not_seen),
        "checkpoint saving" not in answer.script.not_seen,
        written,
        answer.seconds,
        answer.device_total,
        against,
        answer.script.reason,
        has,
        None if alone is None else taken / alone,
    )


def _has(script: PublicScript, line: str, folder: Path, checkout: Path) -> tuple[str, ...]:
    if script.follows is not None:
        return script.follows
    home = os.getcwd()
    os.chdir(folder)
    try:
        launch = read_launch(tuple(shlex.split(line)))
    except OomcastError:  # it is told when the line is run
        return ()
    finally:
        os.chdir(home)
    target = Path(launch.target.replace(".", "/") + ".py" if launch.is_module else launch.target)
    roots = [folder, checkout, *([checkout / script.on_path] if script.on_path else [])]
    return what_follows(folder / target, roots)


def _make_once(make: Callable[[Path], None], place: Path, anew: bool) -> None:
    """The data of a script; again if they were made by other code than today's, `anew` in an empty folder."""
    source = Path(inspect.getfile(make)).read_bytes()
    done, mark = place / ".made-by-oomcast", hashlib.sha256(source).hexdigest()
    if not done.exists() or done.read_text() != mark:
        if anew:
            shutil.rmtree(place, ignore_errors=True)
        make(place)
        done.write_text(mark)


def _on_meta(checkout: Path, folder: str, line: list[str]) -> float | None:
    """Seconds of the script's own two steps with its GPU on the meta device; None where it does not run there.

    It runs in a copy of its repository, since nothing keeps it from writing.
    """
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "copy"
        shutil.copytree(checkout, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(folder for folder in (root, os.environ.get("PYTHONPATH", "")) if folder)
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "lab.scripts.on_meta", *line],
            cwd=copy / folder,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            timeout=600,
        )
        return time.monotonic() - began if done.returncode == 0 else None


_TRAINING = ("input", "forward", "backward", "optimizer", "zero_grad")


def _against(job: tuple[str, dict[str, Any]], answer: Any, folder: Path, device: str) -> float | None:
    """How far the training peak of the script is from that of the job. Evaluation is no part of a job."""
    import oomcast

    name, settings = job
    source, beside = Path(__file__).parent / "jobs" / name, folder / f"oomcast_job_{name}"
    if source.exists():  # a job file imports what lies beside it
        beside.write_bytes(source.read_bytes())
    try:
        expected = oomcast.estimate(str(beside.resolve()) if source.exists() else name, device=device, **settings)
    except OomcastError as error:
        sys.stderr.write(f"its job: {error}\n")
        return None
    finally:
        beside.unlink(missing_ok=True)
    ours, others = (
        max(one.highest_by_phase[phase][0] for phase in _TRAINING if phase in one.highest_by_phase)
        for one in (answer, expected)
    )
    return float(ours / others - 1)


def _checkout(repository: str, folder: Path) -> Path:
    place = folder / repository.replace("/", "+")
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        source = f"https://github.com/{repository}"
        done = subprocess.run(
            ["git", "clone", "-q", "--depth", "1", source, str(place)], capture_output=True, text=True
        )
        if done.returncode:
            raise BadInput(f"{repository} cannot be cloned: {done.stderr.strip().splitlines()[-1]}")
    return place


def _files(checkout: Path) -> dict[str, tuple[int, int]]:
    """Every file with its time and size, but for git's own."""
    found = {}
    for folder, folders, names in os.walk(checkout):
        folders[:] = [name for name in folders if name != ".git"]
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                state = os.stat(path)
                found[path] = state.st_mtime_ns, state.st_size
    return found


def _changed(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> tuple[str, ...]:
    return tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)))
