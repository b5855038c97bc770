"""The optimizers that can be asked for by name: what each is called, and in which implementations torch has it.

A plain name (`adamw`) lets the framework choose, as torch does on CUDA (foreach). A suffix (`adamw-fused`) fixes
torch's implementation; other frameworks have one only. Which of its classes stands for a name is each framework's
table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import BadInput

__all__ = [
    "DEFAULT_OPTIMIZER",
    "OPTIMIZERS",
    "OPTIMIZER_KINDS",
    "VARIANTS",
    "OptimizerKind",
    "missing_optimizer",
    "split_optimizer",
]


@dataclass(frozen=True)
class OptimizerKind:
    """One name without its suffix."""

    name: str
    class_name: str
    """As torch and Keras call it."""
    momentum: float = 0.0
    has_fused: bool = True
    """Whether torch has a fused implementation of it."""
    has_foreach: bool = True
    """Whether torch lets one choose between foreach and a loop."""
    library: str = "torch"
    """Where the class comes from: torch, torchao, pytorch_optimizer (a collection), or bitsandbytes, whose 8-bit states
    are quantised and whose paged ones may leave the GPU."""
    rank: int = 0
    """Of those that keep the states of a matrix in a subspace: its rank, as transformers has it by default."""
    matrices_only: bool = False
    """Whether it updates matrices alone; AdamW takes what is left, as its authors do."""

    offloads: str = ""
    """What waits in the host's memory: the states (the update is computed there), or the gradients too."""

    @property
    def options(self) -> dict[str, float]:
        """What sets it apart from others of its class; all take these under the same name."""
        return {"momentum": self.momentum} if self.momentum else {}


OPTIMIZER_KINDS: dict[str, OptimizerKind] = {
    kind.name: kind
    for kind in (
        OptimizerKind("sgd", "SGD"),
        OptimizerKind("sgd-momentum", "SGD", momentum=0.9),
        OptimizerKind("adam", "Adam"),
        OptimizerKind("adamw", "AdamW"),
        OptimizerKind("rmsprop", "RMSprop", has_fused=False),
        OptimizerKind("adagrad", "Adagrad"),
        OptimizerKind("adafactor", "Adafactor", has_fused=False),
        *(
            OptimizerKind(name, class_name, has_fused=False, library=library)
            for name, class_name, library in (
                ("adamw-8bit", "AdamW8bit", "bitsandbytes"),
                ("lion", "Lion", "bitsandbytes"),
                ("lion-8bit", "Lion8bit", "bitsandbytes"),
                ("paged-adamw", "PagedAdamW", "bitsandbytes"),
                ("paged-adamw-8bit", "PagedAdamW8bit", "bitsandbytes"),
                ("paged-lion", "PagedLion", "bitsandbytes"),
                ("paged-lion-8bit", "PagedLion8bit", "bitsandbytes"),
                ("adamw-8bit-torchao", "AdamW8bit", "torchao"),
                ("adamw-4bit-torchao", "AdamW4bit", "torchao"),
                ("adamw-fp8-torchao", "AdamWFp8", "torchao"),
                ("shampoo", "Shampoo", "pytorch_optimizer"),
                ("soap", "SOAP", "pytorch_optimizer"),
                ("schedule-free", "ScheduleFreeAdamW", "pytorch_optimizer"),
            )
        ),
        OptimizerKind("adamw-offload-torchao", "AdamW", has_fused=False, library="torchao", offloads="states"),
        OptimizerKind("adamw-offload-all-torchao", "AdamW", has_fused=False, library="torchao", offloads="gradients"),
        OptimizerKind("galore", "GaLore", has_fused=False, library="pytorch_optimizer", rank=128),
        OptimizerKind("apollo", "APOLLO", has_fused=False, library="pytorch_optimizer", rank=128),
        OptimizerKind("muon", "Muon", has_fused=False, has_foreach=False, matrices_only=True),
    )
}
VARIANTS: dict[str, dict[str, bool]] = {
    "foreach": {"foreach": True},
    "forloop": {"foreach": False},
    "fused": {"fused": True},
}
"""Suffix → what it is as keywords of torch's classes."""
OPTIMIZERS: tuple[str, ...] = (
    *OPTIMIZER_KINDS,
    *(
        f"{kind.name}-{variant}"
        for variant in VARIANTS
        for kind in OPTIMIZER_KINDS.values()
        if kind.library == "torch" and (kind.has_fused if variant == "fused" else kind.has_foreach)
    ),
)
DEFAULT_OPTIMIZER = "adamw"
"""Of a job that brings none and is asked with none."""


def split_optimizer(name: str) -> tuple[str, str]:
    """`adamw-fused` → `adamw` and `fused`; a name without a suffix has the variant ""."""
    base, _, variant = name.rpartition("-")
    return (base, variant) if variant in VARIANTS else (name, "")


def missing_optimizer(library: str, name: str, known: Iterable[str]) -> BadInput:
    """For a name that a framework has nothing for."""
    return BadInput(f"{library} has no optimizer {name}; choose among {', '.join(known)}, without a suffix.")
