"""How a job is spread over several GPUs, as a person writes it: `fsdp2,tp=2`, on `2x8xa100-40gb`.

The GPUs are divided by the sizes that are named (`tp`, `pp`, `cp`); what is left is data parallel, by the way that is
named (`ddp`, `fsdp2`, …). Experts (`ep`) are spread over the data-parallel GPUs, as torchtitan does it. `replicate=N`
keeps N whole copies of the shards (HSDP), `no-reshard` keeps what was gathered for a forward until its backward,
`reduce-half` reduces gradients in 16 bits, `offload` puts states into the host's memory and `nvme` onto its disks.
`schedule=interleaved` and others say in which order a pipeline works, `pieces=N` how many stages each of its GPUs has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from ..errors import BadInput, UnknownName
from .options import Kind

__all__ = ["DataParallel", "Machines", "Parallel", "ParallelText", "PipelineSchedule", "read_machines"]


class DataParallel(str, Enum):
    """What is done with the GPUs that work on different samples; ZeRO is DeepSpeed's, the others are torch's."""

    DDP = "ddp"
    FSDP = "fsdp"
    FSDP2 = "fsdp2"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"

    @property
    def is_deepspeed(self) -> bool:
        return self.value.startswith("zero")


class PipelineSchedule(str, Enum):
    """In which order the GPUs of a pipeline work on micro-batches: those of `torch.distributed.pipelining`."""

    ONE_FORWARD_ONE_BACKWARD = "1f1b"
    INTERLEAVED = "interleaved"
    ZERO_BUBBLE = "zero-bubble"
    ZBV = "zbv"

    @property
    def splits_backward(self) -> bool:
        """Whether gradients of weights are computed later than those of the inputs."""
        return self in (PipelineSchedule.ZERO_BUBBLE, PipelineSchedule.ZBV)


_SIZES = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert", "replicate": "replicate",
          "pieces": "pieces"}  # fmt: skip
_SWITCHES = {
    "no-reshard": "keeps_gathered",
    "reduce-half": "reduces_in_half",
    "offload": "offload",
    "nvme": "nvme",
    "static-graph": "static_graph",
    "bucket-view": "gradients_in_buckets",
}
_SCHEDULE = "schedule"
_WORDS = (*(data.value for data in DataParallel), *(f"{size}=2" for size in _SIZES), *_SWITCHES,
          *(f"{_SCHEDULE}={schedule.value}" for schedule in PipelineSchedule))  # fmt: skip
_MOST_GPUS = 1_000_000
_SHARDED = (DataParallel.FSDP, DataParallel.FSDP2)
_MESH = (DataParallel.DDP, DataParallel.FSDP2)
"""What goes together with the other ways in one mesh of torch."""


class Machines(NamedTuple):
    """A device as it is written: how many nodes with how many GPUs of which name."""

    nodes: int
    gpus_per_node: int
    gpu: str

    @property
    def world_size(self) -> int:
        return self.nodes * self.gpus_per_node


def read_machines(device: str) -> Machines:
    """`h100-80gb`, `8xh100-80gb`, `2x8xa100-40gb`; what stands behind the counts is looked up elsewhere."""
    found = re.fullmatch(r"\s*(?:(\d{1,9})\s*[x×*]\s*)?(?:(\d{1,9})\s*[x×*]\s*)(\S.*)", device, re.IGNORECASE)
    if found is None:
        return Machines(1, 1, device)
    nodes, gpus = int(found[1] or 1), int(found[2])
    if not 0 < nodes * gpus <= _MOST_GPUS:
        raise BadInput(f"{device.strip()!r} must have 1 to {_MOST_GPUS:,} GPUs; write it like 8xh100-80gb.")
    return Machines(nodes, gpus, found[3].strip())


@dataclass(frozen=True)
class Parallel:
    """The parts of a layout; whether some GPUs can be divided so is asked of `data_size`."""

    data: DataParallel | None = None
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    replicate: int = 1
    """Copies of the shards; each holds the whole of the states (hybrid sharding)."""
    keeps_gathered: bool = False
    """FSDP's parameters stay whole from a forward to its backward (`SHARD_GRAD_OP`, `reshard_after_forward=False`)."""
    reduces_in_half: bool = False
    """FSDP's mixed precision reduces gradients in 16 bits, too, not in fp32 (`reduce_dtype`)."""
    offload: bool = False
    nvme: bool = False
    """ZeRO-Infinity: what `offload` puts into the host's memory is on its disks."""
    static_graph: bool = False
    """DDP is told that every step uses the same parameters."""
    gradients_in_buckets: bool = False
    """DDP's gradients are views of its buckets (`gradient_as_bucket_view`)."""
    schedule: PipelineSchedule = PipelineSchedule.ONE_FORWARD_ONE_BACKWARD
    pieces: int = 0
    """Stages of the pipeline that each of its GPUs has; 0 is as many as the schedule usually has."""

    def __post_init__(self) -> None:
        if not self.pieces:
            usual = 2 if self.schedule in (PipelineSchedule.INTERLEAVED, PipelineSchedule.ZBV) else 1
            object.__setattr__(self, "pieces", usual)
        self._check_pipeline()
        beside = [f"{word}={getattr(self, field)}" for word, field in _SIZES.items() if getattr(self, field) > 1]
        only_copies = self.data is DataParallel.FSDP and len(beside) == (self.replicate > 1)
        if beside and self.data is not None and self.data not in _MESH and not only_copies:
            raise BadInput(f"{self.data.value} is offered by itself; write ddp or fsdp2 together with {beside[0]}.")
        if self.context > 1 and self.data is None:
            both = ",".join(["ddp", *beside])
            raise BadInput(
                f"with cp={self.context}, GPUs hold the same weights and different parts of the samples; say how they "
                f"share gradients, like {both} or {both.replace('ddp', 'fsdp2', 1)}."
            )
        if self.replicate > 1 and self.data not in _SHARDED:
            raise BadInput("replicate=N is about copies of shards; write it together with fsdp or fsdp2.")
        if (self.static_graph or self.gradients_in_buckets) and self.data is not DataParallel.DDP:
            raise BadInput("static-graph and bucket-view are settings of DDP; write them together with ddp.")
        if self.nvme and (self.data is not DataParallel.ZERO3 or self.offload):
            raise BadInput("nvme is ZeRO-Infinity; write zero3,nvme, without offload.")
        if self.keeps_gathered and self.data not in _SHARDED:
            raise BadInput("no-reshard is about what FSDP gathers; write it together with fsdp or fsdp2.")
        if self.reduces_in_half and self.data not in _SHARDED:
            raise BadInput("reduce-half is about FSDP's mixed precision; write it together with fsdp or fsdp2.")
        if self.offload and self.data in (None, DataParallel.DDP):
            raise BadInput("offload needs fsdp, fsdp2 or a stage of ZeRO beside it.")

    def _check_pipeline(self) -> None:
        schedule = self.schedule
        if self.pipeline == 1 and (self.pieces > 1 or schedule is not PipelineSchedule.ONE_FORWARD_ONE_BACKWARD):
            raise BadInput("schedule and pieces are about a pipeline; write them together with pp=N.")
        if schedule is PipelineSchedule.ONE_FORWARD_ONE_BACKWARD and self.pieces > 1:
            raise BadInput("1f1b has one stage for each GPU; write schedule=interleaved together with pieces=N.")
        if schedule is PipelineSchedule.INTERLEAVED and self.pieces == 1:
            raise BadInput("schedule=interleaved needs at least two pieces of the model on each GPU.")
        if schedule is PipelineSchedule.ZBV and self.pieces != 2:
            raise BadInput("schedule=zbv has two pieces of the model on each GPU; leave pieces out.")
        if schedule.splits_backward and self.data is DataParallel.DDP:
            raise BadInput(
                f"schedule={schedule.value} computes gradients of weights by themselves, which DDP does not see; "
                "write fsdp2, interleaved or 1f1b."
            )

    @classmethod
    def parse(cls, text: str) -> Parallel:
        """From `fsdp2,tp=2`. Raises BadInput or UnknownName."""
        read: dict[str, Any] = {}
        for part in text.lower().split(","):
            name, equals, number = (piece.strip() for piece in part.partition("="))
            value: Any
            if name in _SIZES and equals:
                field, value = _SIZES[name], _size(name, number)
            elif name == _SCHEDULE and number in [schedule.value for schedule in PipelineSchedule]:
                field, value = "schedule", PipelineSchedule(number)
            elif name in _SWITCHES and not equals:
                field, value = _SWITCHES[name], True
            elif name in {data.value for data in DataParallel} and not equals:
                field, value = "data", DataParallel(name)
            elif name in _SIZES:
                raise BadInput(f"{name} needs its number of GPUs; write it like {name}=2.")
            else:
                raise UnknownName("way to be parallel", part.strip(), _WORDS)
            if field in read:
                both = f"{read[field].value} and {name}" if field == "data" else f"two times {name}"
                raise BadInput(f"{both} exclude each other; give one.")
            read[field] = value
        return cls(**read)

    def __str__(self) -> str:
        parts = [self.data.value] if self.data else []
        parts += [f"{word}={getattr(self, field)}" for word, field in _SIZES.items() if getattr(self, field) > 1]
        if self.schedule is not PipelineSchedule.ONE_FORWARD_ONE_BACKWARD:
            parts.append(f"{_SCHEDULE}={self.schedule.value}")
        parts += [word for word, field in _SWITCHES.items() if getattr(self, field)]
        return ",".join(parts) or "tp=1"

    @property
    def model_size(self) -> int:
        """How many GPUs work on the same samples."""
        return self.tensor * self.pipeline * self.context

    @property
    def stages(self) -> int:
        """Of the pipeline, on all of its GPUs together."""
        return self.pipeline * self.pieces

    def stages_of(self, place: int) -> tuple[int, ...]:
        """The numbers of the stages that the GPU at this place of the pipeline has."""
        if self.schedule is PipelineSchedule.ZBV:
            return place, self.stages - 1 - place
        return tuple(range(place, self.stages, self.pipeline))

    def data_size(self, world_size: int) -> int:
        """How many GPUs, or groups of them, work on different samples; raises BadInput where the GPUs do not divide."""
        if self.model_size > world_size:
            raise BadInput(
                f"{self} needs {self.model_size} GPUs, but the device has {world_size}; name more, like "
                f"{self.model_size}xh100-80gb."
            )
        if world_size % self.model_size:
            raise BadInput(f"{world_size} GPUs cannot be divided by {self.model_size}, which {self} needs.")
        size = world_size // self.model_size
        if size > 1 and self.data is None:
            raise BadInput(
                f"{self} leaves {size} GPUs for different samples; add how they share the model: ddp, fsdp2, …"
            )
        for word, part in (("replicate", self.replicate), ("ep", self.expert)):
            if size % part:
                raise BadInput(f"{word}={part} does not divide the {size} data-parallel GPUs.")
        return size


def _size(name: str, number: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", number) or int(number) < 1:
        raise BadInput(f"{name} must be a whole number of at least 1, like {name}=2, not {number[:40]!r}.")
    return int(number)


class ParallelText(Kind):
    """What `Parallel.parse` reads; JSON and TOML hold the text."""

    words = "a layout such as fsdp2,tp=2"
    is_closed = True

    def read(self, value: Any) -> Parallel:
        if isinstance(value, Parallel):
            return value
        if not isinstance(value, str):
            raise BadInput(f"parallel must be {self.words}, not {value!r}.")
        return Parallel.parse(value)

    def plain(self, value: Any) -> Any:
        return None if value is None else str(value)
