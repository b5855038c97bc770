"""Cached answers at a steady rate, from several connections: how long each takes, and what the service then holds.

A request's time runs from the moment at which it was due, so that one that is late because of another counts as late.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from oomcast.units import format_bytes
from oomcast.web import Client

from .resident import resident
from .served import serving

__all__ = ["cached_load"]

_JOBS: tuple[dict[str, Any], ...] = (
    {"job": "zoo:mlp", "batch_size": 16, "device": "t4"},
    {"job": "zoo:lstm-lm", "batch_size": 8, "seq_len": 64, "device": "rtx-3060"},
)
_KINDS = ("estimate", "estimate", "estimate", "sweep", "report")
"""Most ask for the figure; a report is a page of some hundred kilobytes."""
_CONNECTIONS = 8
_MOST_MS = 250.0
_MOST_GROWTH = 0.05
"""Of the memory that was held in the second fifth of the time, when everything was met."""
_EVERY = 1.0
"""Seconds between two looks at the memory."""


def cached_load(store: Path, seconds: float, rate: float) -> dict[str, Any]:
    """`rate` requests a minute for so long; faults where one fails, 1 in 100 is late, or memory grows."""
    with serving(store) as server:
        client = Client(f"http://127.0.0.1:{server.port}")
        for kind, job in itertools.product(sorted(set(_KINDS)), _JOBS):
            client.ask(kind, **job)
        load = _Load(server.port, seconds, rate)
        threads = [threading.Thread(target=load.ask, args=(place,)) for place in range(_CONNECTIONS)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        held, busy = [sum(resident(server.process.pid))], [os.getloadavg()[0]]
        while any(thread.is_alive() for thread in threads):
            time.sleep(_EVERY)
            held.append(sum(resident(server.process.pid)))
            busy.append(os.getloadavg()[0])
        taken = time.monotonic() - begun
    times = sorted(load.times) or [0.0]
    p99 = 1000 * times[int(len(times) * 0.99)]
    fifth = max(1, len(held) // 5)
    early, late = max(held[fifth : 2 * fifth] or held), max(held[-fifth:])
    faults = list(load.faults)
    if p99 >= _MOST_MS:
        faults.append(f"1 in 100 took {p99:.0f} ms or longer")
    if late > early * (1 + _MOST_GROWTH):
        faults.append(f"memory grew from {format_bytes(early)} to {format_bytes(late)}")
    return {
        "requests": len(load.times),
        "seconds": round(taken),
        "connections": _CONNECTIONS,
        "per_minute": round(60 * len(load.times) / taken),
        "p50_ms": round(1000 * times[len(times) // 2], 1),
        "p99_ms": round(p99, 1),
        "slowest_ms": round(1000 * times[-1], 1),
        "memory": format_bytes(late),
        "memory_before": format_bytes(early),
        "machine_load": f"{sum(busy) / len(busy):.1f} on {os.cpu_count()} cores, at most {max(busy):.1f}",
        "faults": faults[:20],
    }


class _Load:
    def __init__(self, port: int, seconds: float, rate: float) -> None:
        self._port, self._between = port, 60 / rate
        self._count = max(1, int(rate * seconds / 60))
        self._started = time.monotonic()
        self.times: list[float] = []
        self.faults: list[str] = []

    def ask(self, place: int) -> None:
        """Every so-manieth request, on one connection."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
            for number in range(place, self._count, _CONNECTIONS):
                due = self._started + number * self._between
                time.sleep(max(0.0, due - time.monotonic()))
                kind, job = _KINDS[number % len(_KINDS)], _JOBS[number // len(_KINDS) % len(_JOBS)]
                try:
                    connection.request("POST", f"/{kind}", json.dumps(job), {"Content-Type": "application/json"})
                    response = connection.getresponse()
                    response.read()
                except (OSError, http.client.HTTPException) as error:
                    self.faults.append(f"request {number}: {type(error).__name__}")
                    connection.close()
                    continue
                self.times.append(time.monotonic() - due)
                if response.status != 200 or response.getheader("x-oomcast-cached") != "yes":
                    self.faults.append(f"request {number}: status {response.status}, not from the store")
