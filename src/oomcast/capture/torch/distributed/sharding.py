"""DTensor's search for shardings, without work that grows with the square of the number of parameters.

For a foreach operator, torch asks for each of its tensors which flags all of them have
(`_propagate_use_strided_shard_flag`, torch 2.12 and later): with the 723 parameters of a 70B model, most of an
optimizer's step. The answer is the same for all tensors of a call, and only one tensor of each kind decides it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch.distributed.tensor import _sharding_prop

from ..patches import Patches

__all__ = ["install_quick_sharding"]

_NAME = "_propagate_use_strided_shard_flag"


def install_quick_sharding(patches: Patches) -> None:
    original: Any = getattr(_sharding_prop, _NAME, None)
    strided: Any = getattr(_sharding_prop, "_StridedShard", None)
    if original is None or strided is None:
        return
    asked: Any = None
    kinds = SimpleNamespace(args_spec=())

    def propagate(strategy: Any, schema: Any) -> None:
        nonlocal asked
        if schema is not asked:
            asked = schema
            specs = (spec for spec in schema.args_spec if any(isinstance(p, strided) for p in spec.placements))
            kinds.args_spec = tuple({spec.use_strided_shard_as_shard_order: spec for spec in specs}.values())
        if kinds.args_spec:
            original(strategy, kinds)

    patches.set(_sharding_prop, _NAME, propagate)
