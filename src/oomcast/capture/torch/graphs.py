"""CUDA graphs and memory pools of the virtual GPU.

What is captured runs once, as eager code does, and its blocks come from a pool of the graph's own, which serves nobody
else; a replay takes nothing more. In the Trace such a pool is a stream of its own, for which the caching allocator
keeps blocks apart in the same way.

Known limitation: `empty_cache` leaves a graph's pool alone as long as the graph lives; here it returns what is free in
it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .recorder import Recorder

__all__ = ["graph_classes"]

_FIRST_POOL = 1 << 16
"""Of the numbers that stand for pools; streams have small ones."""


def graph_classes(recorder: Recorder) -> dict[str, Any]:
    """The names of `torch.cuda` that concern graphs and pools."""
    made = [0]

    def new_pool() -> tuple[int, int]:
        made[0] += 1
        return (0, made[0])

    class CUDAGraph:
        def __init__(self, keep_graph: bool = False) -> None:
            self._pool: tuple[int, int] | None = None
            self._stream = 0

        def capture_begin(self, pool: Any = None, **_: Any) -> None:
            self._pool = pool if pool is not None else new_pool()
            self._stream, recorder.ledger.stream = recorder.ledger.stream, _FIRST_POOL + self._pool[1]
            recorder.ledger.assume("a CUDA graph was captured: its pool of memory is kept apart, replays take no more")

        def capture_end(self) -> None:
            recorder.ledger.stream = self._stream

        def pool(self) -> Any:
            return self._pool

        def replay(self) -> None: ...
        def reset(self) -> None: ...
        def instantiate(self) -> None: ...
        def enable_debug_mode(self) -> None: ...
        def debug_dump(self, debug_path: Any) -> None: ...
        def register_generator_state(self, state: Any) -> None: ...

    class MemPool:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.id = new_pool()

        def use_count(self) -> int:
            return 1

        def snapshot(self, *args: Any, **kwargs: Any) -> list[Any]:
            return []

    @contextlib.contextmanager
    def use_mem_pool(pool: Any, device: Any = None) -> Iterator[None]:
        before, recorder.ledger.stream = recorder.ledger.stream, _FIRST_POOL + pool.id[1]
        try:
            yield
        finally:
            recorder.ledger.stream = before

    return {
        "CUDAGraph": CUDAGraph,
        "graph_pool_handle": new_pool,
        "MemPool": MemPool,
        "use_mem_pool": use_mem_pool,
    }
