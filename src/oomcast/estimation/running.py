"""`oomcast.run`: a whole training script, as it is, on a GPU that is not there."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from ..errors import UnknownName
from ..spec import (
    SCRIPT_DESCRIPTIONS,
    SCRIPT_TIME_LIMIT,
    Effort,
    Place,
    Script,
    Spec,
    options_of,
    read_description,
    read_launch,
    takes_options,
)
from .answer import Estimate
from .estimators import DEFAULT_ESTIMATOR, estimate_spec, find_estimator

__all__ = ["DEFAULT_DEVICE", "run"]

DEFAULT_DEVICE = "a100-40gb"


@takes_options(*SCRIPT_DESCRIPTIONS)
def run(line: str | os.PathLike[str] | Sequence[str], *, device: str | None = None, **options: Any) -> Estimate:
    """How much memory a training script will hold on a GPU, without the GPU and without a change to the script.

    >>> oomcast.run(["train.py", "--batch_size", "32"], device="a100-40gb").verdict

    `line` is what starts it: a script with its arguments, or a line that begins with `python`, `python -m`, `torchrun`
    or `accelerate launch`; as one text it is taken apart as a shell does. The script runs in a process of its own, in
    the current folder and environment, until its peak has repeated, for `max_steps` optimizer steps or for
    `time_limit` seconds (60). `Estimate.script` says how far it was followed. Without a `device`, an A100 of 40 GB is
    taken. Raises `oomcast.errors.OomcastError`; its text says what to do.
    """
    given = {name: value for name, value in options.items() if value is not None}
    parts: list[dict[str, Any]] = []
    for description in SCRIPT_DESCRIPTIONS:
        own = {one.name for one in options_of(description)}
        parts.append({name: given.pop(name) for name in list(given) if name in own})
    if given:
        raise UnknownName("option", next(iter(given)), [one.name for one in options_of(*SCRIPT_DESCRIPTIONS)])
    of_script, of_place, of_effort = parts
    script = read_description(Script, {**of_script, "line": line})
    read_launch(script.line)
    spec = Spec.of_script(
        script,
        read_description(Place, {"device": device or DEFAULT_DEVICE, **of_place}),
        read_description(Effort, {"time_limit": SCRIPT_TIME_LIMIT, **of_effort}),
    )
    answer = estimate_spec(spec, find_estimator(DEFAULT_ESTIMATOR))
    if device is None:
        note = f"no device was named: the {DEFAULT_DEVICE} is taken"
        answer = dataclasses.replace(answer, assumptions=(*answer.assumptions, note))
    return answer
