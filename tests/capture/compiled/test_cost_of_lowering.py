"""Lowering is made cheaper without another result."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.capture.torch.compiled import shortcuts
from oomcast.capture.torch.interpreter import seldom_collecting, with_room
from oomcast.files import cache_folder

pytestmark = pytest.mark.filterwarnings("ignore")


def _events() -> list[Any]:
    torch._dynamo.reset()
    shutil.rmtree(cache_folder(), ignore_errors=True)  # all of it is lowered
    with oomcast.virtual_gpu("a100-40gb") as gpu:
        pool = nn.AvgPool2d(3, 1, 1, count_include_pad=False)
        body = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), pool, nn.Flatten(), nn.LazyLinear(10))
        net = nn.Sequential(*body).cuda()
        net(torch.randn(4, 3, 8, 8, device="cuda"))
        torch.compile(net)(torch.randn(4, 3, 8, 8, device="cuda")).log_softmax(1).sum().backward()
        trace = gpu.trace()
    assert not [told for told in trace.assumptions if "eager" in told]
    return [*trace.events, *((a.nbytes, a.operator, a.module, a.source) for a in trace.allocations)]


def test_shortcuts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with_shortcuts = _events()
    taken: list[str] = []

    @contextlib.contextmanager
    def none(is_static: bool) -> Iterator[None]:
        taken.append("symbols")
        yield

    monkeypatch.setattr("oomcast.capture.torch.compiled.lowering.without_symbols", none)
    monkeypatch.setattr("oomcast.capture.torch.compiled.target.answer_once", lambda patches: taken.append("once"))
    monkeypatch.setattr("oomcast.capture.torch.compiled.target.leave_kernels_out", lambda patches: taken.append("text"))
    assert _events() == with_shortcuts
    assert set(taken) == {"symbols", "once", "text"}


def test_indices_are_simplified_as_torch_does_it() -> None:
    import sympy
    from torch._inductor.sizevars import SizeVarAllocator
    from torch.utils._sympy.functions import FloorDiv, ModularIndexing

    i, j = sympy.symbols("i0 i1", integer=True, nonnegative=True)
    ranges = {i: sympy.Integer(32), j: sympy.Integer(8)}
    indices = (
        i,
        8 * (i + 2 * j) - 3 * i,
        FloorDiv(i + 32 * j, 32),
        FloorDiv(j, 8),
        ModularIndexing(i + 32 * j, 1, 32) + 32 * ModularIndexing(i + 32 * j, 32, 8),
        ModularIndexing(i, 1, 64) + j,
    )
    as_torch = [SizeVarAllocator().simplify_with_ranges(index, ranges) for index in indices]
    with shortcuts.Patches() as patches:
        shortcuts.answer_once(patches)
        assert [SizeVarAllocator().simplify_with_ranges(index, ranges) for index in indices] == as_torch
    assert as_torch[2:4] == [j, 0]  # torch does simplify here


def test_remembered_symbols_belong_to_who_asks() -> None:
    import sympy

    x, y = sympy.symbols("x y")
    with shortcuts.Patches() as patches:
        shortcuts.answer_once(patches)
        asked = (x + y).free_symbols
        asked.clear()
        assert (x + y).free_symbols == {x, y}
        assert x.free_symbols == {x}
        assert sympy.Integer(3).free_symbols == set()


def _deep(depth: int, leaf: Callable[[], Any]) -> Any:
    return _deep(depth - 1, leaf) if depth else leaf()


def _small() -> None: ...


def test_calls_take_no_pages_of_the_system_again_and_again() -> None:
    """Whatever depth they are at: at one of these, a piece of the stack ends."""

    resource = pytest.importorskip("resource")

    def loop() -> None:
        for _ in range(1000):
            _small()

    def faults() -> Any:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for depth in range(400):
            _deep(depth, loop)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    if faults() < 1000:
        pytest.skip("this Python has no pieces that it takes and gives back")
    with_room(faults)
    assert with_room(faults) < 500


def test_a_capture_process_has_room_for_expressions() -> None:
    """And leaves the environment as it was, which is the job's."""
    script = (
        "import os, sys; from oomcast.capture.torch.hooks import HOOKS; HOOKS.warm_up(); "
        "from sympy.core.cache import SYMPY_CACHE_SIZE; print(SYMPY_CACHE_SIZE, os.environ.get('SYMPY_CACHE_SIZE'))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "SYMPY_CACHE_SIZE"}
    for told, wanted in (({}, "20000 None"), ({"SYMPY_CACHE_SIZE": "77"}, "77 77")):
        run = subprocess.run(
            [sys.executable, "-c", script], env=environment | told, capture_output=True, text=True, check=True
        )
        assert run.stdout.strip() == wanted


def test_the_collector_is_as_it_was_afterwards() -> None:
    before = gc.get_threshold()
    with seldom_collecting():
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before
    gc.set_threshold(0)
    try:
        with seldom_collecting():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
