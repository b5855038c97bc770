"""Names to models. A name may be written with `-`, `_` or `.`, in any case: `MobileNet-V2` is `mobilenet_v2`."""

from __future__ import annotations

from oomcast.errors import UnknownName

from ._catalogue import MODELS
from ._entry import Job, ZooModel

__all__ = ["Job", "ZooModel", "find", "names"]


def names() -> tuple[str, ...]:
    """Every model of the zoo, family by family, small to large."""
    return tuple(model.name for model in MODELS)


def find(name: str) -> ZooModel:
    """The model of that name; `UnknownName` with the nearest names if there is none."""
    wanted = _plain(name)
    for model in MODELS:
        if _plain(model.name) == wanted:
            return model
    raise UnknownName("zoo model", name, names())


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
