"""Ordinary jobs of many kinds give a figure, or say in one sentence what is not supported."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_kinds import PRELUDE, REFUSED, RUNS

from oomcast.capture import capture
from oomcast.errors import OomcastError
from oomcast.spec import Spec
from oomcast.trace import Category, verify


def _write(folder: Path, source: str) -> Path:
    path = folder / "job.py"
    path.write_text(PRELUDE + source)
    return path


def _spec(path: Path) -> Spec:
    return Spec.read(str(path), device="a100-40gb", batch_size=8, steps=2, time_limit=60)


@pytest.mark.parametrize("name", RUNS)
def test_it_runs(name: str, tmp_path: Path) -> None:
    trace = capture(_spec(_write(tmp_path, RUNS[name])))
    verify(trace)
    assert any(allocation.category is Category.PARAMETER for allocation in trace.allocations)
    assert any(allocation.category is Category.GRADIENT for allocation in trace.allocations)
    assert {path.name for path in tmp_path.iterdir()} <= {"job.py", "__pycache__"}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    words, source = REFUSED[name]
    with pytest.raises(OomcastError, match=words) as refused:
        capture(_spec(_write(tmp_path, source)))
    assert refused.value.exit_code in (1, 2)
    assert "Traceback" not in str(refused.value)


def test_there_are_sixty_kinds() -> None:
    assert len(RUNS) + len(REFUSED) >= 60
