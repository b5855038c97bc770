"""Cases as job arrays of Slurm: this process claims and stores, the cluster's nodes measure.

Cases and answers pass through a folder that every node sees. One array is submitted for all cases that are ready at a
time; each of its tasks measures one case in an allocation of its own, so that a case has its cores, its memory and its
GPU to itself.
"""

from __future__ import annotations

import contextlib
import json
import math
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from oomcast.errors import BadInput, OomcastError

from ..case_run import Conditions
from ..environment import environment_of
from ..measurement import CaseSpec, Measurement, Outcome
from .elsewhere import ANSWER, QUESTION, plain_case, plain_conditions

__all__ = ["SlurmEngine"]

_TRIES = 3
"""How often a case is submitted when its task ends without an answer."""
_LOOK_SECONDS = 2.0
_GRACE = 3
"""Looks at the queue without the task, before it counts as lost: its answer may still be on its way to this node."""
_MORE_SECONDS = 120
"""For the task's own start, beside the case's limit."""
_MORE_BYTES = 256 << 20
"""For the process that watches the case."""


@dataclass(frozen=True)
class SlurmEngine:
    """`folder` is seen by every node, as is the Python that runs this; `options` are sbatch's own (--partition=gpu).

    A task asks for as many CPUs as a case has threads, for its memory limit, for its time limit and, for cases on a
    GPU, for one GPU; `options` can say otherwise.
    """

    folder: Path
    options: tuple[str, ...] = ()
    most: int = 256
    """Cases that are submitted and not yet answered."""

    @contextlib.contextmanager
    def start(self, conditions: Conditions) -> Iterator[_SlurmSession]:
        for program in ("sbatch", "squeue", "scancel"):
            if shutil.which(program) is None:
                raise BadInput(f"the engine slurm needs {program}, which is not on the PATH; run it on a Slurm node.")
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="oomcast-slurm-", dir=self.folder) as exchange:
            session = _SlurmSession(Path(exchange), conditions, self.options, self.most)
            try:
                yield session
            finally:
                session.close()


@dataclass
class _Submitted:
    case: CaseSpec
    marker: str
    tries: int
    folder: Path
    task: str = ""
    """`JOB_INDEX`, as squeue writes it."""
    missed: int = 0


class _SlurmSession:
    def __init__(self, folder: Path, conditions: Conditions, options: Sequence[str], most: int) -> None:
        self._folder = folder
        self._conditions = conditions
        self._options = tuple(options)
        self._most = most
        self._waiting: list[_Submitted] = []
        self._under_way: list[_Submitted] = []
        self._jobs: set[str] = set()
        self._arrays = 0
        self._looked = 0.0

    def has_room(self, device: str) -> bool:
        devices = {one.case.device for one in self._waiting}
        return len(self._waiting) + len(self._under_way) < self._most and devices <= {device}

    def submit(self, case: CaseSpec, marker: str, tries: int = 1) -> None:
        self._waiting.append(_Submitted(case, marker, tries, self._folder))

    def collect(self, timeout: float) -> list[Measurement]:
        if self._waiting:
            self._submit_array()
        measured = self._answered()
        if not measured and self._under_way:
            time.sleep(timeout)
            measured = self._answered()
        if not measured and time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._looked = time.monotonic()
            measured = self._lost()
        return measured

    def close(self) -> None:
        if self._jobs and self._under_way:
            _slurm(["scancel", *sorted(self._jobs)], check=False)
        self._under_way.clear()

    def _submit_array(self) -> None:
        folder = self._folder / f"array{self._arrays}"
        self._arrays += 1
        for index, one in enumerate(self._waiting):
            one.folder = folder / str(index)
            one.folder.mkdir(parents=True)
            question = {
                "case": plain_case(one.case),
                "conditions": plain_conditions(self._conditions),
                "marker": one.marker,
            }
            (one.folder / QUESTION).write_text(json.dumps(question), encoding="utf-8")
        module = "oomcast.methods.measure.engines.elsewhere"
        script = folder / "array.sh"
        # The task's own number is only known to the shell that runs it.
        task = f"{shlex.quote(str(folder))}/$SLURM_ARRAY_TASK_ID"
        script.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} {task}\n", encoding="utf-8")
        job = _slurm(["sbatch", "--parsable", *self._asked_for(folder), *self._options, str(script)]).strip()
        job = job.split(";")[0]
        self._jobs.add(job)
        for index, one in enumerate(self._waiting):
            one.task = f"{job}_{index}"
        self._under_way += self._waiting
        self._waiting = []

    def _asked_for(self, folder: Path) -> list[str]:
        limits = self._conditions.limits
        asked = [
            f"--array=0-{len(self._waiting) - 1}",
            "--job-name=oomcast",
            f"--output={folder}/%a/log",
            "--ntasks=1",
            f"--cpus-per-task={self._conditions.threads}",
            f"--time={math.ceil((limits.seconds + _MORE_SECONDS) / 60)}",
        ]
        if limits.bytes is not None:
            asked.append(f"--mem={(limits.bytes + _MORE_BYTES) >> 20}M")
        if self._waiting[0].case.device != "cpu":
            asked.append("--gpus=1")
        return asked

    def _answered(self) -> list[Measurement]:
        measured = []
        for one in list(self._under_way):
            try:
                answer = json.loads((one.folder / ANSWER).read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue  # not there yet
            self._under_way.remove(one)
            if "error" in answer:
                kind = BadInput if answer.get("exit_code") == BadInput.exit_code else OomcastError
                raise kind(str(answer["error"]))
            measured.append(Measurement.from_dict(answer["measurement"], one.case))
        return measured

    def _lost(self) -> list[Measurement]:
        """Tasks that Slurm no longer has, and that left no answer."""
        if not self._under_way:
            return []
        jobs = f"--jobs={','.join(sorted(self._jobs))}"
        listed = set(_slurm(["squeue", "--noheader", "--array", "--format=%i", jobs], check=False).split())
        lost = []
        for one in list(self._under_way):
            one.missed = 0 if one.task in listed else one.missed + 1
            if one.missed < _GRACE or (one.folder / ANSWER).exists():
                continue
            self._under_way.remove(one)
            if one.tries < _TRIES:
                self.submit(one.case, one.marker, one.tries + 1)
            else:
                lost.append(self._measurement_of_lost(one))
        return lost

    def _measurement_of_lost(self, one: _Submitted) -> Measurement:
        """A case that ends its task each time must not stop the others."""
        try:
            last = (one.folder / "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1][:300]
        except (OSError, IndexError):
            last = "it left no log"
        killed = any(word in last.lower() for word in ("oom", "out of memory"))
        return Measurement(
            case=one.case,
            outcome=Outcome.OOM if killed else Outcome.CRASH,
            peak_bytes=0,
            seconds=0.0,
            environment=environment_of(one.case.framework, {}, {}, threads=self._conditions.threads),
            message=f"its Slurm task ended {_TRIES} times without an answer: {last}",
        )


def _slurm(command: Sequence[str], *, check: bool = True) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and ran.returncode:
        lines = [line for line in ran.stderr.splitlines() if line.strip()] or [f"exit code {ran.returncode}"]
        raise BadInput(f"Slurm refused the cases: {lines[0].strip().rstrip('.')}.")
    return ran.stdout
