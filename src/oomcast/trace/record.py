"""What happened on the device, in order: the one record between capture and everything that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, NamedTuple

__all__ = [
    "Allocation",
    "Category",
    "Communicator",
    "Ending",
    "Event",
    "EventKind",
    "KernelCall",
    "Mark",
    "Operand",
    "Phase",
    "ProcessSettings",
    "ScriptRun",
    "Trace",
]


class Category(str, Enum):
    """Whose memory it is. The names are those of torch's MemTracker where it has one."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    GRADIENT = "gradient"
    OPTIMIZER_STATE = "optimizer_state"
    INPUT = "input"
    ACTIVATION = "activation"
    TEMPORARY = "temporary"
    WORKSPACE = "workspace"


class Phase(str, Enum):
    """What the job was doing."""

    BUILD = "build"
    INPUT = "input"
    FORWARD = "forward"
    BACKWARD = "backward"
    COMPILING = "compiling"
    """What torch takes on the GPU to compile: kernels are timed, CUDA graphs prepared."""
    OPTIMIZER = "optimizer"
    ZERO_GRAD = "zero_grad"
    PREFILL = "prefill"
    DECODE = "decode"
    EVALUATION = "evaluation"
    """A model runs without gradients."""
    GENERATION = "generation"
    """… and its output is fed to it again: text or images are sampled."""
    SAVING = "saving"
    LOADING = "loading"
    """Of checkpoints."""


class Ending(str, Enum):
    """Why a script was followed no further."""

    STEADY = "steady"
    """Its peak repeated from step to step, and there was nothing else to wait for."""
    FINISHED = "finished"
    """It came to its own end."""
    MAX_STEPS = "max-steps"
    TIME_LIMIT = "time-limit"
    FAILED = "failed"
    """It raised an error, or ended its process with an exit code other than 0."""


class EventKind(IntEnum):
    """`ALLOCATE`, `FREE` and `LET_GO` index `Trace.allocations`, `KERNEL` indexes `Trace.kernels`.

    `LET_GO`: the block's last tensor is gone, but another stream may still use it (`record_stream`). From then on torch
    does not count it as allocated; it can be used again after the `FREE` that follows. `EMPTY_CACHE` is
    `torch.cuda.empty_cache()`; its index is 0.
    """

    ALLOCATE = 0
    FREE = 1
    KERNEL = 2
    EMPTY_CACHE = 3
    LET_GO = 4


class Event(NamedTuple):
    kind: EventKind
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks of an event


@dataclass(frozen=True, slots=True)
class Allocation:
    """One storage on the device: what asked for it, where, when and what for."""

    nbytes: int
    """Requested bytes, before the allocator rounds."""
    category: Category
    phase: Phase
    step: int
    """Training step, from 0; -1 before the first."""
    operator: str
    """`aten.convolution`, `to_device`, …"""
    module: str
    """Dotted path of the module whose forward made it (also for memory made in its backward); "" outside of any."""
    source: str
    """`file.py:12` of the user's line; "" where there is none."""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    stream: int = 0


class Operand(NamedTuple):
    """A tensor as a kernel sees it."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel that may take memory no tensor shows (a workspace). The same call recurs, so traces intern them."""

    operator: str
    """`conv_fprop`, `conv_dgrad`, `conv_wgrad`, or the ATen name for the rest."""
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    """Stride, padding, groups …: plain ints, bools, strings and tuples of them."""


class Mark(NamedTuple):
    """From event number `position` on, the job is in this phase of this step."""

    position: int
    phase: Phase
    step: int


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """What a job has set for its process and what changes the memory of its kernels and of the allocator."""

    cudnn_benchmark: bool = False
    cudnn_deterministic: bool = False
    """`torch.backends.cudnn.deterministic` or `torch.use_deterministic_algorithms`."""
    cudnn_tf32: bool = True
    """Whether convolutions of fp32 may compute in TF32."""
    alloc_conf: str | None = None
    """As PYTORCH_CUDA_ALLOC_CONF spells it."""
    cublas_workspace: str | None = None
    """CUBLAS_WORKSPACE_CONFIG."""
    nccl: tuple[tuple[str, str], ...] = ()
    """Variables of NCCL that decide its buffers, by name."""


class Communicator(NamedTuple):
    """A group of ranks that exchanged tensors on their GPUs, as this rank saw it."""

    size: int
    nodes: int
    """How many nodes its ranks are on."""
    exchanges: tuple[str, ...]
    """What they did, in the words of `devices.Exchange`, in order."""
    near_peers: int = 0
    """Ranks of its own node that this one sent messages to or received them from, one by one."""


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """How much of a script was seen."""

    ending: Ending
    reason: str
    """The same as a sentence, with the line where that matters."""
    optimizer_steps: int
    not_seen: tuple[str, ...] = ()
    """The phases that a training script may have, and that did not come, each with why."""
    batches: tuple[str, ...] = ()
    """What was found of the data's sizes, as sentences."""
    gpus: tuple[int, ...] = ()
    """The numbers of the GPUs, as the process counts them, on which it made tensors."""


_FORWARDS = (Phase.FORWARD, Phase.EVALUATION, Phase.GENERATION)


@dataclass(frozen=True, slots=True)
class Trace:
    """Every allocation and free of a job in true order, with the kernels that may need workspace in between."""

    allocations: tuple[Allocation, ...]
    events: tuple[Event, ...]
    kernels: tuple[KernelCall, ...] = ()
    marks: tuple[Mark, ...] = ()
    unsupported: Mapping[str, int] = field(default_factory=dict)
    """What was met and not modelled, with how often: operator or feature → count."""
    assumptions: tuple[str, ...] = ()
    """Sentences: bounds taken for data-dependent sizes, stand-in values that were read."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Python, framework and model library versions: they change the trace."""
    workload: Mapping[str, Any] = field(default_factory=dict)
    """The workload as it was captured, as plain JSON data."""
    script: ScriptRun | None = None
    """For a script: how far it was followed."""
    settings: ProcessSettings = ProcessSettings()
    """They hold where whoever asks says nothing else."""
    communicators: tuple[Communicator, ...] = ()
    """Of a rank of several GPUs: the groups that exchanged something, in the order in which they first did."""
    on_host: int = 0
    """Bytes that the layout puts off to the host's memory, of this process: parameters, gradients, states, buffers."""
    plan_is_modelled: bool = False
    """Whether a compiler plans the job's memory that was not asked: something stands for its plan."""

    @property
    def only_infers(self) -> bool:
        """Whether it is a script's that came to its end with forwards and without a backward: all that it does was
        seen."""
        if self.script is None or self.script.ending is not Ending.FINISHED or self.script.optimizer_steps:
            return False
        phases = {mark.phase for mark in self.marks}
        return Phase.BACKWARD not in phases and not phases.isdisjoint(_FORWARDS)
