"""What the tests of compiled code share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True)
def _forgetful_dynamo() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def _nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test has compiled is not on disk for the next."""
    monkeypatch.setenv("OOMCAST_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The codes of all graphs that Inductor lowers from now on, in order."""
    from oomcast.capture.torch.compiled import backend

    codes: list[Any] = []
    lower = backend.inductor_code

    def watched(*args: Any, **options: Any) -> Any:
        codes.append(lower(*args, **options))
        return codes[-1]

    monkeypatch.setattr(backend, "inductor_code", watched)
    return codes
