"""Where a job runs, with everything looked up that its name stands for: the card, the software, what was calibrated."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from ..devices import Gpu, Stack, find_gpu, stack_of
from ..simulate import Settings, settings_for
from ..spec import Place
from ..trace import ProcessSettings
from .calibration import Calibration, calibration_for
from .interval import load_interval

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """Made by `Target.of` alone; another card, calibration or framework makes another target."""

    place: Place
    gpu: Gpu
    stack: Stack
    settings: Settings
    """Of the allocator of the stack's framework."""
    calibration: Calibration | None
    """What real runs told of this GPU and stack."""

    @classmethod
    def of(
        cls, place: Place, framework: str = "torch", *, gpu: Gpu | None = None, settings: Settings | None = None
    ) -> Target:
        """Look everything up.

        `framework` says which stack and which allocator, unless an environment is named, which belongs to one. `gpu`
        stands for the place's device, `settings` for those that the place tells, where they are known already.
        """
        card = find_gpu(place.machines.gpu) if gpu is None else gpu
        stack = stack_of(place.environment, framework)
        found = settings_for(stack.framework, place.alloc_conf) if settings is None else settings
        for calibrated in (False, True):
            load_interval(calibrated).check(place.coverage)
        file = None if place.calibration is None else Path(place.calibration)
        calibration = calibration_for(card, stack, file) if place.use_calibration else None
        return cls(place, card, stack, found, calibration)

    @property
    def coverage(self) -> float:
        return self.place.coverage

    @property
    def cudnn_benchmark(self) -> bool:
        """`torch.backends.cudnn.benchmark`: its timing runs take their own memory."""
        return self.place.cudnn_benchmark

    def on(self, gpu: Gpu) -> Target:
        """The same software on another card."""
        place = dataclasses.replace(self.place, device=gpu.name, environment=self.stack.environment)
        return Target.of(place, self.stack.framework, gpu=gpu, settings=self.settings)

    def as_set_by(self, job: ProcessSettings) -> Target:
        """The same place for a job whose own settings hold where the place names none."""
        if job == ProcessSettings():
            return self
        place = dataclasses.replace(
            self.place,
            cudnn_benchmark=self.place.cudnn_benchmark or job.cudnn_benchmark,
            alloc_conf=job.alloc_conf if self.place.alloc_conf is None else self.place.alloc_conf,
        )
        return dataclasses.replace(self, place=place, settings=settings_for(self.stack.framework, place.alloc_conf))

    def calibrated_by(self, calibration: Calibration | None) -> Target:
        """The same place, believing these real runs."""
        return dataclasses.replace(self, calibration=calibration)

    def for_framework(self, framework: str) -> Target:
        """This target for a job that turned out to be of another framework."""
        if framework == self.stack.framework:
            return self
        # Neither the environment's name nor the allocator's settings nor a calibration's file are of this framework.
        place = dataclasses.replace(self.place, environment=None, alloc_conf=None, calibration=None)
        other = Target.of(place, framework, gpu=self.gpu)
        return other if other.stack.framework != self.stack.framework else self
