"""From settings to a file: draw the networks, label them over all cores, write. Killed, it goes on where it was."""

from __future__ import annotations

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
from typing import Any

from ..errors import BadInput, CaptureFailed
from ..estimate import missing_extra
from ._files import check_path, read_dataset, read_metadata, write_dataset
from ._journal import Journal, journal_path, open_journal
from ._label import Labeller
from ._network import Network
from ._rows import Dataset, Label, row_id, unflatten
from ._sample import draw_networks
from ._settings import RUNS, Settings
from ._uniformity import uniformity_of

__all__ = ["build_dataset"]

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


def _run(networks: Sequence[Network], *how: Any) -> Mapping[str, Label | str]:
    try:
        from ._runs import measured_labels
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
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
    unmeasured = {name: {"error": found} for name, found in labels.items() if isinstance(found, str)}
    for name, entry in unmeasured.items():
        journal.add(name, entry)
    # What failed in a build that was stopped is tried again: the machine may have been at fault.
    done = {name for name, entry in journal.entries.items() if "error" not in entry} | set(unmeasured)
    left = [network for network in networks if row_id(network) not in done]
    given = [(network, _label_of(labels, network)) for network in left]
    labeller = Labeller(settings.device, settings.environment, settings.optimizer, settings.precision, settings.steps)
    on_progress("labelling", len(networks) - len(left), len(networks))
    for count, (name, entry) in enumerate(_answers(labeller, given, min(workers, len(left))), start=1):
        journal.add(name, entry)
        on_progress("labelling", len(networks) - len(left) + count, len(networks))


def _label_of(labels: Mapping[str, Label | str], network: Network) -> Label | None:
    found = labels.get(row_id(network))
    return found if isinstance(found, Label) else None


def _answers(
    labeller: Labeller, given: Sequence[tuple[Network, Label | None]], workers: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """As they come: the journal does not need an order, the file gets it back."""
    if workers <= 1:
        yield from map(labeller, given)
        return
    waiting = iter(given)
    # Spawned, not forked: torch's threads do not survive a fork that goes on computing.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _follow_parent) as pool:
        running: set[Future[tuple[str, dict[str, Any]]]] = set()
        try:
            while True:
                running |= {pool.submit(labeller, one) for one in islice(waiting, workers * _AHEAD - len(running))}
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
