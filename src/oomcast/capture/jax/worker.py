"""In the capture process: answer one request about a JAX job."""

from __future__ import annotations

import os
import sys

from oomcast.errors import BadInput, JobFailed, OomcastError
from oomcast.trace import Trace
from oomcast.workload import Workload

from .._explain import answer_with, first_sentence, users_lines
from .._frameworks import load_packages, require_packages
from .._messages import Answer, Request

__all__ = ["answer_request", "prepare_process"]

_PACKAGES = ("jax", "optax")

_RECURSION_LIMIT = 20_000


def prepare_process() -> None:
    """Load what is there; whether all is there is said when a request comes."""
    # What is captured is described, never run on a card that may be in use.
    os.environ["JAX_PLATFORMS"] = "cpu"
    load_packages(_PACKAGES)


def answer_request(request: Request) -> Answer:
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION_LIMIT))
    return answer_with(_capture, _special, request)


def _capture(request: Request) -> Trace:
    prepare_process()
    require_packages("jax", _PACKAGES)
    from ._capture import capture_here

    return capture_here(request.workload)


def _special(error: BaseException, workload: Workload) -> OomcastError | None:
    """What only JAX raises."""
    if isinstance(error, OomcastError):
        return error
    import jax

    reference, lines, text = workload.job.reference, users_lines(error.__traceback__), first_sentence(error)
    if isinstance(error, jax.errors.NonConcreteBooleanIndexError):
        return BadInput(f"{reference} has an array whose size depends on values ({text}); use jnp.where instead.")
    if isinstance(error, (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)):
        return JobFailed(
            f"{reference} needs the value of an array while it is traced ({text}); jax.jit cannot compile such a step: "
            "use jax.lax.cond, scan or jnp.where, or a Python number.",
            lines,
        )
    if isinstance(error, ValueError) and "Reverse-mode differentiation does not work for lax.while_loop" in str(error):
        return JobFailed(
            f"{reference} takes gradients through a while loop whose trip count is not known; "
            "use jax.lax.scan, or a fori_loop with fixed bounds.",
            lines,
        )
    return None
