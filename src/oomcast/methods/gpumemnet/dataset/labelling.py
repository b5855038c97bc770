"""One network of a data set, captured: its features, and its label by the simulator."""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo import config as dynamo

from oomcast.capture import capture
from oomcast.capture.torch.run import capture_here
from oomcast.errors import BadInput, OomcastError
from oomcast.estimation import Estimate, Verdict, estimate_trace

from ....estimation import target_of
from ....spec import Spec
from ..features import layer_features, layers_with_memory, reserved_without_workspaces, simulator_features
from .network import Network, NetworkJob
from .rows import Label, Row, flatten, row_id
from .sampling import ACTIVATION_NAMES

__all__ = ["CPU", "SIMULATOR", "Labeller", "warm_up"]

# What captures of a data set's networks need is loaded once, before they are forked off.


_SIZES = {"depth": 1, "width": 8, "input_size": 8, "output_size": 2, "batch_size": 2}
_SMALL = (
    *(Network("mlp", "uniform", name, True, 0.1, **_SIZES) for name in ACTIVATION_NAMES),
    *(
        Network("transformer", "dense", "gelu", norm, 0.1, **_SIZES, hidden=8, heads=2, vocabulary=4)
        for norm in (False, True)
    ),
    Network("cnn", "residual", "relu", True, 0.1, **{**_SIZES, "depth": 4}, channels=1),
    Network("cnn", "dense", "relu", True, 0.1, **{**_SIZES, "depth": 4}, channels=1),
)
"""Every operator that the captures will meet: torch prepares each when it is first used."""


def warm_up() -> None:
    torch.set_num_threads(1)
    in_worker = multiprocessing.parent_process() is not None
    if in_worker:
        # Networks that are drawn have shapes of their own: torch's cache of fake kernels would only be filled.
        dynamo.fake_tensor_cache_enabled = False
    for network in _SMALL:
        with contextlib.suppress(Exception):  # whatever is wrong, the capture itself will tell
            capture_here(Spec.read(NetworkJob(network), device="a100-40gb", batch_size=2, optimizer="adam", steps=2))
    if in_worker:
        # Forks share what is here as long as nobody writes to it, and the collector would.
        gc.collect()
        gc.freeze()


CPU = "cpu"
SIMULATOR = "simulator"
_VIRTUAL_GPU = "a100-40gb"
"""For networks that run on a CPU: tensors are the same on every device; one must be named to be captured on."""


@dataclass(frozen=True)
class Labeller:
    """Goes to worker processes whole. Answers with a flat row, or with `{"error": …}`."""

    device: str
    environment: str
    optimizer: str
    precision: str
    steps: int

    def __call__(self, task: tuple[Network, Label | None]) -> tuple[str, dict[str, Any]]:
        """`task`: the network, and the label of its real run where it had one."""
        network, label = task
        name = row_id(network)
        _load_framework()
        try:
            return name, flatten(self._row(name, network, label))
        except OomcastError as error:
            return name, {"error": str(error)}

    def _row(self, name: str, network: Network, label: Label | None) -> Row:
        spec = Spec.read(
            NetworkJob(network),
            device=_VIRTUAL_GPU if self.device == CPU else self.device,
            environment=None if self.device == CPU else self.environment,
            use_calibration=False,
            batch_size=network.batch_size,
            optimizer=self.optimizer,
            precision=self.precision,
            steps=self.steps,
        )
        trace = capture(spec)
        layers = layer_features(trace)
        if self.device == CPU:
            if label is None:
                raise BadInput("the simulator labels runs on GPUs; a CPU's are measured.")
            return Row(name, network, label, layers, None)
        target = target_of(spec)
        estimate = estimate_trace(trace, target)
        bare = reserved_without_workspaces(trace, target)
        simulated = simulator_features(estimate, layers_with_memory(trace), bare)
        return Row(name, network, label or self._by_simulator(estimate), layers, simulated)

    def _by_simulator(self, estimate: Estimate) -> Label:
        return Label(
            source=SIMULATOR,
            device=self.device,
            environment=self.environment,
            optimizer=self.optimizer,
            precision=self.precision,
            peak_allocated=estimate.peak_allocated,
            peak_reserved=estimate.peak_reserved,
            device_total=estimate.device_total,
            outcome="oom" if estimate.verdict is Verdict.OOM else "fits",
        )


@functools.cache
def _load_framework() -> None:
    """Once in a process: captures are forks of it and find loaded what the small networks here have used."""

    warm_up()
