"""Where a job runs, and what the answer may cost: as a person writes it, before anything is looked up."""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass
from typing import Any

from ..errors import BadInput
from .options import Flag, Kind, Number, Size, Switch, Text, Whole, as_plain, option, read_description, read_fields
from .parallel import Machines, read_machines

__all__ = ["Effort", "Place"]


@dataclass(frozen=True)
class Place:
    """The GPU, the software on it and its settings, by name."""

    device: str = option(
        MISSING,
        Text("device"),
        help="the target, like a100-40gb, 8xh100-80gb or, on two nodes, 2x8xh100-80gb; see oomcast devices",
        metavar="GPU",
    )
    environment: str | None = option(
        None,
        Text("environment"),
        help="software stack, like torch-2.8-cu128 (default: the installed framework's); see oomcast environments",
        metavar="NAME",
    )
    cudnn_benchmark: bool = option(False, Switch("cudnn_benchmark"), help="the job sets torch.backends.cudnn.benchmark")
    alloc_conf: str | None = option(
        None, Text("allocator's settings"), help="PYTORCH_CUDA_ALLOC_CONF of the job", metavar="SETTINGS"
    )
    coverage: float = option(
        0.95, Number("coverage", most=1), help="how sure the bounds are (default: 0.95)", metavar="SHARE"
    )
    calibration: str | None = option(
        None, Text("calibration"), help="use this artifact of oomcast calibrate --output", metavar="FILE"
    )
    use_calibration: bool = option(
        True,
        Switch("use_calibration"),
        help="whether what oomcast calibrate has learnt is used",
        flags=(Flag("--no-calibration", "use the catalogue, whatever oomcast calibrate has learnt", value=False),),
    )

    rank: int | None = option(
        None,
        Whole("rank", least=0),
        help="of several GPUs, the one to look at (default: all that differ, and the worst)",
        metavar="N",
        left_out_by_default=True,
    )

    def __post_init__(self) -> None:
        read_fields(self)
        world_size = self.machines.world_size
        if self.rank is not None and self.rank >= world_size:
            raise BadInput(f"--rank {self.rank}: {self.device.strip()} has the ranks 0 to {world_size - 1}.")
        if self.calibration is not None and not self.use_calibration:
            raise BadInput("--calibration and --no-calibration exclude each other; give one.")

    @classmethod
    def create(cls, device: str, environment: str | None = None, **options: Any) -> Place:
        """From what a user writes, every option checked."""
        return read_description(cls, {"device": device, "environment": environment, **options})

    @property
    def machines(self) -> Machines:
        """How many GPUs on how many nodes, and the name of one of them."""
        return read_machines(self.device)

    def as_dict(self) -> dict[str, Any]:
        return as_plain(self)


class Engine(Kind):
    """Where captures run: on this machine, or on a Ray cluster, by its address where that is not this machine's."""

    words = "local, ray or the address of a Ray cluster such as ray://host:10001 or host:6379"

    def read(self, value: Any) -> str:
        if isinstance(value, str) and (value in ("local", "ray") or re.fullmatch(r"(ray://)?[^/\s]+:\d+", value)):
            return value
        raise BadInput(f"the engine must be {self.words}, not {str(value)[:80]!r}.")


@dataclass(frozen=True)
class Effort:
    """What the answer may cost on this machine, and what it carries along."""

    time_limit: float = option(
        300.0,
        Number("time limit", most=1e9, unit=" seconds"),
        help="seconds for the capture (default: 300; of a script 60)",
        metavar="S",
    )
    memory_limit: int | None = option(
        None,
        Size("memory limit"),
        help="host memory that the capture process may take, like 8GiB (default: what the machine has)",
        metavar="SIZE",
    )
    write_files: bool = option(
        False,
        Switch("write_files"),
        help="let the job write the files that it names; without this, what it writes is thrown away",
    )
    engine: str = option(
        "local",
        Engine(),
        help="where the ranks of several GPUs and the layouts of a plan are looked at: local, ray (the cluster that "
        "RAY_ADDRESS names or this machine belongs to) or ray://host:10001 (default: local)",
        metavar="ENGINE",
        left_out_by_default=True,
    )
    store: str | None = option(
        None,
        Text("store"),
        help="keep what was captured in this file (SQLite) or database (postgresql://user@host/name), and take it from "
        "there the next time",
        metavar="WHERE",
        left_out_by_default=True,
    )
    keep_history: bool = option(
        False, Switch("keep_history"), help="whether the Estimate carries what the simulated allocator did", flags=()
    )

    def __post_init__(self) -> None:
        read_fields(self)
