"""Jobs whose process starts anew, the way of the systems without forks: the same answer, and objects are sent."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import oomcast
from oomcast.capture import capture
from oomcast.capture.job_process import Limits
from oomcast.capture.messages import Request, TimeLimit
from oomcast.capture.spawned import SpawningServer
from oomcast.children import START_METHOD, jobs_are_forks
from oomcast.errors import BadInput
from oomcast.spec import Spec
from oomcast.trace import Trace


@pytest.fixture(autouse=True)
def spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(START_METHOD, "spawn")


class Job:
    def __init__(self, held: Any = None) -> None:
        self.held = held

    def model(self) -> Any:
        import torch

        return torch.nn.Linear(self.width(), 10)

    def width(self) -> int:
        return 300

    def batch(self, batch_size: int) -> Any:
        import torch

        return torch.randn(batch_size, self.width()), torch.zeros(batch_size, dtype=torch.long)


def spec_of(job: Any) -> Spec:
    return Spec.read(job, device="a100-40gb", batch_size=2, steps=1)


def sizes(trace: Trace) -> list[int]:
    return [allocation.nbytes for allocation in trace.allocations]


@pytest.mark.parametrize("job", ["zoo:mlp", Job()], ids=["name", "object"])
def test_both_ways_give_the_same_record(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    anew = capture(spec_of(job))
    monkeypatch.delenv(START_METHOD)

    assert jobs_are_forks() == sys.platform.startswith("linux")
    assert sizes(capture(spec_of(job))) == sizes(anew)
    assert len(sizes(anew)) > 5


def test_an_object_defined_on_the_spot_is_sent_with_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDTH_OF_THE_TEST", "700")

    class Here(Job):
        def width(self) -> int:
            return int(os.environ["WIDTH_OF_THE_TEST"]) + int(self.held)

    shapes = {allocation.shape for allocation in capture(spec_of(Here(77))).allocations}

    assert (10, 777) in shapes


def test_what_a_script_printed_last_is_told(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import torch\ntorch.ones(8, device='cuda')\nprint('no data here')\n")
    answer = oomcast.run([str(path)], device="a100-40gb")

    assert answer.script is not None
    assert answer.script.reason.endswith("the last that it printed: no data here")


def test_what_cannot_be_sent_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadInput, match=r"Job cannot be sent .*lock.*put its functions into a file"):
        capture(spec_of(Job(threading.Lock())))


def test_the_limit_counts_from_the_jobs_begin_and_the_next_process_waits() -> None:
    class Sleeps(Job):
        def width(self) -> int:
            time.sleep(60)
            return 1

    server = SpawningServer("torch")
    try:
        with pytest.raises(TimeLimit):
            server.ask(Request.of(spec_of(Sleeps())), Limits(seconds=0.5))
        assert server._next is None  # one request alone should not pay for a second process
        for _ in range(2):
            answer = server.ask(Request.of(spec_of(Job())), Limits(seconds=100))
            assert answer.error is None
            assert len(answer.payload) > 100
            assert server._next is not None
        waiting = server._next
    finally:
        server.stop()
    assert waiting.poll() is not None
