"""A short attack on every kind of input, and what longer ones have found."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.fuzz.mutation import changed_document, changed_text
from lab.fuzz.running import attack, input_of
from lab.fuzz.targets import TARGETS
from oomcast.advise.pack import read_jobs
from oomcast.errors import BadInput, UnknownName, UnreadableFile
from oomcast.spec import Job
from oomcast.trace import trace_from_bytes

CHEAP = ("snapshots", "estimates", "calibrations", "gaps", "specifications", "artifacts", "jobs", "recipes")


@pytest.mark.parametrize("target", CHEAP)
def test_hostile_inputs_are_refused_or_read(target: str) -> None:
    outcome, findings = attack(target, 60, seed=7, deadline=time.monotonic() + 1e6)
    assert [found.what for found in findings] == []
    assert outcome.inputs >= 60


def test_an_input_follows_from_its_number() -> None:
    known = TARGETS["jobs"].seeds()
    assert input_of("jobs", 5, 0, known) == input_of("jobs", 5, 0, known)
    assert len({input_of("jobs", number, 0, known) for number in range(20)}) > 15


def test_the_attack_can_succeed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A reader that fails, hangs, grows or runs code is found."""
    import dataclasses
    import os

    def fails(path: Path) -> None:
        raise KeyError("oh")

    def grows(path: Path) -> None:
        bytearray(2 << 30)

    def runs(path: Path) -> None:
        os.system("true")

    for read, word in ((fails, "KeyError"), (grows, "MemoryError"), (runs, "os.system")):
        calls = []

        def later(path: Path, read=read, calls=calls) -> None:  # type: ignore[no-untyped-def]
            calls.append(path)
            if len(calls) > 1:  # the first reads the seed, before anything is watched
                read(path)

        monkeypatch.setitem(TARGETS, "jobs", dataclasses.replace(TARGETS["jobs"], read=later))  # type: ignore[arg-type]
        _, findings = attack("jobs", 1, seed=0, deadline=time.monotonic() + 1e6)
        assert len(findings) == 1
        assert word in findings[0].what


# -- what was found ----------------------------------------------------------------------------------------------------


def test_sentences_stay_readable() -> None:
    assert len(str(UnknownName("device", "x" * 100_000, ["t4"]))) < 1500
    assert len(str(UnreadableFile("a" * 50_000 + " do this."))) < 1500
    assert str(UnreadableFile("a" * 50_000 + " do this.")).endswith("do this.")


def test_a_small_trace_takes_little_memory() -> None:
    """gzip's reader reserved the largest size that a trace may have, 1 GiB, for a file of 40 bytes."""
    program = (
        "import resource, sys; from oomcast.trace import trace_from_bytes; from oomcast.errors import OomcastError\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (400 << 20, 400 << 20))\n"
        "try: trace_from_bytes(sys.stdin.buffer.read())\n"
        "except OomcastError as error: print('refused')"
    )
    data = gzip.compress(json.dumps({"format": "nothing"}).encode())
    done = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True)
    assert done.stdout == b"refused\n", done.stderr.decode()
    with pytest.raises(UnreadableFile):
        trace_from_bytes(data)


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    listed = tmp_path / "jobs.toml"
    listed.write_text(f'[[job]]\nname = "a"\njob = "{"9" * 5000}"\nbatch_size = 1\n')
    assert read_jobs(listed).jobs[0].job == "9" * 5000
    with pytest.raises(BadInput, match="no job file"):
        Job.parse("9" * 5000 + ".py")


def test_changes_keep_to_plain_content() -> None:
    from random import Random

    for number in range(50):
        changed = changed_document({"a": [1, 2, {"b": "text"}], "c": None}, Random(number))
        json.dumps(changed)
        changed_text("name = 1\n[table]", Random(number))
