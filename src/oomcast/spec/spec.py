"""A whole question: what runs, where it runs, and what the answer may cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import BadInput, UnknownName
from .job import Job, JobKind
from .options import as_plain, options_of, read_description
from .place import Effort, Place
from .script import Script
from .workload import Workload

__all__ = ["DESCRIPTIONS", "SCRIPT_DESCRIPTIONS", "Spec"]

DESCRIPTIONS: tuple[type, ...] = (Workload, Place, Effort)
"""What the options of every command and function that takes a job are the fields of."""
SCRIPT_DESCRIPTIONS: tuple[type, ...] = (Script, Place, Effort)
"""What the options of a script's run are the fields of."""


@dataclass(frozen=True)
class Spec:
    """What goes to an estimator and, whole, to the process that captures the job."""

    workload: Workload
    place: Place
    effort: Effort = Effort()
    script: Script | None = None
    """How the script is run, for a job that is one."""

    def __post_init__(self) -> None:
        if self.workload.parallel is not None:
            world_size = self.place.machines.world_size
            if world_size == 1:
                raise BadInput(
                    f"--parallel {self.workload.parallel} needs several GPUs; name them like "
                    f"8x{self.place.device.strip()}."
                )
            self.workload.parallel.data_size(world_size)

    @classmethod
    def read(cls, job: Any, **options: Any) -> Spec:
        """From what a user writes; an option that there is not is told with near matches."""
        parsed = Job.parse(job)
        given = {name: value for name, value in options.items() if value is not None}
        is_configuration = parsed.kind is JobKind.CONFIG
        if is_configuration or "configs" in given:
            from .configs import with_configurations  # here, since few jobs are configurations

            names = (parsed.name, None) if is_configuration else (None, parsed.name)
            given = with_configurations(names[0], given, names[1])
        parts = []
        for description in DESCRIPTIONS:
            own = {option.name for option in options_of(description)}
            parts.append({name: given.pop(name) for name in list(given) if name in own})
        if given:
            raise UnknownName("option", next(iter(given)), [option.name for option in options_of(*DESCRIPTIONS)])
        workload, place, effort = parts
        return cls(
            read_description(Workload, workload, job=parsed),
            read_description(Place, place),
            read_description(Effort, effort),
        )

    @classmethod
    def read_sized(cls, job: Any, batch_size: int | None, **options: Any) -> Spec:
        """`read`, for a question about one batch size: only a configuration file may say it instead of the user."""
        spec = cls.read(job, batch_size=batch_size, **options)
        if batch_size is None and spec.workload.job.kind is not JobKind.CONFIG:
            raise BadInput("the batch size is missing; give it with --batch-size, from Python as batch_size.")
        return spec

    @classmethod
    def of_script(cls, script: Script, place: Place, effort: Effort) -> Spec:
        """A whole training script: its batch size, optimizer and all else are its own."""
        return cls(Workload(Job(JobKind.SCRIPT, script.name)), place, effort, script)

    def with_workload(self, workload: Workload) -> Spec:
        return dataclasses.replace(self, workload=workload)

    def with_place(self, **changes: Any) -> Spec:
        return dataclasses.replace(self, place=dataclasses.replace(self.place, **changes))

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON data; a job that is an object is only named."""
        plain = {"workload": self.workload.as_dict(), "place": as_plain(self.place), "effort": as_plain(self.effort)}
        return plain if self.script is None else {**plain, "script": as_plain(self.script)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Spec:
        script = read_description(Script, plain["script"]) if "script" in plain else None
        return cls(
            Workload.from_dict(plain["workload"], None if script is None else Job(JobKind.SCRIPT, script.name)),
            read_description(Place, plain["place"]),
            read_description(Effort, plain["effort"]),
            script,
        )
