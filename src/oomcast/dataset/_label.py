"""One network, captured: its features, and its label by the simulator."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from ..capture import capture
from ..devices import find_gpu
from ..errors import BadInput, OomcastError
from ..estimate import Estimate, Target, Verdict, estimate_trace
from ..estimate.learned import layer_features, reserved_without_workspaces, simulator_features
from ..workload import Workload
from ._job import NetworkJob
from ._network import Network
from ._rows import Label, Row, flatten, row_id

__all__ = ["CPU", "SIMULATOR", "Labeller"]

CPU = "cpu"
SIMULATOR = "simulator"
_VIRTUAL_GPU = "a100-40gb"
"""For networks that run on a CPU: tensors are the same on every device; one must be named to be captured on."""
_TIME_LIMIT = 300.0


@dataclass(frozen=True)
class Labeller:
    """Goes to worker processes whole. Answers with a flat row, or with `{"error": …}`."""

    device: str
    environment: str
    optimizer: str
    precision: str
    steps: int

    def __call__(self, given: tuple[Network, Label | None]) -> tuple[str, dict[str, Any]]:
        """`given`: the network, and the label of its real run where it had one."""
        network, label = given
        name = row_id(network)
        _load_framework()
        try:
            return name, flatten(self._row(name, network, label))
        except OomcastError as error:
            return name, {"error": str(error)}

    def _row(self, name: str, network: Network, label: Label | None) -> Row:
        workload = Workload.create(
            NetworkJob(network),
            batch_size=network.batch_size,
            optimizer=self.optimizer,
            precision=self.precision,
            steps=self.steps,
        )
        gpu = find_gpu(_VIRTUAL_GPU if self.device == CPU else self.device)
        trace = capture(workload, gpu, _TIME_LIMIT)
        layers = layer_features(trace)
        if self.device == CPU:
            if label is None:
                raise BadInput("the simulator labels runs on GPUs; a CPU's are measured.")
            return Row(name, network, label, layers, None)
        target = Target.create(self.device, self.environment)
        found = estimate_trace(trace, target)
        simulated = simulator_features(found, layers, reserved_without_workspaces(trace, target))
        return Row(name, network, label or self._by_simulator(found), layers, simulated)

    def _by_simulator(self, found: Estimate) -> Label:
        return Label(
            source=SIMULATOR,
            device=self.device,
            environment=self.environment,
            optimizer=self.optimizer,
            precision=self.precision,
            peak_allocated=found.peak_allocated,
            peak_reserved=found.peak_reserved,
            device_total=found.device_total,
            outcome="oom" if found.verdict is Verdict.OOM else "fits",
        )


@functools.cache
def _load_framework() -> None:
    """Once in a process: captures are forks of it and find loaded what the small networks here have used."""
    from ._warm import warm_up

    warm_up()
