"""Logs of real clusters, as their owners published them: when jobs came, and how long they ran.

Three forms are known by their columns: Alibaba's pods of 2023 (`openb_pod_list_*.csv` in cluster-trace-gpu-v2023 of
github.com/alibaba/clusterdata), SenseTime's Helios (`cluster_log.csv` of github.com/S-Lab-System-Group/HeliosData), and
a plain list of running times (`philly_runtime.csv` in cluster-trace-gpu-v2020 of Alibaba's, from Microsoft's Philly).
Jobs of one GPU count. None of the logs tells how much memory a job held.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from oomcast.errors import BadInput

__all__ = ["ClusterLog", "read_cluster_log"]


@dataclass(frozen=True)
class ClusterLog:
    """Seconds."""

    name: str
    durations: tuple[float, ...]
    arrivals: tuple[float, ...]
    """In order, one for each duration; empty where the log has running times alone."""

    def stretch(self, draw: random.Random, jobs: int, every: float, longest: float) -> list[tuple[float, float]]:
        """Arrival and duration of so many jobs: consecutive ones from somewhere in the log, their times stretched so
        that one comes every `every` seconds in the mean, as many as the cards at hand are for."""
        if len(self.durations) < 2:
            raise BadInput(f"{self.name} has too few jobs of one GPU.")
        count = min(jobs, len(self.durations))
        first = draw.randrange(len(self.durations) - count + 1)
        chosen = slice(first, first + count)
        if self.arrivals:
            times = [time - self.arrivals[first] for time in self.arrivals[chosen]]
            times = [time * every * count / (times[-1] or 1.0) for time in times]
            durations = list(self.durations[chosen])
        else:
            times = [draw.expovariate(1 / every) for _ in range(count)]
            times = [sum(times[: number + 1]) for number in range(count)]
            durations = draw.choices(self.durations, k=count)
        return [(time, min(duration, longest)) for time, duration in zip(times, durations, strict=True)]


def read_cluster_log(path: Path) -> ClusterLog:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            jobs = sorted(_jobs(reader, set(reader.fieldnames or ()), path))
    except OSError as error:
        raise BadInput(f"cannot read the log {path}: {error.strerror or error}.") from error
    except (ValueError, csv.Error) as error:
        raise BadInput(f"the log {path} is damaged: {error}.") from error
    arrivals = tuple(arrival for arrival, _ in jobs)
    return ClusterLog(path.stem, tuple(duration for _, duration in jobs), arrivals if any(arrivals) else ())


def _jobs(rows: Iterator[Mapping[str, str]], columns: set[str], path: Path) -> Iterator[tuple[float, float]]:
    """Arrival, 0 where it is not told, and duration; jobs that were still running when the log ended are left out."""
    if {"creation_time", "deletion_time", "num_gpu"} <= columns:
        for row in rows:
            if row["num_gpu"] == "1" and row["creation_time"] and row["deletion_time"]:
                begun = float(row.get("scheduled_time") or row["creation_time"])
                if (duration := float(row["deletion_time"]) - begun) > 0 and row.get("pod_phase") != "Running":
                    yield float(row["creation_time"]), duration
    elif {"submit_time", "duration", "gpu_num"} <= columns:
        for row in rows:
            if row["gpu_num"] == "1" and (duration := float(row["duration"])) > 0:
                yield datetime.fromisoformat(row["submit_time"]).timestamp(), duration
    elif "runtime" in columns:
        for row in rows:
            if (duration := float(row["runtime"])) > 0:
                yield 0.0, duration
    else:
        raise BadInput(f"{path} is no log that is known: it has neither creation_time, submit_time nor runtime.")
