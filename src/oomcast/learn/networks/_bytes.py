"""Arrays to bytes and back: float32, little endian, one behind the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ._infer import Arrays

__all__ = ["arrays_from_bytes", "arrays_to_bytes"]


def arrays_to_bytes(arrays: Arrays) -> bytes:
    return b"".join(np.ascontiguousarray(array, dtype="<f4").tobytes() for array in arrays.values())


def arrays_from_bytes(body: bytes, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> dict[str, NDArray[np.float32]]:
    """Raises ValueError where the shapes do not take up all of it."""
    sizes = [math.prod(shape) for _, shape in shapes]
    if any(size < 0 for _, shape in shapes for size in shape) or 4 * sum(sizes) != len(body):
        raise ValueError("its numbers do not fit its arrays")
    numbers = np.frombuffer(body, dtype="<f4").astype(np.float32)
    found: dict[str, NDArray[np.float32]] = {}
    start = 0
    for (name, shape), size in zip(shapes, sizes, strict=True):
        found[name] = numbers[start : start + size].reshape(shape)
        start += size
    return found
