"""`python -m lab bench store [--rows N]`: what a store with many measurements costs: list, filter, fit, and memory."""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from oomcast.methods.measure import CaseSpec, Environment, Measurement, Outcome, Selection, Store, case_key
from oomcast.methods.tbem import PolynomialRegression

from .report import console

T = TypeVar("T")
SECONDS = 10.0
GROWTH_MIB = 200
_ENVIRONMENT = Environment("3.11", "plain", "1", "bench", 2, 24 << 30, 1, "glibc")


def _measurements(rows: int) -> Iterator[Measurement]:
    for number in range(rows):
        parameters = {"batch_size": 1 + number % 64, "depth": 1 + number // 64 % 32, "width": 1 + number // 2048}
        key = case_key("plain", parameters, "python", "cpu", 0, 2, "")
        case = CaseSpec(key, f"campaign {number % 5}", "array", "plain", parameters, "python", "cpu", 0, 2, "")
        peak = (300 + 3 * parameters["batch_size"] * parameters["depth"] + parameters["width"]) << 20
        yield Measurement(case, Outcome.OK, peak, 1.0, _ENVIRONMENT, ((0.0, peak // 2), (1.0, peak)))


def _timed(what: str, action: Callable[[], T]) -> T:
    wall, cpu = time.perf_counter(), time.process_time()
    result = action()
    seconds = time.process_time() - cpu
    mark = "" if seconds <= SECONDS else "  [red]slow[/]"
    console.print(f"{what}: {seconds:.2f} s of processor time, {time.perf_counter() - wall:.2f} s{mark}")
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench store", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "store.db")
        started = time.perf_counter()
        store.register(measured.case for measured in _measurements(rows))
        runner = store.start_runner()
        for measured in _measurements(rows):
            store.claim([measured.case.key], runner)
            store.finish(measured)
        console.print(f"{rows:,} measurements claimed and written one by one: {time.perf_counter() - started:.0f} s")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        names = ["parameters.batch_size", "parameters.depth", "parameters.width"]
        listed = _timed("listed", lambda: sum(1 for _ in store.measurements()))
        chosen = Selection(campaign="campaign 1", parameters={"depth": 7})
        filtered = _timed("filtered", lambda: sum(1 for _ in store.measurements(chosen)))
        columns = _timed("columns", lambda: store.columns([*names, "peak_bytes"]))
        inputs = [list(row) for row in zip(*(columns[name] for name in names), strict=True)]
        _timed("fitted", lambda: PolynomialRegression(max_degree=2).fit(inputs, columns["peak_bytes"]))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        console.print(f"{listed:,} listed, {filtered:,} chosen; resident memory grew by {grown:.0f} MiB meanwhile")
        store.close()
    return 0 if listed == rows and grown <= GROWTH_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
