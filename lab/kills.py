"""`python -m lab kills`: oomcast killed at random moments, and what must hold afterwards.

No process is left after five seconds, no file is half written, no answer is another job's, and a campaign loses no
case and counts none twice. A surface is where oomcast is killed: its command, a program that uses it as a library, a
campaign on SQLite or PostgreSQL, a campaign whose Ray workers are killed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from oomcast.errors import OomcastError, UnknownName
from oomcast.methods.measure.processes import descendants, is_alive, process_start

__all__ = ["SURFACES", "Tally", "add_to"]

_MARK = "OOMCAST_KILLS"
_GRACE = 5.0
_SLOWEST = 600.0
"""Seconds in which a process ends that nobody kills."""
_SIGNALS: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
_CASES = 40
_JOB = """
import torch

def model():
    return torch.nn.Sequential(*[torch.nn.Linear({width}, {width}) for _ in range(30)])

def batch(batch_size):
    return torch.randn(batch_size, {width}), torch.zeros(batch_size, dtype=torch.long)
"""
_LIBRARY = """
import sys, oomcast

def ask(job):
    return oomcast.estimate(job, batch_size=2, device="a100-40gb", steps=1).peak_allocated

known = {job: ask(job) for job in sys.argv[2:]}
print("ready", flush=True)
while True:
    for job in sys.argv[2:]:
        try:
            right = ask(job) == known[job]
        except KeyboardInterrupt:
            continue
        with open(sys.argv[1], "a") as log:
            log.write("right\\n" if right else "WRONG\\n")
"""
_CAMPAIGN = """
import sys
from lab.kills import quick_cases
from oomcast.methods.measure import Conditions, Limits, Store, engines, run_campaign

where, engine, log = sys.argv[1:]
chosen = engines.LocalEngine(workers=2) if engine == "local" else engines.RayEngine("local")
with Store.open(where) as store:
    run_campaign(quick_cases(log), store, chosen, conditions=Conditions(Limits(seconds=60, bytes=256 << 20)))
"""
_CASE = """
import os
log = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(log, b"{number}\\n")
held = bytearray({number} << 12)
"""


@dataclass
class Tally:
    """What came of the kills on one surface."""

    kills: int = 0
    by_signal: Counter[str] = field(default_factory=Counter)
    finished: int = 0
    """How often the process had ended before the signal came."""
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0


class _Surface:
    """One run of a surface: a folder, a mark that every process of it carries, a tally."""

    def __init__(self, folder: Path, random: Random, kills: int, until: float) -> None:
        self.folder, self.random, self.kills, self.until = folder, random, kills, until
        self.mark = uuid.uuid4().hex
        self.tally = Tally()
        self.seen: dict[int, str] = {}
        """Descendants of what was started: a process that renames itself, as Ray's do, loses its mark."""

    def goes_on(self) -> bool:
        return self.tally.kills < self.kills and time.monotonic() < self.until

    def start(self, *command: str, **options: Any) -> subprocess.Popen[bytes]:
        environment = {**os.environ, _MARK: self.mark, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_heed_signals,
            **options,
        )

    def watch(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        """Until the process has ended, or for so long, looking at what it starts; whether it has ended."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            self.seen |= {other: process_start(other) for other in descendants(process.pid)}
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(rest, 0.2))
                return True
        return process.poll() is not None

    def left(self) -> dict[int, str]:
        """Living processes of this surface: id → command line."""
        self.seen = {other: started for other, started in self.seen.items() if is_alive(other, started)}
        return {**{other: command_of(other) for other in self.seen}, **marked(self.mark)}

    def kill(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """The process alone: what it has started must find out by itself."""
        self.seen |= {other: process_start(other) for other in descendants(process.pid)}
        self.count(number)
        if process.poll() is not None:
            self.tally.finished += 1
        process.send_signal(number)

    def count(self, number: signal.Signals) -> None:
        self.tally.kills += 1
        self.tally.by_signal[number.name] += 1

    def ends(self, process: subprocess.Popen[bytes]) -> None:
        """Soon, with all that it has started."""
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            self.tally.faults.append("the process did not end within 60 s of the signal")
            process.kill()
            process.wait()
        deadline = time.monotonic() + _GRACE
        while left := self.left():
            if time.monotonic() > deadline:
                self.tally.faults.append(f"left behind: {left}")
                for other in left:
                    with contextlib.suppress(OSError):
                        os.kill(other, signal.SIGKILL)
                return
            time.sleep(0.1)


def _heed_signals() -> None:
    """What `nohup` and a shell's `&` have this process ignore would be ignored by what it starts, too."""
    for number in _SIGNALS[:-1]:
        signal.signal(number, signal.SIG_DFL)


def marked(mark: str) -> dict[int, str]:
    """Living processes that carry the mark: id → command line."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            carries = f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if carries and (command := command_of(int(folder.name))):
                found[int(folder.name)] = command
    return found


def command_of(process: int) -> str:
    """Its command line; empty for one that has ended and only waits to be noticed."""
    with contextlib.suppress(OSError):
        line = Path(f"/proc/{process}/cmdline").read_bytes()
        return line.replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    return ""


# -- the surfaces ------------------------------------------------------------------------------------------------------


def _kill_command(surface: _Surface) -> None:
    """`oomcast estimate` with files to write: they are whole, or as before."""
    folder = surface.folder
    (folder / "job.py").write_text(_JOB.format(width=300))
    page, figure = folder / "page.html", folder / "figure.svg"
    options = ["--batch-size", "2", "--device", "a100-40gb", "--html", str(page), "--figure", str(figure), "--json"]
    command = [sys.executable, "-c", "import sys; from oomcast.cli import main; sys.exit(main())", "estimate"]
    process = surface.start(*command, "job.py", *options, stdout=subprocess.DEVNULL)
    started = time.monotonic()
    process.wait(_SLOWEST)
    usual = time.monotonic() - started
    while surface.goes_on():
        for path in (page, figure):
            path.write_text(f"before {path.name}")
        process = surface.start(*command, "job.py", *options, stdout=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(surface.random.uniform(0, usual))
        surface.kill(process, surface.random.choice(_SIGNALS))
        surface.ends(process)
        for path, end in ((page, "</html>"), (figure, "</svg>")):
            content = path.read_text().rstrip()
            if content != f"before {path.name}" and not content.endswith(end):
                surface.tally.faults.append(f"{path.name} is half written: {len(content)} characters")


def _kill_library(surface: _Surface) -> None:
    """A program that estimates two jobs in turn and catches Ctrl-C; then it is killed for good."""
    jobs = []
    for name, width in (("first.py", 100), ("second.py", 300)):
        (surface.folder / name).write_text(_JOB.format(width=width))
        jobs.append(str(surface.folder / name))
    log = surface.folder / "log"
    while surface.goes_on():
        process = surface.start(sys.executable, "-c", _LIBRARY, str(log), *jobs, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(surface.random.randint(1, 8)):
            if not surface.goes_on() or process.poll() is not None:
                break
            time.sleep(surface.random.uniform(0, 1.5))
            surface.kill(process, signal.SIGINT)
        time.sleep(surface.random.uniform(0, 1.5))
        surface.kill(process, surface.random.choice((signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)))
        surface.ends(process)
        process.stdout.close()
        wrong = log.read_text().count("WRONG") if log.exists() else 0
        if wrong:
            surface.tally.faults.append(f"{wrong} answers of another job")
            log.unlink()


def quick_cases(log: str) -> list[Any]:
    """Cases of a campaign that take as long as Python takes to start; each leaves its number in the log."""
    from oomcast.methods.measure import CaseSpec, case_key

    made = []
    for number in range(_CASES):
        source, parameters = _CASE.format(log=log, number=number), {"number": number}
        key = case_key("plain", parameters, "python", "cpu", number, 1, source)
        made.append(CaseSpec(key, "kills", "array", "plain", parameters, "python", "cpu", number, 1, source))
    return made


def _kill_campaigns(surface: _Surface, where: str, engine: str, empty: Callable[[], None]) -> None:
    """Killed, started again and so on, until every case is done; then from the beginning."""
    while surface.goes_on():
        empty()
        log = surface.folder / f"log-{uuid.uuid4().hex}"
        for kill in range(1000):
            before = _finished(where)
            seen = len(_runs(log))
            process = surface.start(sys.executable, "-c", _CAMPAIGN, where, engine, str(log), stdout=subprocess.DEVNULL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(surface.random.uniform(0.3, 4.0))
            ended = process.poll() is not None
            if not ended and not surface.goes_on():
                process.wait(_SLOWEST)
                ended = True
            if not ended:
                surface.kill(process, surface.random.choice(_SIGNALS))
            surface.ends(process)
            again = {number for key, number in before.items()} & set(_runs(log)[seen:])
            if again:
                surface.tally.faults.append(f"finished cases were run again: {sorted(again)}")
            if ended:
                _check_campaign(surface, where, log, kill)
                break


def _check_campaign(surface: _Surface, where: str, log: Path, kills: int) -> None:
    done, ran = _finished(where), Counter(_runs(log))
    if Counter(done.values()) != Counter(range(_CASES)):
        surface.tally.faults.append(f"cases lost or doubled: {sorted(done.values())}")
    if set(ran) != set(range(_CASES)):
        surface.tally.faults.append(f"cases that never ran: {sorted(set(range(_CASES)) - set(ran))}")
    if ran.total() > _CASES + 2 * kills:  # two workers: what was under way at a kill may run again
        surface.tally.faults.append(f"{ran.total()} runs of {_CASES} cases after {kills} kills")


def _finished(where: str) -> dict[str, int]:
    """Every row of the store: key → the case's number. Doubled keys cannot be: they are counted by row."""
    from oomcast.methods.measure import Store

    with Store.open(where) as store:
        columns = store.columns(["key", "repetition"])
    keys, numbers = columns["key"], columns["repetition"]
    if len(set(keys)) != len(keys):
        raise OomcastError("a case is in the store twice.")
    return dict(zip(keys, numbers, strict=True))


def _runs(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def _kill_sqlite(surface: _Surface) -> None:
    place = surface.folder / "store.db"

    def empty() -> None:
        for path in surface.folder.glob("store.db*"):
            path.unlink()

    _kill_campaigns(surface, str(place), "local", empty)


def _kill_postgresql(surface: _Surface) -> None:
    import psycopg

    with _postgresql() as address:

        def empty() -> None:
            with psycopg.connect(address) as connection:
                connection.execute("DROP SCHEMA public CASCADE")
                connection.execute("CREATE SCHEMA public")

        _kill_campaigns(surface, address, "local", empty)


@contextlib.contextmanager
def _postgresql() -> Iterator[str]:
    """A server of our own in a temporary folder, reached through a socket; it refuses to run as root."""
    folders = [os.environ.get("PATH", ""), *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin")))]
    programs = [shutil.which(name, path=os.pathsep.join(folders)) for name in ("initdb", "pg_ctl")]
    if None in programs:
        raise OomcastError("PostgreSQL's server programs (initdb, pg_ctl) are not on this machine.")
    initdb, pg_ctl = map(str, programs)
    folder = Path(tempfile.mkdtemp(prefix="oompg"))
    user: dict[str, Any] = {}
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    quiet = {"cwd": folder, "check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT, **user}
    data = str(folder / "data")
    subprocess.run([initdb, "-D", data, "-A", "trust", "-U", "oomcast", "-E", "UTF8", "--no-sync"], **quiet)
    options = f"-k {folder} -c listen_addresses='' -c fsync=off"
    subprocess.run([pg_ctl, "-D", data, "-w", "-t", "300", "-l", str(folder / "log"), "-o", options, "start"], **quiet)
    try:
        yield f"postgresql://oomcast@/postgres?host={folder}"
    finally:
        subprocess.run([pg_ctl, "-D", data, "-m", "immediate", "stop"], **quiet)
        shutil.rmtree(folder, ignore_errors=True)


def _kill_ray(surface: _Surface) -> None:
    """Ray's workers are killed while a campaign runs on them, which goes on to its end; or the campaign itself is."""
    while surface.goes_on():
        log, place = surface.folder / f"log-{uuid.uuid4().hex}", surface.folder / f"store-{uuid.uuid4().hex}.db"
        command = (sys.executable, "-c", _CAMPAIGN, str(place), "ray", str(log))
        while surface.goes_on() and surface.random.random() < 0.5:
            process = surface.start(*command, stdout=subprocess.DEVNULL)
            if not surface.watch(process, surface.random.uniform(2, 20)):
                surface.kill(process, surface.random.choice(_SIGNALS))
            surface.ends(process)
        process = surface.start(*command, stdout=subprocess.DEVNULL)
        until, killed = time.monotonic() + _SLOWEST, 0
        while not surface.watch(process, surface.random.uniform(0.2, 2.0)) and time.monotonic() < until:
            workers = [other for other, line in surface.left().items() if line.startswith("ray::measure_plain")]
            if workers and killed < _CASES // 4 and surface.goes_on():
                with contextlib.suppress(OSError):
                    os.kill(surface.random.choice(workers), signal.SIGKILL)
                    killed += 1
                    surface.count(signal.SIGKILL)
        if process.poll() is None:
            surface.tally.faults.append(f"a campaign did not end within {_SLOWEST:.0f} s")
            process.kill()
        surface.ends(process)
        done = Counter(_finished(str(place)).values())
        if done != Counter(range(_CASES)):
            surface.tally.faults.append(f"cases lost or doubled: {sorted(done.elements())}")


SURFACES: Mapping[str, Callable[[_Surface], None]] = {
    "command": _kill_command,
    "library": _kill_library,
    "sqlite": _kill_sqlite,
    "postgresql": _kill_postgresql,
    "ray": _kill_ray,
}
_SHARES = {"command": 0.1, "library": 0.25, "sqlite": 0.3, "postgresql": 0.3, "ray": 0.05}


# -- the command -------------------------------------------------------------------------------------------------------


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("kills", help="oomcast killed at random moments")
    parser.add_argument("--surfaces", nargs="+", default=list(SURFACES), metavar="NAME", help="(default: all)")
    parser.add_argument("--kills", type=int, default=1000, metavar="N", help="in all (default: 1000)")
    parser.add_argument("--seconds", type=float, default=7200.0, metavar="S", help="at most (default: 7200)")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for name in options.surfaces:
        if name not in SURFACES:
            raise UnknownName("surface", name, SURFACES)
    whole = sum(_SHARES[name] for name in options.surfaces)
    tallies = {}
    for name in options.surfaces:
        share = _SHARES[name] / whole
        tallies[name] = _attack(name, round(options.kills * share), options.seconds * share, options.seed)
        if not options.json:
            _tell(name, tallies[name])
    if options.json:
        print(json.dumps({name: vars(tally) for name, tally in tallies.items()}))
    faults = sum(len(tally.faults) for tally in tallies.values())
    if not options.json:
        print(f"{sum(tally.kills for tally in tallies.values())} kills, {faults} faults")
    return 1 if faults else 0


def _attack(name: str, kills: int, seconds: float, seed: int) -> Tally:
    folder = Path(tempfile.mkdtemp(prefix="oomcast-kills-"))
    surface = _Surface(folder, Random(f"{seed}:{name}"), max(kills, 1), time.monotonic() + seconds)
    started = time.monotonic()
    try:
        SURFACES[name](surface)
    finally:
        for process in surface.left():
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
    surface.tally.seconds = time.monotonic() - started
    return surface.tally


def _tell(name: str, tally: Tally) -> None:
    signals = ", ".join(f"{count} {number}" for number, count in sorted(tally.by_signal.items()))
    print(f"{name:12} {tally.kills:5} kills ({signals}; {tally.finished} too late)  {tally.seconds:6.0f} s", flush=True)
    for fault in tally.faults[:10]:
        print(f"  {fault}", flush=True)
