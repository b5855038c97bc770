"""What a process holds on the GPU beside its tensors, by software stack and GPU (`stacks.json`).

It is the CUDA context, the machine code of the kernels that were loaded, and the handles of cuBLAS and cuDNN; not the
workspaces that these take from the caching allocator, which are part of the simulation. Two things decide its size:

- The GPU: the driver sets local memory aside for every thread that can be resident, so the context grows with the
  number of multiprocessors. Each architecture has its own two figures, a fixed part and one per multiprocessor.
- The stack: before CUDA 11.7 every kernel of every library was loaded at once (1 GiB and more), since torch 1.13 only
  those that run are. `CUDA_MODULE_LOADING=EAGER` brings the old behaviour back, and has stacks of its own here.

Torch's out-of-memory message gives the figure of a running process: "this process has X in use" less what is
"allocated by PyTorch" and "reserved but unallocated". Most figures of `stacks.json` were read in this way from public
logs of single-GPU runs. They are data with a source and a range, made to be replaced by a calibration: `low` is a job
with few kernels (an MLP), `high` one with many (convolutions of many shapes).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Literal, cast, get_args

from ..errors import BadInput, UnknownName
from ..units import MiB
from .gpus import Gpu, all_gpus
from .records import Record, broken, read_records

__all__ = [
    "ContextFigure",
    "ContextRule",
    "Stack",
    "all_stacks",
    "context_bytes",
    "context_figure",
    "default_stack",
    "find_stack",
    "largest_context",
    "stack_of",
]

FILE = "stacks.json"

FIELDS = (
    "name",
    "framework",
    "year",
    "first_version",
    "version",
    "cuda",
    "cudnn",
    "lazy_loading",
    "cudnn_kernels_mib",
    "cudnn_batch_norm_mib",
    "default",
    "oldest_gpu",
    "newest_gpu",
    "note",
    "contexts",
)

Basis = Literal["measured", "reported", "derived"]


@dataclass(frozen=True)
class ContextFigure:
    """Bytes outside of the caching allocator, for one GPU under one stack."""

    typical: int
    low: int
    high: int
    basis: Basis
    """`measured`: a measured run less its simulated allocator; `reported`: read in logs; `derived`: from like GPUs."""
    source: str


@dataclass(frozen=True)
class ContextRule:
    """How the figure follows from the size of the chip, for one architecture under one stack."""

    fixed_mib: float
    per_multiprocessor_mib: float
    low: float
    """How low it may be, as a share of the typical figure; `high` likewise."""
    high: float
    basis: Basis
    source: str

    def figure(self, multiprocessors: int) -> ContextFigure:
        typical = self.fixed_mib + self.per_multiprocessor_mib * multiprocessors
        low, mean, high = (round(typical * share) * MiB for share in (self.low, 1.0, self.high))
        return ContextFigure(mean, low, high, self.basis, self.source)


@dataclass(frozen=True)
class Stack:
    """A generation of the software under a job, named by its usual framework and CUDA versions."""

    name: str
    year: int
    first_version: tuple[int, int]
    """The first version (major, minor) of its framework that it stands for, up to the next default stack's."""
    version: tuple[int, int]
    """The version of its framework whose behaviour captures follow: the one it is named after, unless a user named
    another of the generation (`torch-2.6`). The other frameworks are followed as they are installed: their first."""
    cuda: tuple[int, int]
    cudnn: tuple[int, int]
    lazy_loading: bool
    """Whether kernels are loaded only when they first run."""
    cudnn_kernels_mib: int
    """What cuDNN's kernels take where they are loaded all at once, with the first convolution; part of `contexts`."""
    cudnn_batch_norm_mib: int
    """The same of the library that batch norm adds to them."""
    default: bool
    """Whether it is what one gets with its torch version; the others are chosen by name only."""
    oldest_gpu: tuple[int, int]
    """Compute capability."""
    newest_gpu: tuple[int, int]
    note: str
    contexts: Mapping[str, ContextRule]
    """By architecture, `sm_80`."""
    environment: str
    """What `find_stack` makes this very stack from: its name, or the torch version that a user named."""
    framework: str = "torch"

    def supports(self, gpu: Gpu) -> bool:
        """Whether this stack's usual wheels carry code for that GPU."""
        return self.oldest_gpu <= gpu.compute_capability <= self.newest_gpu

    def of_version(self, version: tuple[int, int]) -> Stack:
        """This generation of torch with another of its versions, and the CUDA and the cuDNN that its wheels ask for;
        contexts stay the generation's."""
        if version == self.version:
            return self
        cuda, cudnn = _libraries_of_torch(version) or (self.cuda, self.cudnn)
        environment = "torch-{}.{}".format(*version)
        return dataclasses.replace(self, version=version, cuda=cuda, cudnn=cudnn, environment=environment)


def context_bytes(gpu: Gpu, stack: Stack, *, convolutions: bool = True, batch_norm: bool = True) -> int:
    """What a training process holds on that GPU outside of the caching allocator; the typical figure.

    Without `convolutions` cuDNN is never loaded, without `batch_norm` only a part of it, which matters where loading
    means all of a library.
    """
    if gpu.maker is not None:
        return context_figure(gpu, stack).typical
    unused = 0 if convolutions else stack.cudnn_kernels_mib
    unused += 0 if convolutions and batch_norm else stack.cudnn_batch_norm_mib
    return max(context_figure(gpu, stack).typical - unused * MiB, 0)


def context_figure(gpu: Gpu, stack: Stack) -> ContextFigure:
    """The same with its range and its source."""
    if gpu.maker is not None:
        low, typical, high = gpu.maker.context
        return ContextFigure(typical, low, high, "reported", gpu.maker.context_source)
    return stack.contexts[gpu.sm].figure(gpu.multiprocessors)


def largest_context(gpu: Gpu, framework: str) -> int:
    """What no known software of a framework exceeds on that GPU."""
    return max(context_figure(gpu, stack).high for stack in all_stacks() if stack.framework == framework)


def find_stack(name: str) -> Stack:
    """The stack of that name (`torch-2.8-cu128`), or the one that stands for a torch version (`torch-2.6`, `2.6`).

    The latter has the generation's name and contexts, and follows the version that was named, with its libraries.
    Raises UnknownName.
    """
    wanted = re.sub(r"[\s_]+", "-", name.strip().lower())
    for stack in all_stacks():
        if stack.name == wanted:
            return stack
    version = re.fullmatch(r"(?:torch-?)?([0-9]+\.[0-9]+(?:\.[0-9]+)?)", wanted)
    if version:
        return default_stack(version.group(1))
    names = [stack.name for stack in all_stacks()]
    # They are few, and near ones need not be those that were meant: all are shown.
    raise UnknownName("environment", name, names, f"There are {', '.join(names)}; see oomcast environments.")


def default_stack(version_text: str | None, framework: str = "torch") -> Stack:
    """The generation that a torch version (`2.13.0+cpu`, as `torch.__version__` has it) belongs to; None: newest.

    It follows that very version. Other frameworks have their own; one that has none yet runs under TensorFlow's.
    """
    stacks = [stack for stack in all_stacks() if stack.default and stack.framework == framework]
    if not stacks:
        return default_stack(None, "tensorflow")
    if version_text is None:
        return stacks[-1]
    match = re.match(r"\s*v?([0-9]+)\.([0-9]+)", version_text)
    if match is None:
        raise BadInput(f"cannot read {version_text!r} as a {framework} version; write it like 2.8.0.")
    version = int(match.group(1)), int(match.group(2))
    generation = next((stack for stack in reversed(stacks) if stack.first_version <= version), stacks[0])
    return generation.of_version(version) if framework == "torch" else generation


def stack_of(environment: str | None, framework: str) -> Stack:
    """The stack of that name, else the generation of the framework that is installed here, else its newest.

    The installed version is read without loading the framework.
    """
    if environment:
        return find_stack(environment)
    try:
        return default_stack(metadata.version(framework), framework)
    except metadata.PackageNotFoundError:
        return default_stack(None, framework)


def _libraries_of_torch(version: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """CUDA and cuDNN of a version's usual wheels; None for older ones, whose builds choose them."""
    known = (libraries for first, *libraries in reversed(_wheels()) if first <= version)
    cuda, cudnn = next(known, (None, None))
    return None if cuda is None or cudnn is None else (cuda, cudnn)


@functools.cache
def _wheels() -> tuple[tuple[tuple[int, int], tuple[int, int], tuple[int, int]], ...]:
    """The first version of torch, its CUDA and its cuDNN; oldest first."""
    top = read_records(FILE, schema=1)
    listed = top.fields.get("libraries_of_torch")
    if not isinstance(listed, list) or not listed:
        raise top.error("'libraries_of_torch' must be a list")
    found = []
    for entry in listed:
        record = Record(top.file, "libraries_of_torch", entry)
        record.only("first", "cuda", "cudnn", "source")
        if not record.text("source"):
            raise record.error("a source is needed")
        found.append((_version(record, "first"), _version(record, "cuda"), _version(record, "cudnn")))
    return tuple(sorted(found))


@functools.cache
def all_stacks() -> tuple[Stack, ...]:
    """All known stacks, oldest first."""
    return _parse(read_records(FILE, schema=1))


def _parse(top: Record) -> tuple[Stack, ...]:
    top.only("schema", "stacks", "libraries_of_torch")
    listed = top.fields.get("stacks")
    if not isinstance(listed, list) or not listed:
        raise top.error("'stacks' must be a list")
    stacks = tuple(
        sorted((_stack(top.file, entry) for entry in listed), key=lambda stack: (stack.first_version, stack.name))
    )
    for before, after in itertools.combinations(stacks, 2):
        if before.name == after.name:
            raise broken(top.file, f"stack {after.name!r}", "it is there twice")
        same = before.framework == after.framework and before.first_version == after.first_version
        if before.default and after.default and same:
            raise broken(top.file, f"stack {after.name!r}", f"it begins with the same version as {before.name!r}")
    if not any(stack.default and stack.framework == "torch" for stack in stacks):
        raise top.error("no stack is a default")
    return stacks


def _stack(file: str, entry: object) -> Stack:
    record = Record(file, "stacks", entry)
    record = Record(file, f"stack {record.text('name')!r}", entry)
    record.only(*FIELDS)
    contexts = record.record("contexts")
    stack = Stack(
        name=record.text("name"),
        year=record.integer("year", minimum=2016),
        first_version=_version(record, "first_version"),
        version=_version(record, "version" if "version" in record.fields else "first_version"),
        cuda=_version(record, "cuda"),
        cudnn=_version(record, "cudnn"),
        lazy_loading=record.flag("lazy_loading"),
        cudnn_kernels_mib=record.integer("cudnn_kernels_mib", 0, minimum=0),
        cudnn_batch_norm_mib=record.integer("cudnn_batch_norm_mib", 0, minimum=0),
        default=record.flag("default", True),
        oldest_gpu=_version(record, "oldest_gpu"),
        newest_gpu=_version(record, "newest_gpu"),
        note=record.text("note", ""),
        contexts={sm: _rule(contexts.record(sm)) for sm in contexts.fields},
        environment=record.text("name"),
        framework=record.text("framework", "torch"),
    )
    if stack.version < stack.first_version:
        raise record.error("'version' must not be before 'first_version'")
    missing = sorted({gpu.sm for gpu in all_gpus()} - set(stack.contexts))
    if missing:
        raise record.error(f"no context for {missing[0]}")
    return stack


def _rule(record: Record) -> ContextRule:
    record.only("fixed_mib", "per_multiprocessor_mib", "low", "high", "basis", "source")
    basis = record.text("basis")
    if basis not in get_args(Basis):
        raise record.error("'basis' must be measured, reported or derived")
    rule = ContextRule(
        fixed_mib=record.number("fixed_mib"),
        per_multiprocessor_mib=record.number("per_multiprocessor_mib"),
        low=record.number("low"),
        high=record.number("high"),
        basis=cast(Basis, basis),
        source=record.text("source"),
    )
    if not 0 < rule.low <= 1 <= rule.high:
        raise record.error("'low' must be at most 1 and 'high' at least 1")
    if rule.figure(1).typical <= 0 or not rule.source:
        raise record.error("a figure and its source are needed")
    return rule


def _version(record: Record, key: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]+)\.([0-9]+)", record.text(key))
    if match is None:
        raise record.error(f'{key!r} must be like "2.8"')
    return int(match.group(1)), int(match.group(2))
