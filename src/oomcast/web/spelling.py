"""The settings of a question as a command line and as Python, for those who go on elsewhere."""

from __future__ import annotations

import shlex
from typing import Any

from ..spec import Option
from .questions import OFFERED, Question

__all__ = ["as_command_line", "as_python"]


def as_command_line(question: Question) -> str:
    """`oomcast estimate JOB --flag value …`: what gives the same answer."""
    known = {option.name: option for option in OFFERED}
    words = ["oomcast", "estimate", question.job]
    for name, plain in question.options.items():
        words += _words(known[name], known[name].kind.read(plain))
    return shlex.join(words)


def _words(option: Option, value: Any) -> list[str]:
    switch = next((flag for flag in option.flags if flag.value is not None and flag.value == value), None)
    if switch is not None:
        return [switch.name]
    flag = next((flag for flag in option.flags if flag.value is None), None)
    return [] if flag is None else [flag.name, option.kind.spell(value)]


def as_python(question: Question) -> str:
    """`oomcast.estimate(…)`."""
    arguments = [repr(question.job), *(f"{name}={plain!r}" for name, plain in question.options.items())]
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"import oomcast\n\nestimate = oomcast.estimate(\n{lines})\nprint(estimate.verdict, estimate.device_total)\n"
