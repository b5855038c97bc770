"""oomcast: how much GPU memory a training job will hold, before it runs, on any machine.

>>> import oomcast
>>> answer = oomcast.estimate("zoo:resnet50", batch_size=64, device="rtx-3090")
>>> answer
<Estimate FITS zoo:resnet50 on rtx-3090: 6.76 GiB of 23.54 GiB usable (95% interval 6.36 GiB to 8.10 GiB), P(OOM) 0.0%>
>>> answer.verdict, answer.device_total

Commands are in `oomcast --help`; what goes wrong is in `oomcast.errors`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import moved as _moved

if TYPE_CHECKING:
    from .advise import fit, plan, rank_gpus, what_to_change
    from .estimation import Estimate, calibrate, contribute, estimate, run
    from .virtual import virtual_gpu

__all__ = [
    "Estimate",
    "__version__",
    "calibrate",
    "contribute",
    "estimate",
    "fit",
    "plan",
    "rank_gpus",
    "run",
    "virtual_gpu",
    "what_to_change",
]
__version__ = "0.2.0"
_moved.install()

_HOMES = {
    "fit": ".advise",
    "plan": ".advise",
    "rank_gpus": ".advise",
    "what_to_change": ".advise",
    "Estimate": ".estimation",
    "calibrate": ".estimation",
    "contribute": ".estimation",
    "estimate": ".estimation",
    "run": ".estimation",
    "virtual_gpu": ".virtual",
}


def __getattr__(name: str) -> Any:
    """Names are loaded when first used: `import oomcast` costs nothing, and no framework is loaded for it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(_moved.new_home(name) or f"module 'oomcast' has no attribute {name!r}")
    return getattr(importlib.import_module(home, __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
