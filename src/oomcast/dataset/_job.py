"""A network of a data set as a job. Nothing here imports a framework until it is captured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._network import Network

__all__ = ["NetworkJob"]


@dataclass(frozen=True)
class NetworkJob:
    network: Network

    def model(self) -> Any:
        from ._modules import build

        return build(self.network)

    def batch(self, batch_size: int) -> Any:
        from ._modules import example

        return example(self.network, batch_size)
