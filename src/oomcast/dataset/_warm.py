"""What captures of a data set's networks need, loaded once before they are forked off."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing

import torch
from torch._dynamo import config as dynamo

from ..capture.torch.worker import capture_here
from ..workload import Workload
from ._job import NetworkJob
from ._network import Network
from ._space import ACTIVATION_NAMES

__all__ = ["warm_up"]

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
            capture_here(Workload.create(NetworkJob(network), batch_size=2, optimizer="adam", steps=2), "a100-40gb")
    if in_worker:
        # Forks share what is here as long as nobody writes to it, and the collector would.
        gc.collect()
        gc.freeze()
