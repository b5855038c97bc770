"""Cases on a Ray cluster: this process claims and stores, the cluster's machines measure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oomcast.cluster import connect, ray_module
from oomcast.errors import BadInput, OomcastError

from ..case_run import Conditions
from ..environment import environment_of
from ..measurement import CaseSpec, Measurement, Outcome
from ..processes import clean_up
from .elsewhere import measure_plain, plain_case, plain_conditions
from .ray_guard import guarded_cluster

__all__ = ["RayEngine"]

_TRIES = 3
"""How often a case is given to the cluster when its machine is lost under it."""


@dataclass(frozen=True)
class RayEngine:
    """`address` of a running cluster (`auto`: the one on this machine, `ray://host:10001` …); None starts one here.

    A case takes as many CPUs as it has threads, a whole GPU if it wants one, and its memory limit as Ray's `memory`.
    oomcast must be installed on every machine of the cluster, in the same version.
    """

    address: str | None = "auto"

    @contextlib.contextmanager
    def start(self, conditions: Conditions) -> Iterator[_RaySession]:
        ray = ray_module()
        with contextlib.ExitStack() as stack:
            if not ray.is_initialized():
                if self.address in (None, "local"):
                    stack.enter_context(guarded_cluster())
                stack.callback(ray.shutdown)
                connect(self.address)
            yield stack.enter_context(contextlib.closing(_RaySession(ray, conditions)))


class _RaySession:
    def __init__(self, ray: Any, conditions: Conditions) -> None:
        self._ray = ray
        self._conditions = conditions
        self._plain = plain_conditions(conditions)
        self._under_way: dict[Any, tuple[CaseSpec, str, int]] = {}

    def has_room(self, device: str) -> bool:
        """A few more than the cluster runs at once, so that it need not wait for us between two cases."""
        resources: Mapping[str, float] = self._ray.cluster_resources()
        if device == "cpu":
            at_once = resources.get("CPU", 0) / self._conditions.threads
        else:
            at_once = resources.get("GPU", 0)
        if at_once < 1:
            wants = f"{self._conditions.threads} CPUs" if device == "cpu" else "a GPU"
            raise BadInput(f"a case for {device!r} needs {wants} on one machine, which this Ray cluster has not.")
        return len(self._under_way) < int(at_once) + 1

    def submit(self, case: CaseSpec, marker: str, tries: int = 1) -> None:
        limit = self._conditions.limits.bytes
        options: dict[str, Any] = {
            "num_cpus": self._conditions.threads,
            "num_gpus": 0 if case.device == "cpu" else 1,
            "max_retries": 0,
        }
        if limit is not None:
            options["memory"] = limit
        remote = self._ray.remote(measure_plain).options(**options)
        self._under_way[remote.remote(plain_case(case), self._plain, marker)] = (case, marker, tries)

    def collect(self, timeout: float) -> list[Measurement]:
        if not self._under_way:
            return []
        ready, _ = self._ray.wait(list(self._under_way), num_returns=1, timeout=timeout)
        measured = []
        for reference in ready:
            case, marker, tries = self._under_way.pop(reference)
            try:
                answer = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as error:
                raise _as_ours(error, case) from error
            except self._ray.exceptions.RayError as error:
                if tries < _TRIES:
                    self.submit(case, marker, tries + 1)
                else:
                    clean_up(marker)
                    measured.append(self._lost(case, error))
                continue
            measured.append(Measurement.from_dict(answer, case))
        return measured

    def _lost(self, case: CaseSpec, error: Exception) -> Measurement:
        """A case that takes its machine with it each time must not stop the others."""
        out_of_memory = isinstance(error, self._ray.exceptions.OutOfMemoryError)
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        return Measurement(
            case=case,
            outcome=Outcome.OOM if out_of_memory else Outcome.CRASH,
            peak_bytes=0,
            seconds=0.0,
            environment=environment_of(case.framework, {}, {}, threads=self._conditions.threads),
            message=f"lost {_TRIES} times with the Ray process that ran it: {reason}",
        )

    def close(self) -> None:
        for reference in self._under_way:
            # By force: only the end of the process that watches a case ends the case at once.
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)
        self._under_way.clear()


def _as_ours(error: Any, case: CaseSpec) -> OomcastError:
    cause = getattr(error, "cause", None)
    if isinstance(cause, OomcastError):
        return cause
    return OomcastError(f"the Ray cluster could not run the case {case.key}: {type(cause).__name__}: {cause}")
