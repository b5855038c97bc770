"""Streams and events of the virtual GPU, and the blocks whose reuse they delay.

A block that `Tensor.record_stream` lent to another stream is not reused as soon as it is freed: torch's allocator
records an event on that stream and looks at each later allocation whether it has passed
(c10/cuda/CUDACachingAllocator.cpp, `insert_events` and `process_events`). Whether it has depends on time, of which
there is none here. The rule: the host is ahead of the device by as much as CUDA lets it. An event has passed once the
host synchronised with the device, with the stream, or with one that waited for it; at the latest after 1,024 further
operators, for so many launches a queue holds before the next one blocks the host. A job whose host is slower than the
GPU reuses such blocks earlier, so this is the most that it may hold.

Known limitation: a real device that is full waits for these events before it gives up, as `empty_cache` does.
"""

from __future__ import annotations

from typing import Any

import torch

from ...trace import TraceBuilder

__all__ = ["Event", "Stream", "StreamTable", "event_class", "stream_class"]

_QUEUE = 1024
"""Launches that CUDA queues before the next one blocks the host; "about 1000" were measured:
https://forums.developer.nvidia.com/t/cuda-stream-are-blocked-when-luanch-lots-of-kernels-1000/68937"""
_STREAMS = 32
"""`torch.cuda.Stream()` hands out so many in turn (c10/cuda/CUDAStream.cpp, `kStreamsPerPool`)."""
_Seen = dict[int, int]
"""Stream → the number of the launch up to which its work is done."""


class StreamTable:
    """Which work of which stream is done, as far as the host knows, and which blocks wait for it."""

    def __init__(self, ledger: TraceBuilder) -> None:
        self.launches = 0
        """Operators started so far; counted by the recorder."""
        self._ledger = ledger
        self._stack: list[Stream] = []
        self._made = 0
        self._done: _Seen = {}
        self._waited: dict[int, _Seen] = {}
        """Stream → what else is done once its own work is."""
        self._lent: dict[int, set[int]] = {}
        """Block → the streams that `record_stream` named."""
        self._waiting: list[tuple[int, _Seen]] = []
        """Freed blocks, in order, with what must be done before they can be reused."""

    # -- the current stream ---------------------------------------------------------------------------------------

    def current(self) -> Stream:
        return self._stack[-1]

    def set_current(self, stream: Stream) -> None:
        self._stack[-1:] = [stream]
        self._ledger.stream = stream.stream_id

    def push(self, stream: Stream) -> None:
        self._stack.append(stream)
        self._ledger.stream = stream.stream_id

    def pop(self) -> None:
        self._stack.pop()
        self._ledger.stream = self._stack[-1].stream_id if self._stack else 0

    def next_id(self) -> int:
        """Of a new stream; 0 is the default one."""
        self._made += 1
        return 1 + (self._made - 1) % _STREAMS

    # -- blocks lent to other streams -----------------------------------------------------------------------------

    def lend(self, block: int, stream: int) -> None:
        """`record_stream`: this live block is used on that stream as well. On its own stream it means nothing."""
        if stream != self._ledger.stream_of(block):
            self._lent.setdefault(block, set()).add(stream)

    def free(self, block: int) -> None:
        """The last tensor of a block is gone."""
        streams = self._lent.pop(block, None) if self._lent else None
        if streams is None:
            self._ledger.free(block)
            return
        self._waiting.append((block, dict.fromkeys(streams, self.launches)))
        self._ledger.let_go(block)
        self._ledger.assume(
            "record_stream: a block lent to another stream is reused once the host synchronised, or after 1,024 "
            "further operators; where the host is slower than the GPU it is reused earlier"
        )

    def reuse(self) -> None:
        """Before an allocation: give back what no stream needs any more."""
        if not self._waiting:
            return
        started = self.launches - _QUEUE
        still: list[tuple[int, _Seen]] = []
        for block, needs in self._waiting:
            if all(number <= max(started, self._done.get(stream, -1)) for stream, number in needs.items()):
                self._ledger.free(block)
            else:
                still.append((block, needs))
        self._waiting = still

    # -- what is done ---------------------------------------------------------------------------------------------

    def progress_of(self, stream: int) -> _Seen:
        """What is done once the work that was given to this stream so far is done."""
        return {**self._waited.get(stream, {}), stream: self.launches}

    def synchronize(self, seen: _Seen | None = None) -> None:
        """The host waited for this much; None: for everything."""
        if seen is None:
            seen = dict.fromkeys((stream for _, needs in self._waiting for stream in needs), self.launches)
        _merge(self._done, seen)

    def wait(self, stream: int, seen: _Seen) -> None:
        """The stream's next work waits for this much."""
        _merge(self._waited.setdefault(stream, {}), seen)


def _merge(into: _Seen, other: _Seen) -> None:
    for stream, number in other.items():
        into[stream] = max(number, into.get(stream, -1))


class Stream:
    """A stream is an identity and an order: what is allocated on it is kept apart by the allocator."""

    table: StreamTable

    def __init__(self, device: Any = None, priority: int = 0, stream_id: int | None = None, **_: Any) -> None:
        self.stream_id = self.table.next_id() if stream_id is None else stream_id
        self.cuda_stream = self.native_handle = self.stream_id
        self.device = torch.device("cuda", _index(device))
        self.device_index = self.device.index
        self.device_type = 1
        self.priority = priority

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __enter__(self) -> Stream:
        self.table.push(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self.table.pop()

    def synchronize(self) -> None:
        self.table.synchronize(self.table.progress_of(self.stream_id))

    def wait_stream(self, stream: Any) -> None:
        self.table.wait(self.stream_id, self.table.progress_of(stream.stream_id))

    def wait_event(self, event: Any) -> None:
        self.table.wait(self.stream_id, event.seen)

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: Any = None) -> Event:
        event = event or event_class(self.table)()
        event.record(self)
        return event


class Event:
    """A point in a stream's work."""

    table: StreamTable

    def __init__(self, *args: Any, enable_timing: bool = False, **_: Any) -> None:
        self.cuda_event = self.event_id = 0
        self.device = torch.device("cuda", 0)
        self.seen: _Seen = {}

    def record(self, stream: Any = None) -> None:
        self.seen = self.table.progress_of((stream or self.table.current()).stream_id)

    def wait(self, stream: Any = None) -> None:
        (stream or self.table.current()).wait_event(self)

    def synchronize(self) -> None:
        self.table.synchronize(self.seen)

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        """No time passes on a virtual GPU; code divides by this, so it is not zero."""
        return 1.0

    def ipc_handle(self) -> bytes:
        return b""


def stream_class(table: StreamTable) -> type[Stream]:
    """`torch.cuda.Stream` of this machine."""
    return type("Stream", (Stream,), {"table": table, "__module__": "torch.cuda.streams"})


def event_class(table: StreamTable) -> type[Event]:
    """`torch.cuda.Event` of this machine."""
    return type("Event", (Event,), {"table": table, "__module__": "torch.cuda.streams"})


def _index(device: Any) -> int:
    if isinstance(device, int):
        return max(device, 0)
    return torch.device(device).index or 0 if device is not None else 0
