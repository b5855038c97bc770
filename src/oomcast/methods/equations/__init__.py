"""Memory as an equation: symbolic regression over real runs, and the estimator that asks what it found.

Why: an equation such as `4000 · batch_size · width + 300 MiB` can be read, checked and carried over to another program,
which a network of weights cannot. The room `symbolic` finds equations in samples and knows nothing of memory;
`memory_equation` makes samples of the runs that campaigns have measured, and judges what was found by fits that had not
seen each run; `equation_file` keeps it. The estimator `equation` says where a job lies outside of the samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomcast.lazy import lazy_names

if TYPE_CHECKING:
    from .equation_file import read_equation, write_equation
    from .memory_equation import (
        EQUATION_FEATURES,
        EquationRow,
        MemoryEquation,
        Prediction,
        RunsOrigin,
        equation_rows,
        fit_equation,
        fit_equation_to,
        measured_runs,
        traced_steps,
    )

__all__ = [
    "EQUATION_FEATURES",
    "EquationRow",
    "MemoryEquation",
    "Prediction",
    "RunsOrigin",
    "equation_rows",
    "fit_equation",
    "fit_equation_to",
    "measured_runs",
    "read_equation",
    "traced_steps",
    "write_equation",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".equation_file": ("read_equation", "write_equation"),
        ".memory_equation": (
            "EQUATION_FEATURES",
            "EquationRow",
            "MemoryEquation",
            "Prediction",
            "RunsOrigin",
            "equation_rows",
            "fit_equation",
            "fit_equation_to",
            "measured_runs",
            "traced_steps",
        ),
    },
    extra="campaign,equations",
)
