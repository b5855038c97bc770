"""What a graph was lowered to is kept on disk as data: read again for the same graph, and for no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.capture.torch.compiled.plan import Plan, plan_of
from oomcast.files import cache_folder
from oomcast.trace import Trace

pytestmark = pytest.mark.filterwarnings("ignore")


def _net(width: int = 8) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3),
        nn.BatchNorm2d(width),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(36 * width, 10),
        nn.Dropout(0.1),
    )


def _step(net: nn.Module) -> None:
    torch.compile(net)(torch.randn(4, 3, 8, 8, device="cuda")).log_softmax(1).sum().backward()


def _another_step(net: nn.Module) -> None:
    torch.compile(net)(torch.randn(4, 3, 8, 8, device="cuda")).log_softmax(1).sum().backward()


def _traced(step: Callable[[nn.Module], None] = _step, device: str = "a100-40gb", width: int = 8) -> Trace:
    torch._dynamo.reset()
    with oomcast.virtual_gpu(device) as gpu:
        step(_net(width).cuda())
        trace = gpu.trace()
    assert not [told for told in trace.assumptions if "eager" in told]
    return trace


def _told(trace: Trace) -> list[Any]:
    return [
        *trace.events,
        *((a.nbytes, a.operator, a.module, a.source, a.category, a.phase) for a in trace.allocations),
    ]


def _files() -> list[Path]:
    return sorted((cache_folder() / "compiled").glob("*.json"))


def test_a_job_that_was_lowered_before_is_not_lowered_again(lowered: list[Any]) -> None:
    first = _traced()
    assert len(lowered) == 2
    assert len(_files()) == 2
    again = _traced()
    assert len(lowered) == 2
    assert _told(again) == _told(first)
    assert again.assumptions == first.assumptions


def test_kept_plans_have_the_lines_of_the_job_at_hand(lowered: list[Any]) -> None:
    _traced()
    moved = _traced(_another_step)
    assert len(lowered) == 2
    lines = {a.source for a in moved.allocations if a.operator.startswith("triton_")}
    assert lines == {f"{__file__}:{_another_step.__code__.co_firstlineno + 1}"}


@pytest.mark.parametrize("other", ["device", "width", "setting", "deterministic", "version"])
def test_another_job_is_lowered(other: str, lowered: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _traced()
    if other == "device":
        _traced(device="h100-80gb")
    elif other == "width":
        _traced(width=16)
    elif other == "setting":
        with torch._inductor.config.patch(max_fusion_size=8):
            _traced()
    elif other == "deterministic":
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            _traced()
        finally:
            torch.use_deterministic_algorithms(False)
    else:
        monkeypatch.setattr("oomcast.capture.torch.compiled.identity._versions", lambda: ["another"])
        _traced()
    assert len(lowered) == 4


def test_code_without_a_plan_is_run_as_it_is_and_not_kept(lowered: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    by_plan = _traced()
    for file in _files():
        file.unlink()
    monkeypatch.setattr("oomcast.capture.torch.compiled.lowering.plan_of", lambda source: None)
    as_python = _traced()
    assert [code.plan is None for code in lowered] == [False, False, True, True]
    assert _told(as_python) == _told(by_plan)
    assert not _files()


def _truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def _under_another_name(file: Path) -> None:
    other = next(one for one in _files() if one != file)
    file.write_bytes(other.read_bytes())


def _of_anything(file: Path) -> None:
    file.write_text("[" * 100_000)


def _changed(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def spoil(file: Path) -> None:
        told = json.loads(file.read_text())
        change(told)
        file.write_text(json.dumps(told))

    return spoil


def _that_opens_a_file(told: dict[str, Any]) -> None:
    told["plan"]["steps"].insert(0, ["do", ["op", "aten.from_file.default", ["/etc/passwd"], {}]])


def _without_places(told: dict[str, Any]) -> None:
    told["made_for"] = dict.fromkeys(told["made_for"], 10**9)


SPOILED = {
    "truncated": _truncated,
    "another's": _under_another_name,
    "nested": _of_anything,
    "an operator on files": _changed(_that_opens_a_file),
    "no such place": _changed(_without_places),
    "no plan": _changed(lambda told: told.pop("plan")),
    "of a list": lambda file: file.write_text("[]"),
    "writable by all": lambda file: file.chmod(0o666),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_file_that_cannot_be_trusted_is_made_anew(how: str, lowered: list[Any]) -> None:
    if how == "writable by all" and sys.platform == "win32":
        pytest.skip("Windows has no such mode")
    first = _traced()
    files = _files()
    SPOILED[how](files[0])
    assert _told(_traced()) == _told(first)
    assert len(lowered) == 3
    _traced()
    assert len(lowered) == 3
    assert [file.stat().st_mode & 0o777 for file in _files()] == [0o600] * 2


def test_a_folder_of_somebody_else_is_neither_read_nor_written(lowered: list[Any]) -> None:
    _traced()
    (cache_folder() / "compiled").chmod(0o777)
    before = [file.stat().st_mtime_ns for file in _files()]
    _traced()
    assert len(lowered) == 4
    assert [file.stat().st_mtime_ns for file in _files()] == before


def test_a_cache_that_cannot_be_written_changes_nothing(lowered: list[Any]) -> None:
    cache_folder().write_text("a file where the folder would be")
    assert _told(_traced()) == _told(_traced())
    assert len(lowered) == 4


def test_a_first_job_finds_no_folder_and_keeps_its_plans_all_the_same(tmp_path: Path) -> None:
    """What oomcast keeps for itself is none of the files that a script wrote."""
    (tmp_path / "train.py").write_text(
        "import torch\nmodel = torch.compile(torch.nn.Linear(16, 16).cuda())\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nfor _ in range(3):\n"
        "    model(torch.ones(4, 16, device='cuda')).sigmoid().sum().backward()\n    optimizer.step()\n"
    )
    cache = tmp_path / "not" / "there"
    run = subprocess.run(
        [sys.executable, "-m", "oomcast", "run", "--device", "rtx-4090", "--json", "--", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "OOMCAST_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert list((cache / "compiled").glob("*.json"))
    assert "was not kept" not in run.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["not", "train.py"]


def test_what_was_not_asked_for_longest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    _traced()
    old = _files()
    for file in old:
        os.utime(file, (1, 1))
    sizes = sum(file.stat().st_size for file in old)
    monkeypatch.setattr("oomcast.capture.torch.compiled.kept._MOST_BYTES", int(1.6 * sizes))
    _traced(width=16)
    left = _files()
    assert sum(file.stat().st_size for file in left) <= 1.6 * sizes
    assert len(set(left) - set(old)) == 2


PLAN = {"slots": ("x",), "kernels": {"k": ("", "")}}
STEPS: dict[str, list[Any]] = {
    "a module's function": ["op", "load_library.x.y", [], {}],
    "an attribute beneath": ["extern", "__class__", [], {}],
    "no dtype": ["torch", "load"],
    "a name beyond": ["name", 1],
    "a name before": ["name", -1],
    "no kind": ["eval", "1"],
    "an index of words": ["item", ["name", 0], "x"],
    "a place": ["empty", "disk", ["tuple", [1]], ["tuple", [1]], ["torch", "float32"]],
    "too few": ["view", ["name", 0]],
    "an operator that prints": ["op", "prim.Print.default", [], {}],
}


@pytest.mark.parametrize("what", STEPS)
def test_steps_that_are_none_are_refused_before_any_is_taken(what: str) -> None:
    from oomcast.capture.torch.compiled.steps import can_be_followed  # loads Inductor, which warns

    def plan(value: Any) -> Plan:
        return Plan(steps=(["unpack", [0]], ["do", value], ["return", ["tuple", []]]), **PLAN)  # type: ignore[arg-type]

    assert can_be_followed(plan(["name", 0]))
    assert not can_be_followed(plan(STEPS[what]))


@pytest.mark.parametrize(
    "line",
    [
        "for i in args: pass",
        "import os; os.remove('x')",
        "x = open('y')",
        "x = args[0] if args else 1",
        "x = [].append",
    ],
)
def test_code_that_does_anything_else_has_no_plan(line: str) -> None:
    def module(line: str) -> str:
        return f"def call(args):\n    a, = args\n    args.clear()\n    {line}\n    return (a, )\n"

    assert plan_of(module("b = reinterpret_tensor(a, (2, ), (1, ), 0); del b")) is not None
    assert plan_of(module(line)) is None
