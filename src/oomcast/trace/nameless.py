"""A Trace that says how much was held when, and nothing by which its job could be known again by name."""

from __future__ import annotations

import dataclasses
import hashlib
import re

from .record import Category, KernelCall, Trace

__all__ = ["family_of", "without_names"]

_KNOWN_OPERATOR = re.compile(r"(aten|c10d|_c10d_functional|torchvision)\.\w+(\.\w+)?|conv_(fprop|dgrad|wgrad)")
"""Of torch itself, or of ours; any other may be of the user's own code."""
_OTHER = "other"


def without_names(trace: Trace) -> Trace:
    """The same blocks, frees, kernels and versions, without modules, source lines, sentences and the workload.

    Whatever the allocator and the rules of workspaces look at stays: simulated, it gives the same bytes.
    """
    return dataclasses.replace(
        trace,
        allocations=tuple(
            dataclasses.replace(made, module="", source="", operator=_known(made.operator))
            for made in trace.allocations
        ),
        kernels=tuple(_without_words(kernel) for kernel in trace.kernels),
        unsupported={_OTHER: sum(trace.unsupported.values())} if trace.unsupported else {},
        assumptions=(),
        workload={},
        script=None,
    )


def _known(operator: str) -> str:
    return operator if _KNOWN_OPERATOR.fullmatch(operator) else _OTHER


def _without_words(kernel: KernelCall) -> KernelCall:
    if _known(kernel.operator) == kernel.operator:
        return kernel
    return KernelCall(_OTHER, kernel.operands)


def family_of(trace: Trace) -> str:
    """The same for runs of the same network, whatever its batch, optimizer or GPU: a digest of its weights' shapes."""
    shapes = sorted(f"{made.shape}{made.dtype}" for made in trace.allocations if made.category is Category.PARAMETER)
    return hashlib.blake2b("\n".join(shapes).encode(), digest_size=6).hexdigest()
