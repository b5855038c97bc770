"""For tests of training code: `assert_fits` fails where a job would run out of memory on a GPU that need not be there.

>>> from oomcast.testing import assert_fits
>>> assert_fits("train/job.py", device="rtx-4090", batch_size=32)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .estimation import Estimate, LiveTensor

__all__ = ["assert_fits"]

ACCEPTED_RISK = 0.05
_SHOWN = 5


def assert_fits(
    job: Any, *, device: str, batch_size: int, risk: float = ACCEPTED_RISK, headroom: int | str = 0, **options: Any
) -> Estimate:
    """Estimate a job, and fail where it does not fit, or runs out of memory with a probability above `risk`.

    `job` and `options` are those of `oomcast.estimate`, whose Estimate is returned. `headroom` is what must stay free
    beside the estimate, such as `"2GiB"`.
    """
    __tracebackhide__ = True
    from .errors import BadInput
    from .estimation import estimate
    from .units import parse_bytes

    if not 0 < risk <= 1:
        raise BadInput(f"the risk must be above 0 and at most 1, not {risk:g}.")
    spare = parse_bytes(headroom) if isinstance(headroom, str) else headroom
    if spare < 0:
        raise BadInput(f"the headroom must not be negative, not {spare}.")
    answer = estimate(job, device=device, batch_size=batch_size, **options)
    problem = _problem(answer, risk, spare)
    if problem:
        raise AssertionError("\n".join([_what(answer), f"  {problem}", *_largest(answer)]))
    return answer


def _problem(answer: Estimate, risk: float, spare: int) -> str:
    from .units import format_bytes

    usable = format_bytes(answer.device_usable)
    interval = f"{answer.coverage:.0%} interval {format_bytes(answer.low)} to {format_bytes(answer.high)}"
    if not answer.fits:
        missing = format_bytes(max(answer.least_capacity - answer.device_usable, 0))
        return (
            f"{missing} are missing: it runs from {format_bytes(answer.least_capacity)} on, the device has {usable} "
            f"usable ({interval} without that limit; P(OOM) {answer.p_oom:.1%})"
        )
    if answer.p_oom > risk:
        beyond = max(answer.will_not_exceed - answer.device_usable, 0)
        more = f", {format_bytes(beyond)} more than the device has" if beyond else ""
        return (
            f"P(OOM) {answer.p_oom:.1%} is above the {risk:.4g} that is accepted: {format_bytes(answer.device_total)} "
            f"of {usable} usable; with {answer.coverage:.0%} not above {format_bytes(answer.will_not_exceed)}{more}"
        )
    if answer.headroom < spare:
        return (
            f"{format_bytes(spare - answer.headroom)} of headroom are missing: {format_bytes(answer.device_total)} of "
            f"{usable} usable leave {format_bytes(answer.headroom)} of the {format_bytes(spare)} asked for ({interval})"
        )
    return ""


def _what(answer: Estimate) -> str:
    job, batch_size = answer.workload.get("job", "the job"), answer.workload.get("batch_size", "?")
    return f"{job} does not fit on {answer.device} at batch size {batch_size}:"


def _largest(answer: Estimate) -> list[str]:
    if not answer.top_tensors:
        return []
    where = f"{answer.peak.phase} of step {answer.peak.step + 1}" if answer.peak.step >= 0 else answer.peak.phase
    return [
        f"  the largest at the peak ({where}):",
        *(f"    {_line(tensor)}" for tensor in answer.top_tensors[:_SHOWN]),
    ]


def _line(tensor: LiveTensor) -> str:
    from .units import format_bytes

    shape = "×".join(map(str, tensor.shape))
    parts = (tensor.category, f"{shape} {tensor.dtype}".strip(), tensor.module, tensor.source, tensor.operator)
    return f"{format_bytes(tensor.nbytes):>11}  " + "  ".join(part for part in parts if part)
