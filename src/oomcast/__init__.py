"""oomcast: how much GPU memory a training job will hold, before it runs, on any machine.

>>> import oomcast
>>> answer = oomcast.estimate("zoo:resnet50", batch_size=64, device="rtx-3090")
>>> answer.verdict, answer.device_total
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._virtual import virtual_gpu
    from .advise import fit, rank_gpus, what_to_change
    from .estimate import Estimate, calibrate, estimate

__all__ = [
    "Estimate",
    "__version__",
    "calibrate",
    "estimate",
    "fit",
    "rank_gpus",
    "virtual_gpu",
    "what_to_change",
]
__version__ = "0.1.0"

_HOMES = {
    "fit": ".advise",
    "rank_gpus": ".advise",
    "what_to_change": ".advise",
    "Estimate": ".estimate",
    "calibrate": ".estimate",
    "virtual_gpu": "._virtual",
}


def __getattr__(name: str) -> Any:
    """Names are loaded when first used: `import oomcast` costs nothing, and no framework is loaded for it."""
    if name == "estimate":
        # The room of that name, which can be called (see its last lines).
        return importlib.import_module(".estimate", __name__)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'oomcast' has no attribute {name!r}")
    return getattr(importlib.import_module(home, __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
