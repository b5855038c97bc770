"""A recorder as small as can be: it applies the personality's tables and notes every operator with its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from oomcast.capture.torch.personality import (
    COMPOSITES,
    FAKE_KERNELS,
    OUTPUT_CORRECTIONS,
    PLAIN_KERNELS,
    Personality,
    Platform,
    internal_scratch,
)

PLATFORMS = {
    "v100": Platform((7, 0), (2, 13), 90100, (12, 4)),
    "t4": Platform((7, 5), (2, 13), 90100, (12, 4)),
    "a100": Platform((8, 0), (2, 13), 91002, (12, 8)),
    "rtx3090": Platform((8, 6), (2, 13), 91002, (12, 8)),
    "h100": Platform((9, 0), (2, 13), 92000, (12, 8)),
    "old-h100": Platform((9, 0), (2, 13), 91002, (12, 8)),
    "rtx5090": Platform((12, 0), (2, 13), 92000, (13, 0)),
}


class Call(NamedTuple):
    operator: str
    outputs: tuple[Any, ...]
    """Shape, dtype and device of each tensor."""
    scratch: tuple[int, ...]


def _facts(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.dtype, str(value.device))
    return tuple(map(_facts, value)) if isinstance(value, (list, tuple)) else value


class Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in COMPOSITES:
            with self:
                return COMPOSITES[func](*args, **kwargs)
        kernel = FAKE_KERNELS.get(func) or PLAIN_KERNELS.get(func)
        if kernel is not None:
            out = kernel(func, args, kwargs)
        else:
            out = func(*args, **kwargs)
            if func in OUTPUT_CORRECTIONS:
                out = OUTPUT_CORRECTIONS[func](func, args, kwargs, out)
        name = str(func).removeprefix("aten.").removesuffix(".default")
        if not name.startswith("prim."):
            outputs = out if isinstance(out, (list, tuple)) else (out,)
            self.calls.append(Call(name, tuple(map(_facts, outputs)), internal_scratch(func, args, kwargs, out)))
        return out

    @property
    def operators(self) -> list[str]:
        return [call.operator for call in self.calls]

    def one(self, operator: str) -> Call:
        found = [call for call in self.calls if call.operator == operator]
        assert len(found) == 1, f"{operator} called {len(found)} times among {self.operators}"
        return found[0]


@pytest.fixture
def platforms() -> dict[str, Platform]:
    return PLATFORMS


@pytest.fixture
def record() -> Callable[..., Any]:
    @contextmanager
    def recording(platform: str | Platform = "a100") -> Iterator[Recorder]:
        followed = PLATFORMS[platform] if isinstance(platform, str) else platform
        with Personality(followed), FakeTensorMode(allow_non_fake_inputs=True), Recorder() as recorder:
            yield recorder

    return recording


@pytest.fixture
def gpu() -> Callable[..., torch.Tensor]:
    """A leaf on the virtual GPU that requires grad."""

    def make(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(*shape, dtype=dtype, device="cpu:0", requires_grad=True)

    return make
