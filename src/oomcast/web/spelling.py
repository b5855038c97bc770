"""The settings of a question as a command line and as Python, for those who go on elsewhere."""

from __future__ import annotations

import shlex

from .questions import OFFERED, Question

__all__ = ["as_command_line", "as_python"]


def as_command_line(question: Question) -> str:
    """`oomcast estimate JOB --flag value …`: what gives the same answer."""
    known = {option.name: option for option in OFFERED}
    words = ["oomcast", "estimate", question.job]
    for name, plain in question.options.items():
        words += known[name].words(known[name].kind.read(plain))
    return shlex.join(words)


def as_python(question: Question) -> str:
    """`oomcast.estimate(…)`."""
    arguments = [repr(question.job), *(f"{name}={plain!r}" for name, plain in question.options.items())]
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"import oomcast\n\nestimate = oomcast.estimate(\n{lines})\nprint(estimate.verdict, estimate.device_total)\n"
