"""Inputs read one after the other in a process of their own, which is watched: time, memory, and code that is run."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from oomcast.errors import OomcastError

from .targets import TARGETS

__all__ = ["MEMORY", "SECONDS", "Finding", "Outcome", "attack", "input_of"]

SECONDS = 10.0
"""Of the processor, for one input of at most a few hundred KB."""
MEMORY = 512 << 20
"""Bytes that one input may take beyond what the process has, or ten times its size, if that is more."""
_STALLED = 300.0
"""Seconds without a word after which a process is taken to hang in code that no signal interrupts."""
_EVERY = 50
_RUNS_CODE = (
    "os.system",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "pty.spawn",
    "socket.connect",
    "socket.bind",
    "ctypes.dlopen",
    "code.__new__",
    "marshal.loads",
    "pickle.find_class",
)


class _TooLong(BaseException):
    """No reader may catch it by chance."""


class _RanCode(BaseException):
    """The same."""


@dataclass(frozen=True)
class Finding:
    """An input that was not read or refused as it should be."""

    target: str
    number: int
    what: str


@dataclass
class Outcome:
    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0


def input_of(target: str, number: int, seed: int, known: tuple[bytes, ...]) -> bytes:
    """The same for ever: it follows from these alone."""
    return TARGETS[target].change(known, Random(f"{seed}:{target}:{number}"))


def attack(target: str, count: int, seed: int, deadline: float) -> tuple[Outcome, list[Finding]]:
    """Read the target's first inputs, until there are so many or the time (of `time.monotonic`) has come."""
    outcome, findings = Outcome(), []
    started, number = time.monotonic(), 0
    known = TARGETS[target].seeds()
    while number < count and time.monotonic() < deadline:
        number, found = _in_a_process(target, (number, count), seed, known, deadline, outcome)
        if found is not None:
            findings.append(found)
    outcome.seconds = time.monotonic() - started
    return outcome, findings


def _in_a_process(
    target: str, numbers: tuple[int, int], seed: int, known: tuple[bytes, ...], deadline: float, outcome: Outcome
) -> tuple[int, Finding | None]:
    """The number to go on with, and what was found at the one before."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_read_all, args=(target, numbers, seed, known, deadline, theirs))
    process.start()
    theirs.close()
    reached = numbers[0]
    try:
        while ours.poll(_STALLED):
            kind, number, what = ours.recv()
            if kind == "at":
                outcome.inputs += number - reached
                outcome.accepted += what
                reached = number
            elif kind == "done":
                return numbers[1], None
            else:
                outcome.inputs += number + 1 - reached
                return number + 1, Finding(target, number, what)
        return reached + _EVERY, Finding(target, reached, f"hangs, here or within the next {_EVERY}")
    except EOFError:
        process.join()
        return reached + _EVERY, Finding(
            target, reached, f"dies ({process.exitcode}), here or within the next {_EVERY}"
        )
    finally:
        process.kill()
        process.join()
        ours.close()


def _read_all(
    target: str, numbers: tuple[int, int], seed: int, known: tuple[bytes, ...], deadline: float, tell: Connection
) -> None:
    described = TARGETS[target]
    signal.signal(signal.SIGPROF, _too_long)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        path = Path(folder) / f"input{described.suffix}"
        for data in known:  # what is loaded when it is needed is loaded now
            path.write_bytes(data)
            with contextlib.suppress(OomcastError):
                described.read(path)
        watch = _Watch(folder)
        sys.addaudithook(watch)
        accepted, number = 0, numbers[0]
        for number in range(*numbers):
            data = input_of(target, number, seed, known)
            path.write_bytes(data)
            try:
                with watch, _limits(len(data)):
                    described.read(path)
                accepted += 1
            except OomcastError as error:
                what = _fault_of(error)
                if what:
                    tell.send(("found", number, what))
                    return
            except BaseException as error:
                lines = traceback.format_exception(error)
                tell.send(("found", number, f"{type(error).__name__}: {str(error)[:300]}\n{''.join(lines[-3:])}"))
                return
            if number % _EVERY == 0:
                tell.send(("at", number, accepted))
                accepted = 0
                if time.monotonic() > deadline:
                    break
        tell.send(("at", number + 1, accepted))
        tell.send(("done", number, ""))


def _fault_of(error: OomcastError) -> str:
    """A refusal is one sentence of a length that a person reads."""
    text = str(error)
    if len(text) > 2000:
        return f"a sentence of {len(text)} characters: {text[:100]}"
    return "" if text.strip() else "a refusal without a word"


class _Watch:
    """An audit hook. While an input is read, nothing may run code, start programs or write outside of the folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._on = False

    def __enter__(self) -> None:
        self._on = True

    def __exit__(self, *exc: object) -> None:
        self._on = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on or event not in _RUNS_CODE:
            return
        if event == "marshal.loads" and sys._getframe(1).f_code.co_filename.startswith("<frozen importlib"):
            return
        if event == "ctypes.dlopen" and (not arguments or arguments[0] is None):
            return
        if event in ("os.fork", "subprocess.Popen") and _is_our_own(arguments):
            return
        raise _RanCode(f"{event} {str(arguments)[:200]}")


def _is_our_own(arguments: tuple[Any, ...]) -> bool:
    """The capture process and the one that asks cuDNN: a command that takes a job starts them."""
    return len(arguments) > 1 and "oomcast." in str(arguments[1])


@contextlib.contextmanager
def _limits(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = _data_bytes() + max(MEMORY, 10 * size)
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    with open("/proc/self/statm", "rb") as stream:
        return int(stream.read().split()[5]) * resource.getpagesize()


def _too_long(number: int, frame: FrameType | None) -> None:
    raise _TooLong(f"more than {SECONDS:g} s")
