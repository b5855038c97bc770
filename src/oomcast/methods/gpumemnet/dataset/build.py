"""From settings to a file: draw the networks, label them over all cores, write.

A build that was killed goes on where it was: a journal beside the file has a line for every finished row."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import connection
from pathlib import Path
from typing import Any, TextIO

from ....errors import BadInput, CaptureFailed, UnreadableFile
from .files import check_path, read_dataset, read_metadata, write_dataset
from .labelling import Labeller
from .network import Network
from .rows import Dataset, Label, row_id, unflatten
from .sampling import draw_networks
from .settings import RUNS, Settings
from .uniformity import uniformity_of

__all__ = ["Journal", "build_dataset", "finish_dataset", "journal_path", "open_journal"]


def journal_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


class Journal:
    """The finished rows of a build, kept in a file line by line. Made by `open_journal`."""

    def __init__(self, stream: TextIO, entries: dict[str, dict[str, Any]]) -> None:
        self._stream = stream
        self.entries = entries
        """What is finished, by id: a flat row, or `{"error": …}`."""

    def add(self, name: str, entry: dict[str, Any]) -> None:
        """One write, at once: a killed process leaves whole lines and at most one torn one at the end.

        A row that is there stays; only an error gives way.
        """
        if "error" not in self.entries.get(name, {"error": ""}):
            return
        self._stream.write(json.dumps([name, entry], separators=(",", ":")) + "\n")
        self._stream.flush()
        self.entries[name] = entry


@contextlib.contextmanager
def open_journal(path: Path, settings: Mapping[str, Any], restart: bool = False) -> Iterator[Journal]:
    """The journal of the build of `path`, for one process at a time."""
    place = journal_path(path)
    try:
        stream = place.open("a+", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {place}: {error.strerror or error}.") from None
    with stream:
        _lock(stream, path)
        if restart:
            stream.truncate(0)
        stream.seek(0)
        yield Journal(stream, _entries(stream, place, settings))


def _entries(stream: TextIO, place: Path, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    header, *lines = stream.read().split("\n")
    if not header or not lines:
        _cut(stream, 0)
        stream.write(json.dumps({"settings": dict(settings)}) + "\n")
        stream.flush()
        return {}
    try:
        before = json.loads(header)["settings"]
        entries = dict(map(json.loads, lines[:-1]))
    except (ValueError, KeyError, TypeError):
        raise UnreadableFile(f"{place} is not an unfinished build; remove it, or add --restart.") from None
    _check_same(before, settings, place)
    if lines[-1]:  # torn: its row is made again
        whole = "\n".join([header, *lines[:-1]]) + "\n"
        _cut(stream, len(whole.encode()))
    return entries


def _cut(stream: TextIO, length: int) -> None:
    stream.flush()
    os.truncate(stream.fileno(), length)
    stream.seek(0, os.SEEK_END)


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], place: Path) -> None:
    different = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    if different:
        changes = ", ".join(f"{key.replace('_', ' ')} {_said(before, key)}, not {_said(now, key)}" for key in different)
        raise BadInput(
            f"{place} is an unfinished build with other settings: {changes}. Finish it with those, or add --restart to "
            "throw it away."
        )


def _said(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _lock(stream: TextIO, path: Path) -> None:
    try:
        import fcntl
    except ModuleNotFoundError:  # not on Windows
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise BadInput(f"another process is building {path} now.") from None


_AHEAD = 4
"""Tasks handed out for each process: enough to keep it busy, few to lose."""


def build_dataset(
    path: str | os.PathLike[str],
    settings: Settings,
    *,
    processes: int | None = None,
    restart: bool = False,
    seconds_per_run: float = 600.0,
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Dataset:
    """Label what has no label yet, and write the file; a finished file with the same settings is returned as it is.

    `processes`: how many label at a time, all cores by default. `restart` throws an unfinished build away, and a
    finished file too. `on_progress` is told what is done, and how much of it.
    """
    path = Path(path)
    workers = processes if processes is not None else os.cpu_count() or 1
    if workers < 1:
        raise BadInput(f"the number of processes must be at least 1, not {workers}.")
    check_path(path)
    plain = settings.as_dict()
    finished = None if restart else _finished(path, plain)
    if finished is not None:
        return finished
    with open_journal(path, plain, restart) as journal:
        networks = draw_networks(
            settings.strata,
            settings.rows,
            settings.most_bytes,
            settings.seed,
            even_peaks=settings.even_peaks,
            progress=lambda done, total: on_progress("drawing networks", done, total),
        )
        labels: Mapping[str, Label | str] = {}
        if settings.labels == RUNS:
            labels = _run(networks, settings, path, workers, restart, seconds_per_run, on_progress)
        _label(journal, networks, labels, settings, workers, on_progress)
        dataset = _assemble(journal, networks, plain)
        write_dataset(dataset, path)
        journal_path(path).unlink()
    return dataset


def finish_dataset(path: str | os.PathLike[str]) -> Dataset:
    """Write what an unfinished build has labelled so far, in the order in which it was ready, and end that build.

    Rows are drawn so that every beginning of them is spread evenly. The metadata say how many were planned.
    """
    path = Path(path)
    check_path(path)
    place = journal_path(path)
    if not place.exists():
        raise BadInput(f"there is no unfinished build of {path}.")
    with place.open("a+", encoding="utf-8") as stream:
        _lock(stream, path)
        stream.seek(0)
        try:
            settings = json.loads(stream.readline())["settings"]
        except (ValueError, KeyError, TypeError):
            raise UnreadableFile(f"{place} is not an unfinished build; remove it.") from None
        stream.seek(0)
        entries = _entries(stream, place, settings)
        rows = tuple(unflatten(entry) for entry in entries.values() if "error" not in entry)
        if not rows:
            raise BadInput(f"the unfinished build of {path} has no labelled row yet.")
        failed = {name: entry["error"] for name, entry in entries.items() if "error" in entry}
        uniformity = uniformity_of([row.network for row in rows], [row.label.device_total for row in rows])
        ended = {"finished_early": {"rows": len(rows), "planned": settings.get("rows")}}
        dataset = Dataset(rows, {"settings": settings, "failed": failed, "uniformity": uniformity, **ended})
        write_dataset(dataset, path)
        place.unlink()
    return dataset


def _run(networks: Sequence[Network], *how: Any) -> Mapping[str, Label | str]:
    from .runs import measured_labels

    return measured_labels(networks, *how)


def _finished(path: Path, plain: Mapping[str, Any]) -> Dataset | None:
    if not path.exists() or journal_path(path).exists():
        return None
    if read_metadata(path).get("settings") != plain:
        raise BadInput(f"{path} exists and was built with other settings; name another file, or add --restart.")
    return read_dataset(path)


def _label(
    journal: Journal,
    networks: Sequence[Network],
    labels: Mapping[str, Label | str],
    settings: Settings,
    workers: int,
    on_progress: Callable[[str, int, int], None],
) -> None:
    unmeasured = {name: {"error": label} for name, label in labels.items() if isinstance(label, str)}
    for name, entry in unmeasured.items():
        journal.add(name, entry)
    # What failed in a build that was stopped is tried again: the machine may have been at fault.
    done = {name for name, entry in journal.entries.items() if "error" not in entry} | set(unmeasured)
    left = [network for network in networks if row_id(network) not in done]
    tasks = [(network, _label_of(labels, network)) for network in left]
    labeller = Labeller(settings.device, settings.environment, settings.optimizer, settings.precision, settings.steps)
    on_progress("labelling", len(networks) - len(left), len(networks))
    for count, (name, entry) in enumerate(_answers(labeller, tasks, min(workers, len(left))), start=1):
        journal.add(name, entry)
        on_progress("labelling", len(networks) - len(left) + count, len(networks))


def _label_of(labels: Mapping[str, Label | str], network: Network) -> Label | None:
    label = labels.get(row_id(network))
    return label if isinstance(label, Label) else None


def _answers(
    labeller: Labeller, tasks: Sequence[tuple[Network, Label | None]], workers: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """As they come: the journal does not need an order, the file gets it back."""
    if workers <= 1:
        yield from map(labeller, tasks)
        return
    waiting = iter(tasks)
    # Spawned, not forked: torch's threads do not survive a fork that goes on computing.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _follow_parent) as pool:
        running: set[Future[tuple[str, dict[str, Any]]]] = set()
        try:
            while True:
                running |= {pool.submit(labeller, task) for task in islice(waiting, workers * _AHEAD - len(running))}
                if not running:
                    return
                done = next(as_completed(running))
                running.discard(done)
                yield done.result()
        except BrokenProcessPool:
            raise CaptureFailed(
                "a labelling process was killed, most likely for want of memory on this machine; what was labelled is "
                "kept: give the command again, with fewer --processes."
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _follow_parent() -> None:
    """In a worker: Ctrl-C is the parent's to answer; a parent that was killed takes no answers, and cannot say so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _assemble(journal: Journal, networks: Sequence[Network], plain: Mapping[str, Any]) -> Dataset:
    """The rows in the order in which their networks were drawn, whoever was ready first."""
    names = [row_id(network) for network in networks]
    failed = {name: journal.entries[name]["error"] for name in names if "error" in journal.entries[name]}
    rows = tuple(unflatten(journal.entries[name]) for name in names if name not in failed)
    if not rows:
        raise CaptureFailed(f"not one of {len(names)} networks could be labelled: {next(iter(failed.values()))}")
    uniformity = uniformity_of([row.network for row in rows], [row.label.device_total for row in rows])
    return Dataset(rows, {"settings": dict(plain), "failed": failed, "uniformity": uniformity})
