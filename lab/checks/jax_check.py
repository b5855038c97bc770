"""A step's bytes as oomcast sees them, beside what XLA plans when it compiles the same step for this machine's CPU.

Nothing runs. XLA's CPU compiler orders instructions for several threads, and hands parts of the graph to a library of
kernels; here it is told to order them for memory, depth first, as its GPU compiler does among others, and to generate
all kernels itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oomcast.capture.jax.run import follow
from oomcast.capture.jax.step import job_step
from oomcast.capture.job_files import JobFunctions
from oomcast.spec import Workload
from oomcast.trace.builder import peak_of

__all__ = ["XLA_FLAGS", "NamedJob", "figures_of_step"]

XLA_FLAGS = "--xla_cpu_scheduler_type=CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED --xla_cpu_experimental_ynn_fusion_type="
"""For the environment of the process, before JAX starts."""


class NamedJob:
    """A job in name only: its functions are given by hand."""

    @staticmethod
    def model() -> None: ...

    @staticmethod
    def batch(batch_size: int) -> None: ...


def figures_of_step(
    build: Callable[[], Any], batch: Any, *, optimizer: str = "adam", donate: bool = False
) -> dict[str, Any]:
    """`estimated` and `measured`: bytes of arguments, results and temporaries of one compiled step.

    `build` makes what a job's `model()` returns; `batch` is (x, y) of `ShapeDtypeStruct`s.
    """
    workload = Workload.create(NamedJob, optimizer=optimizer, steps=1)
    job = JobFunctions(build, lambda: batch, None, None, donate)
    step = job_step(job, batch, workload)
    trace = follow(step, 1, on_gpu=False, versions={}, workload={})
    told = step.function.lower(*step.arguments).compile().memory_analysis()
    measured = told.argument_size_in_bytes + told.output_size_in_bytes + told.temp_size_in_bytes
    return {
        "estimated": peak_of(trace),
        "measured": measured - told.alias_size_in_bytes,
        "arguments": told.argument_size_in_bytes,
        "temporaries": told.temp_size_in_bytes,
    }
