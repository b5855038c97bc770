"""Captures that are expected begin at once, and what nobody asks for ends: on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import oomcast
from oomcast.capture import capture, captures_at_once, expecting
from oomcast.capture.client import capture_here
from oomcast.capture.engines import LocalEngine
from oomcast.errors import BadInput, JobFailed, TookTooLong
from oomcast.spec import Effort, Spec

JOB = """
import os, pathlib, time
import torch

HERE = pathlib.Path(__file__).parent

def model():
    {then}
    return torch.nn.Linear({width}, 10)

def batch(batch_size):
    return torch.randn(batch_size, {width})
"""
MEETS = """
    (HERE / "came{width}").touch()
    end = time.monotonic() + 60
    while len(list(HERE.glob("came*"))) < 2:
        assert time.monotonic() < end
"""
"""Two such jobs end only when they run at the same time."""


def spec_of(folder: Path, width: int, then: str = "pass", **options: object) -> Spec:
    path = folder / f"job{width}.py"
    path.write_text(JOB.replace("{then}", then.strip()).replace("{width}", str(width)))
    settings = {"device": "a100-40gb", "batch_size": 2, "steps": 1, "write_files": True, **options}
    return Spec.read(path, **settings)


@pytest.fixture(autouse=True)
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Also where the machine has one processor."""
    engine = LocalEngine()
    engine.at_once = 2
    monkeypatch.setattr("oomcast.capture.capturing.engine_named", lambda name: engine)
    yield
    engine.close()


def test_two_that_wait_for_each_other_come_to_an_end(tmp_path: Path) -> None:
    specs = [spec_of(tmp_path, width, MEETS) for width in (16, 32)]
    with expecting(specs):
        traces = [capture(spec) for spec in specs]
    assert [max(one.nbytes for one in trace.allocations) for trace in traces] == [16 * 40, 32 * 40]
    assert captures_at_once(Effort()) == 2


def test_the_answers_are_those_of_captures_one_by_one(tmp_path: Path) -> None:
    specs = [spec_of(tmp_path, width) for width in (16, 32, 64)]
    with expecting(specs[1:]):
        together = [capture(spec) for spec in specs]
    alone = [capture_here(spec) for spec in specs]
    assert [trace.allocations for trace in together] == [trace.allocations for trace in alone]
    assert [trace.events for trace in together] == [trace.events for trace in alone]


def test_an_error_comes_to_who_asks_and_not_before(tmp_path: Path) -> None:
    right, wrong = spec_of(tmp_path, 16), spec_of(tmp_path, 32, "raise ValueError('no such thing')")
    with expecting([wrong, right]):
        assert capture(right).allocations
        with pytest.raises(JobFailed, match="no such thing"):
            capture(wrong)
        with pytest.raises(JobFailed, match="no such thing"):
            capture(wrong)  # it is run again


def test_what_nobody_asks_for_is_ended(tmp_path: Path) -> None:
    endless = "(HERE / f'process{os.getpid()}').touch(); time.sleep(300)"
    started = time.monotonic()
    with expecting([spec_of(tmp_path, width, endless) for width in (16, 32, 48)]):
        while len(running := list(tmp_path.glob("process*"))) < 2:
            time.sleep(0.05)
            assert time.monotonic() < started + 120
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{path.name.removeprefix('process')}").exists() for path in running):
        time.sleep(0.05)
        assert time.monotonic() < deadline
    assert len(list(tmp_path.glob("process*"))) == 2  # the third one had not begun
    assert capture(spec_of(tmp_path, 64)).allocations  # and the next one is answered


def test_ctrl_c_ends_what_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(tmp_path, 16, "(HERE / f'process{os.getpid()}').touch(); time.sleep(300)")

    def interrupted(self: Future[object], timeout: float | None = None) -> object:
        while timeout is None and not list(tmp_path.glob("process*")):
            time.sleep(0.05)
        if timeout is None:
            raise KeyboardInterrupt
        return result(self, timeout)

    result = Future.result
    monkeypatch.setattr(Future, "result", interrupted)
    with expecting([spec, spec_of(tmp_path, 32)]), pytest.raises(KeyboardInterrupt):
        capture(spec)
    (process,) = (int(path.name.removeprefix("process")) for path in tmp_path.glob("process*"))
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{process}"):
        time.sleep(0.05)
        assert time.monotonic() < deadline


def test_time_limits_hold_in_each(tmp_path: Path) -> None:
    slow = spec_of(tmp_path, 16, "time.sleep(300)", time_limit=1.0)
    with expecting([slow, spec_of(tmp_path, 32)]), pytest.raises(TookTooLong):
        capture(slow)


def test_engines_are_named_as_documented() -> None:
    for name in ("local", "ray", "ray://host:10001", "host:6379"):
        assert Spec.read("zoo:resnet50", batch_size=1, device="a100-40gb", engine=name).effort.engine == name
    with pytest.raises(BadInput, match="the engine must be local, ray or the address"):
        Spec.read("zoo:resnet50", batch_size=1, device="a100-40gb", engine="slurm")


def test_what_is_of_this_process_is_captured_beside_the_lanes(tmp_path: Path) -> None:
    def job(width: int) -> SimpleNamespace:
        linear = lambda: torch.nn.Linear(width, 10)  # noqa: E731
        return SimpleNamespace(model=linear, batch=lambda size: torch.randn(size, width))

    (tmp_path / "train.py").write_text(
        "import torch\nmodel = torch.nn.Linear(48, 10).cuda()\noptimizer = torch.optim.SGD(model.parameters(), 1e-3)\n"
        "for _ in range(3):\n    model(torch.ones(2, 48, device='cuda')).sum().backward()\n    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
    )
    with expecting([spec_of(tmp_path, width) for width in (16, 32)]):
        trace = capture(Spec.read(job(64), device="a100-40gb", batch_size=2, steps=1))
        answer = oomcast.run([str(tmp_path / "train.py")], device="a100-40gb")
    assert max(one.nbytes for one in trace.allocations) == 64 * 40
    assert answer.script is not None
    assert answer.script.optimizer_steps == 3


def test_objects_and_scripts_stay_here() -> None:
    job = SimpleNamespace(model=lambda: None, batch=lambda batch_size: None)
    with pytest.raises(BadInput, match="an object is captured on this machine; leave --engine out"):
        capture(Spec.read(job, batch_size=1, device="a100-40gb", engine="ray"))
