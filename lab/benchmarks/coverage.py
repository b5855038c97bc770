"""How many models can be captured: every name of timm's registry, and small configurations of transformers' types.

    python -m lab bench coverage timm|hf [--limit N] [--only PATTERN] [--fresh] [--processes N]

Each model is captured in training mode, batch 2, one step, and its Trace is held against the model: the parameters' and
the gradients' bytes must be all there. What fails is tried again in a process of its own, then on plain torch without
oomcast: a model that cannot be trained at all is told apart. Captured names are kept in lab/benchmarks/results/ and
skipped the next time, unless --fresh is given.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import gc
import json
import os
import queue
import re
import selectors
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from oomcast.capture.torch.jobs import load_job, loss_of, run_model
from oomcast.capture.torch.jobs.vision import import_library
from oomcast.capture.torch.machine import virtual_gpu
from oomcast.capture.torch.training import run_training
from oomcast.devices import find_gpu, stack_of
from oomcast.spec import Workload
from oomcast.trace import Category, Trace

from .report import Bar, Outcome
from .small_configurations import MODEL_TYPES, small_configuration

__all__ = ["main", "run"]

_RESULTS = Path(__file__).parent / "results"
_GPU = "a100-40gb"
_BATCH_SIZE = 2
_TIME_LIMIT = 120.0
_PROCESSES = min(os.cpu_count() or 1, 4)
_CHUNK = 24
"""Models captured by one process: they share its warm caches, and what it leaks goes with it."""
_REAL_LIMIT = 600_000_000
"""Parameters up to which a failed model is also tried on real memory; beyond, on torch's meta device."""

CAPTURED, FAILED, WRONG, UNTRAINABLE = "captured", "failed", "wrong", "untrainable"
_TITLES = {
    CAPTURED: "captured",
    FAILED: "failed, though plain torch trains them",
    WRONG: "captured, but the Trace disagrees with the model",
    UNTRAINABLE: "failed, and plain torch fails on the same step too",
}


@dataclass(frozen=True)
class Result:
    """What became of one name. `UNTRAINABLE` means that plain torch fails on it too."""

    name: str
    status: str
    reason: str = ""
    seconds: float = 0.0
    traceback: str = ""
    assumptions: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    parameters: int = 0
    peak_rss: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit code says whether the bar of its library is reached."""
    parser = argparse.ArgumentParser(prog="python -m lab bench coverage", description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=("timm", "hf"))
    parser.add_argument("--limit", type=int, help="only the first N names")
    parser.add_argument("--only", help="only names that match, like 'vit_*'")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--processes", type=int, default=_PROCESSES, help="captures at a time, as many as cores")
    options = parser.parse_args(arguments)

    names = _names(options.library)
    if options.only:
        names = [name for name in names if fnmatch.fnmatch(name, options.only)]
    names = names[: options.limit]
    if options.fresh:
        _store(options.library).unlink(missing_ok=True)
    results = _results(options.library, names, _show_progress, max(options.processes, 1))
    _print_table(options.library, results)
    return 0 if _bar(options.library, results).holds else 1


def run(groundtruth: Path, progress: Callable[[str], None]) -> Outcome:
    """For `python -m lab.benchmarks`: both libraries, with what is left of an earlier run."""
    rows, bars, notes = [], [], []
    for library in ("timm", "hf"):
        results = _results(library, _names(library), lambda line, _: progress(line), _PROCESSES)
        counts = Counter(result.status for result in results)
        rows.append([library, str(len(results)), *(str(counts[status]) for status in _TITLES)])
        bars.append(_bar(library, results))
        notes += [f"{library}: {', '.join(names)}: {reason}" for _, reason, names in _failures(results)]
    return Outcome("Captured in training mode", ("library", "tried", *_TITLES.values()), rows, bars, notes)


def _results(library: str, names: Sequence[str], progress: Callable[[str, bool], None], processes: int) -> list[Result]:
    """Of every name, from an earlier run where it was captured then."""
    gc.freeze()
    torch.set_num_threads(1)
    sys.setrecursionlimit(20_000)
    store = _store(library)
    done = {result.name: result for result in _read(store) if result.status == CAPTURED}
    todo = [name for name in names if name not in done]
    with tempfile.TemporaryDirectory() as folder:
        for result in _run(library, todo, Path(folder), progress, processes):
            done[result.name] = result
            _append(store, result)
    return [done[name] for name in names]


def _names(library: str) -> list[str]:
    if library == "timm":
        return list(import_library("timm").list_models())
    known = import_library("transformers").CONFIG_MAPPING
    return [name for name in MODEL_TYPES if name in known]


def _bar(library: str, results: Sequence[Result]) -> Bar:
    captured, tried = sum(result.status == CAPTURED for result in results), len(results)
    if library == "timm":
        figure = f"{captured} of {tried} ({captured / max(tried, 1):.1%})"
        return Bar("timm's names that are captured, at least 98 %", figure, captured >= 0.98 * tried)
    return Bar("types of transformers that are captured, at least 60", str(captured), captured >= 60)


# -- one model -------------------------------------------------------------------------------------------------------


def _capture(library: str, name: str, folder: Path) -> Result:
    """Capture one model in this process."""
    begin = time.monotonic()
    try:
        workload = _workload(library, name, folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace, model = _trace_and_model(workload)
        wrong = _differences(trace, model)
    except BaseException as error:  # whatever a model raises is a line of the table
        reason = f"{type(error).__name__}: {_first_line(error)}"
        lines = "".join(traceback.format_exception(error)[-24:])
        return Result(name, FAILED, reason, time.monotonic() - begin, lines)
    return Result(
        name,
        WRONG if wrong else CAPTURED,
        wrong,
        time.monotonic() - begin,
        assumptions=trace.assumptions,
        unsupported=tuple(trace.unsupported),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        peak_rss=_peak_rss(),
    )


def _workload(library: str, name: str, folder: Path) -> Workload:
    options: dict[str, Any] = {"batch_size": _BATCH_SIZE, "steps": 1, "optimizer": "sgd"}
    if library == "hf":
        configuration, sizes = small_configuration(import_library("transformers"), name)
        file = folder / name / "config.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(configuration), encoding="utf-8")
        return Workload.create(f"hf:{file}", **options, **sizes)
    return Workload.create(f"{library}:{name}", **options)


def _trace_and_model(workload: Workload) -> tuple[Trace, torch.nn.Module]:
    """As `capture_here`, and the model with it, to hold the Trace against."""
    built: list[torch.nn.Module] = []
    with virtual_gpu(find_gpu(_GPU), stack_of(None, "torch")) as virtual:
        job = load_job(workload)

        def model() -> torch.nn.Module:
            built.append(job.model())
            return built[0]

        run_training(virtual, replace(job, model=model), workload)
        return virtual.trace(workload.as_dict()), built[0]


def _differences(trace: Trace, model: torch.nn.Module) -> str:
    """What the Trace says of parameters and gradients against what the model has; "" where they agree.

    Storages are compared, not tensors: parameters can be tied, and gradients can be slices of one storage.
    """
    parameters = list(model.parameters())
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for category, tensors in ((Category.PARAMETER, parameters), (Category.GRADIENT, gradients)):
        storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}
        expected = sum(storages.values())
        found = sum(a.nbytes for a in trace.allocations if a.category is category)
        if found != expected:
            return f"{category.value}s: {found:,} B in the Trace, {expected:,} B in the model"
    return ""


def _on_plain_torch(library: str, name: str, folder: Path) -> Result:
    """One training step without oomcast: real where the model is small enough, else on the meta device."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            job = load_job(_workload(library, name, folder))
            try:
                with torch.device("meta"):
                    model = job.model()
                is_small = sum(p.numel() for p in model.parameters()) <= _REAL_LIMIT
            except Exception:  # a constructor that reads values; what it needs is not known
                is_small = True
            with torch.device("cpu" if is_small else "meta"):
                model = job.model().train()
                batch = job.batch()
                loss = job.loss(model, batch) if job.loss else loss_of(run_model(model, batch), batch)
                loss.backward()
    except BaseException as error:
        if "meta" in str(error):
            return Result(name, CAPTURED, "cannot tell: too large for real memory, and its code reads values")
        return Result(name, FAILED, f"{type(error).__name__}: {_first_line(error)}")
    return Result(name, CAPTURED)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:240] if lines else ""


def _peak_rss() -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) << 10
    return 0


# -- many models -----------------------------------------------------------------------------------------------------


def _run(
    library: str, names: Sequence[str], folder: Path, progress: Callable[[str, bool], None], processes: int
) -> Iterator[Result]:
    """Capture all, in forks of this process; failures are confirmed alone, then on plain torch."""
    begin, failed = time.monotonic(), 0
    for number, result in enumerate(_in_forks(_capture, library, names, folder, _CHUNK, processes), 1):
        if result.status not in (CAPTURED, UNTRAINABLE):
            [result] = _in_forks(_capture, library, [result.name], folder)
        if result.status == FAILED:
            [plain] = _in_forks(_on_plain_torch, library, [result.name], folder)
            if plain.status == FAILED:
                result = replace(result, status=UNTRAINABLE, reason=f"plain torch: {plain.reason}")
        failed += result.status != CAPTURED
        line = f"{number}/{len(names)}, {failed} not captured, {time.monotonic() - begin:.0f} s: {result.name}"
        told = "" if result.status == CAPTURED else f" {result.status}: {result.reason}"
        progress(line + told, bool(told) or number % 25 == 0 or number == len(names))
        yield result


def _in_forks(
    work: Callable[[str, str, Path], Result],
    library: str,
    names: Sequence[str],
    folder: Path,
    chunk: int = 1,
    processes: int = 1,
) -> Iterator[Result]:
    """Results as they come. A process that dies or hangs takes only the model at hand with it."""
    waiting = deque(names[start : start + chunk] for start in range(0, len(names), chunk))
    results: queue.SimpleQueue[Result | None] = queue.SimpleQueue()

    def serve() -> None:
        with contextlib.suppress(IndexError):
            while True:
                rest = waiting.popleft()
                while rest:
                    answered = 0
                    for result in _fork(lambda name: work(library, name, folder), rest):
                        answered += 1
                        results.put(result)
                    rest = rest[answered:]
        results.put(None)

    for _ in range(processes):
        threading.Thread(target=serve, daemon=True).start()
    running = processes
    while running:
        result = results.get()
        if result is None:
            running -= 1
        else:
            yield result


def _fork(work: Callable[[str], Result], names: Sequence[str]) -> Iterator[Result]:
    """One child does the work for all names and writes a line for each; ends early, with a failure, if it dies."""
    read_end, write_end = os.pipe()
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed below, in the parent
    child = os.fork()
    if child == 0:
        try:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            with os.fdopen(write_end, "w") as pipe:
                for name in names:
                    pipe.write(json.dumps(asdict(work(name))) + "\n")
                    pipe.flush()
        finally:
            os._exit(0)
    os.close(write_end)
    answered = 0
    try:
        for line in _lines(read_end, _TIME_LIMIT):
            answered += 1
            yield _result(json.loads(line))
    except TimeoutError:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        yield Result(names[answered], FAILED, f"did not finish within {_TIME_LIMIT:g} s", _TIME_LIMIT)
    else:
        _, status = os.waitpid(child, 0)
        if answered < len(names):
            cause = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit code {status >> 8}"
            log.seek(0)
            words = log.read().decode(errors="replace").strip()[-2000:]
            yield Result(names[answered], FAILED, f"the process ended: {cause}", traceback=words)
    finally:
        os.close(read_end)
        log.close()


def _lines(descriptor: int, time_limit: float) -> Iterator[str]:
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while selector.select(time_limit):
            data = os.read(descriptor, 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line.decode()
    raise TimeoutError


# -- results ---------------------------------------------------------------------------------------------------------


def _read(store: Path) -> list[Result]:
    if not store.exists():
        return []
    return [_result(json.loads(line)) for line in store.read_text(encoding="utf-8").splitlines()]


def _result(plain: dict[str, Any]) -> Result:
    plain["assumptions"], plain["unsupported"] = tuple(plain["assumptions"]), tuple(plain["unsupported"])
    return Result(**plain)


def _append(store: Path, result: Result) -> None:
    store.parent.mkdir(exist_ok=True)
    with store.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def _store(library: str) -> Path:
    return _RESULTS / f"coverage-{library}.jsonl"


def _show_progress(line: str, is_telling: bool) -> None:
    """On a terminal the same line again and again, elsewhere only lines that tell something."""
    if sys.stderr.isatty():
        print(f"\r{line[:110]:<110}", end="", file=sys.stderr, flush=True)
    elif is_telling:
        print(line[:240], file=sys.stderr, flush=True)


def _failures(results: Sequence[Result]) -> list[tuple[str, str, list[str]]]:
    """What was not captured, by status and reason, the most frequent reason first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for result in results:
        if result.status != CAPTURED:
            groups.setdefault((result.status, _general(result.reason)), []).append(result.name)
    order = list(_TITLES)
    ranked = sorted(groups.items(), key=lambda group: (order.index(group[0][0]), -len(group[1])))
    return [(status, reason, names) for (status, reason), names in ranked]


def _print_table(library: str, results: Sequence[Result]) -> None:
    by_status = Counter(result.status for result in results)
    total = max(len(results), 1)
    print(f"{library}: {by_status[CAPTURED]} of {len(results)} captured ({100 * by_status[CAPTURED] / total:.1f} %)")
    shown = ""
    for status, reason, names in _failures(results):
        if status != shown:
            print(f"\n{_TITLES[status]}: {by_status[status]}")
            shown = status
        print(f"  {len(names):4d}  {reason}\n        {', '.join(names)}")
    captured = [result for result in results if result.status == CAPTURED]
    assumed = Counter(_general(sentence) for result in captured for sentence in set(result.assumptions))
    unsupported = Counter(what for result in captured for what in result.unsupported)
    for title, counted in (("assumptions", assumed), ("not modelled", unsupported)):
        if counted:
            print(f"\n{title}, with the number of models")
        for sentence, count in counted.most_common():
            print(f"  {count:4d}  {sentence}")
    print("\nslowest ten")
    for result in sorted(captured, key=lambda result: -result.seconds)[:10]:
        print(f"  {result.seconds:6.1f} s  {result.name} ({result.parameters / 1e6:,.0f} M parameters)")
    seconds, rss = sum(r.seconds for r in results), max((r.peak_rss for r in results), default=0)
    print(f"\n{seconds:.0f} s in all; peak resident memory of a process {rss / 2**20:,.0f} MiB")


def _general(reason: str) -> str:
    """A reason without the sizes that differ from model to model."""
    return re.sub(r"\d[\d,.]*", "N", reason)


if __name__ == "__main__":
    raise SystemExit(main())
