"""What the capture process must know of JAX. It is loaded when a hook is called, not before."""

from __future__ import annotations

from ...errors import BadInput, JobFailed, OomcastError
from ...spec import Spec
from ...trace import Trace
from ..explain import first_sentence, users_lines
from ..frameworks import load_packages
from ..hooks import Hooks
from ..stderr import silenced
from ..xla import only_describe

__all__ = ["HOOKS"]

_PACKAGES = ("jax", "optax")


def _set_up() -> None:
    only_describe()
    with silenced():  # that compiler says at length that there is no driver
        load_packages(_PACKAGES)


def _capture(spec: Spec) -> Trace:
    from .run import capture_here

    return capture_here(spec)


def _explain(error: BaseException, spec: Spec) -> OomcastError | None:
    """What only JAX raises."""
    import jax

    reference, lines, text = spec.workload.job.reference, users_lines(error.__traceback__), first_sentence(error)
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


HOOKS = Hooks(
    framework="jax",
    packages=_PACKAGES,
    least={"jax": "0.4.30", "optax": "0.2"},
    capture=_capture,
    set_up=_set_up,
    explain=_explain,
)
