"""What the overrides follow: the GPU's architecture and the versions of the libraries, not those of this machine.

`Platform.of` is the one place that makes it, from a GPU and a software stack. A rule that changed with a version of
torch asks `before(version, subject)`; where the installed torch would do otherwise, the subject is noted, and the
answer says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ....devices import Gpu, Stack, default_stack

__all__ = [
    "INSTALLED",
    "Followed",
    "Platform",
    "before",
    "current_platform",
    "entered",
    "note_difference",
    "on_virtual_gpu",
]


@dataclass(frozen=True, slots=True)
class Platform:
    """The GPU and the libraries whose choices are followed; the machine that captures never decides."""

    compute_capability: tuple[int, int]
    torch: tuple[int, int]
    cudnn: int
    """As `torch.backends.cudnn.version()` gives it: 91002 is 9.10.2, 8300 is 8.3."""
    cuda: tuple[int, int]

    @classmethod
    def of(cls, gpu: Gpu, stack: Stack) -> Platform:
        return cls(gpu.compute_capability, *_libraries(stack))

    def as_installed(self) -> Platform:
        """The same GPU with the installed torch and the libraries that come with it."""
        return Platform(self.compute_capability, *_INSTALLED_LIBRARIES)

    @property
    def cuda_text(self) -> str:
        """As `torch.version.cuda` has it."""
        return "{}.{}".format(*self.cuda)


def _libraries(stack: Stack) -> tuple[tuple[int, int], int, tuple[int, int]]:
    major, minor = stack.cudnn
    # cuDNN 9 gave the major version one more digit (cudnn_version.h).
    return stack.version, major * (10_000 if major >= 9 else 1_000) + minor * 100, stack.cuda


_INSTALLED_LIBRARIES = _libraries(default_stack(torch.__version__))
INSTALLED = _INSTALLED_LIBRARIES[0]
"""The torch of this machine, whose Python code runs whatever version is followed."""


@dataclass
class Followed:
    """A platform while it is followed, and in what the installed torch would have done otherwise."""

    platform: Platform
    differences: dict[str, None] = field(default_factory=dict)
    """Subjects, in the order in which they were met."""


entered: list[Followed] = []
"""The platforms of the personalities in place, the innermost last."""


def current_platform() -> Platform:
    """The platform whose choices the overrides follow now."""
    return entered[-1].platform


def before(version: tuple[int, int], subject: str) -> bool:
    """Whether the torch that is followed is older than that version, which changed the subject."""
    older = current_platform().torch < version
    if older != (version > INSTALLED):
        note_difference(subject)
    return older


def note_difference(subject: str) -> None:
    """Something in which the installed torch would have done otherwise has been followed."""
    entered[-1].differences.setdefault(subject)


def on_virtual_gpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor lives on the virtual GPU: its device is `cpu` with an index, the host's has none."""
    device = tensor.device
    return device.type == "cpu" and device.index is not None
