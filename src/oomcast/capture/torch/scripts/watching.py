"""When enough of a script has been seen: its steps are found by their repetition, not by counting one optimizer's.

A step here is what lies between two updates of parameters, whoever makes them. A GAN's two optimizers, accumulation,
an inner loop of a reinforcement learner: all give a sequence of such steps that repeats with some period, with the
same peak each time. Once it has done so with every optimizer's state present, more of it tells nothing new.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....trace import Ending, Phase, TraceBuilder

__all__ = ["Numbers", "StepWatch", "Stop", "is_about"]

_STEPS_TO_REPEAT = 3
"""Updates before a peak can be called steady: the first makes the optimizer's state, the second meets it."""
_STEPS_OF_VARYING_SIZE = 12
"""Updates without a higher peak after which one is believed though no two steps are alike (batches of any length)."""
_STEPS_TO_LOOK_ON = 2000
_EPOCHS_TO_LOOK_ON = 200
_OPERATORS_TO_LOOK_ON = 60_000
"""How long evaluation and a checkpoint are waited for once training is steady. Counted, and not timed, so that a busy
machine sees what an idle one does; the time limit is the last resort, and is told."""


@dataclass(frozen=True)
class Stop:
    """Why a script is followed no further."""

    ending: Ending
    reason: str


@dataclass(frozen=True)
class _Step:
    """From one update of parameters to the next."""

    optimizer: int
    highest: int
    held: int

    def is_like(self, other: _Step) -> bool:
        return (
            self.optimizer == other.optimizer
            and is_about(self.highest, other.highest)
            and is_about(self.held, other.held)
        )


def is_about(one: int, other: int) -> bool:
    """Whether two sizes differ by no more than what a script keeps of each step for its log."""
    return abs(one - other) <= max(one, other) // 2000 + (64 << 10)


class Numbers:
    """Objects numbered as they come, from 1. None is kept alive by that, since it would hold its memory, and no number
    is given twice, as an id would be."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._count = 0

    def find(self, thing: Any) -> int | None:
        """The number that it has; None where it has none yet."""
        kept, number = self._by_id.get(id(thing), (None, 0))
        return number if kept is not None and kept() is thing else None

    def of(self, thing: Any) -> int:
        number = self.find(thing)
        if number is None:
            self._count += 1
            number = self._count
            self._by_id[id(thing)] = weakref.ref(thing), number
        return number


class StepWatch:
    """Told of every update, evaluation and checkpoint; says when there is nothing more to wait for."""

    def __init__(
        self, builder: TraceBuilder, operators: Callable[[], int], max_steps: int | None, is_late: Callable[[], bool]
    ) -> None:
        self._builder = builder
        self._operators = operators
        """How many were run so far."""
        self._is_late = is_late
        """Whether so much of the time limit has passed that nothing more is waited for."""
        self._max_steps = max_steps
        self._steps: list[_Step] = []
        self._highest = 0
        self._last_rise = 0
        self._numbers = Numbers()
        self._times: dict[int, int] = {}
        self._steady_since: int | None = None
        """In operators that were run."""
        self._steps_when_steady = 0
        self._epochs_since = 0
        self._evaluated_before = False

    @property
    def steps(self) -> int:
        return len(self._steps)

    @property
    def steps_seen(self) -> int:
        """Those that were run: once training is steady, the following are made up."""
        return self._steps_when_steady if self.is_steady else self.steps

    @property
    def is_steady(self) -> bool:
        """Whether training has shown all that it has to show."""
        return self._steady_since is not None

    def stepped(self, optimizer: Any) -> Stop | None:
        """After an update of parameters; None goes on."""
        if not self._steps:
            self._evaluated_before = self._was_seen(Phase.EVALUATION)
            self._builder.entered.clear()
        number = self._number(optimizer)
        self._times[number] = self._times.get(number, 0) + 1
        step = _Step(number, self._builder.take_highest(), self._builder.held)
        if step.highest > self._highest and not is_about(step.highest, self._highest):
            self._last_rise = len(self._steps)
        self._highest = max(self._highest, step.highest)
        self._steps.append(step)
        if not self.is_steady and self._repeats():
            self._steady_since = self._operators()
            self._steps_when_steady = self.steps
        if self._max_steps is not None and self.steps >= self._max_steps:
            return Stop(Ending.MAX_STEPS, f"stopped after {_times(self.steps, 'optimizer step')}, as --max-steps says")
        return self.enough()

    @property
    def epochs_since_steady(self) -> int:
        return self._epochs_since

    def epoch_ended(self) -> None:
        if self.is_steady:
            self._epochs_since += 1

    def knows(self, optimizer: Any) -> bool:
        """Whether this optimizer has its state, and has met it in another step."""
        return self._times.get(self._numbers.find(optimizer) or -1, 0) >= 2

    def enough(self) -> Stop | None:
        """Whether evaluation and a checkpoint were seen after training was steady, or waited for long enough.

        Asked where the script trains: an evaluation that has begun is seen to its end.
        """
        if self._steady_since is None:
            return None
        if self._was_seen(Phase.EVALUATION) and self._was_seen(Phase.SAVING):
            return self.seen_enough()
        waited_long = (
            self._epochs_since >= _EPOCHS_TO_LOOK_ON
            or self.steps - self._steps_when_steady >= _STEPS_TO_LOOK_ON
            or self._operators() - self._steady_since > max(_OPERATORS_TO_LOOK_ON, self._steady_since // 2)
        )
        if waited_long:
            return self.seen_enough()
        if self._is_late():
            return self.seen_enough("; what follows was waited for until the time limit was near")
        return None

    def seen_enough(self, more: str = "") -> Stop:
        return Stop(Ending.STEADY, f"the peak repeated over {_times(self._steps_when_steady, 'optimizer step')}{more}")

    @property
    def still_rising(self) -> str:
        """For a script that was stopped before its peak repeated; "" otherwise."""
        if self.is_steady or self.steps < 4 or self._last_rise < self.steps - 2:
            return ""
        return "the peak still rose with every step: something keeps the memory of earlier steps"

    def not_seen(self) -> tuple[str, ...]:
        """What a training script may do, and what was not seen of it since its optimizer had its state."""
        early = "evaluation" if not self._evaluated_before else "evaluation after a training step"
        names = {Phase.EVALUATION: early, Phase.SAVING: "checkpoint saving"}
        missing = [name for phase, name in names.items() if not self._steps or not self._was_seen(phase)]
        if self.steps == 0:
            return ("a training step", *missing)
        return ("a second training step", *missing) if self.steps == 1 else tuple(missing)

    def _was_seen(self, phase: Phase) -> bool:
        """Since the first update; sampling from the model is an evaluation as well."""
        seen = self._builder.entered
        return phase in seen or (phase is Phase.EVALUATION and Phase.GENERATION in seen)

    def _number(self, optimizer: Any) -> int:
        """Of an optimizer; 0 is the script itself."""
        return 0 if optimizer is None else self._numbers.of(optimizer)

    def _repeats(self) -> bool:
        steps = self._steps
        count = len(steps)
        if count < _STEPS_TO_REPEAT or min(self._times.values()) < 2:
            return False
        without_rise = count - 1 - self._last_rise
        for period in range(1, min(count // 2, without_rise) + 1):
            recent, before = steps[-period:], steps[-2 * period : -period]
            optimizers = {step.optimizer for step in recent}
            if optimizers == set(self._times) and all(map(_Step.is_like, recent, before)):
                return True
        return without_rise >= _STEPS_OF_VARYING_SIZE


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
