"""For tests of training code: `assert_fits` fails where a job would run out of memory on a GPU that need not be there.

>>> from oomcast.testing import assert_fits
>>> assert_fits("train/job.py", device="rtx-4090", batch_size=32)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .estimate import Estimate, LiveTensor

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
    from .estimate import estimate
    from .units import parse_bytes

    if not 0 < risk <= 1:
        raise BadInput(f"the risk must be above 0 and at most 1, not {risk:g}.")
    spare = parse_bytes(headroom) if isinstance(headroom, str) else headroom
    if spare < 0:
        raise BadInput(f"the headroom must not be negative, not {spare}.")
    # Called as a function of the room's name: see its last lines.
    found = estimate(job, device=device, batch_size=batch_size, **options)
    problem = _problem(found, risk, spare)
    if problem:
        raise AssertionError("\n".join([_what(found), f"  {problem}", *_largest(found)]))
    return found


def _problem(found: Estimate, risk: float, spare: int) -> str:
    from .units import format_bytes

    usable = format_bytes(found.device_usable)
    interval = f"{found.coverage:.0%} interval {format_bytes(found.low)} to {format_bytes(found.high)}"
    if not found.fits:
        missing = format_bytes(max(found.least_capacity - found.device_usable, 0))
        return (
            f"{missing} are missing: it runs from {format_bytes(found.least_capacity)} on, the device has {usable} "
            f"usable ({interval} without that limit; P(OOM) {found.p_oom:.1%})"
        )
    if found.p_oom > risk:
        beyond = max(found.will_not_exceed - found.device_usable, 0)
        more = f", {format_bytes(beyond)} more than the device has" if beyond else ""
        return (
            f"P(OOM) {found.p_oom:.1%} is above the {risk:.4g} that is accepted: {format_bytes(found.device_total)} of "
            f"{usable} usable; with {found.coverage:.0%} not above {format_bytes(found.will_not_exceed)}{more}"
        )
    if found.headroom < spare:
        return (
            f"{format_bytes(spare - found.headroom)} of headroom are missing: {format_bytes(found.device_total)} of "
            f"{usable} usable leave {format_bytes(found.headroom)} of the {format_bytes(spare)} asked for ({interval})"
        )
    return ""


def _what(found: Estimate) -> str:
    told = found.workload
    return f"{told.get('job', 'the job')} does not fit on {found.device} at batch size {told.get('batch_size', '?')}:"


def _largest(found: Estimate) -> list[str]:
    if not found.top_tensors:
        return []
    where = f"{found.peak.phase} of step {found.peak.step + 1}" if found.peak.step >= 0 else found.peak.phase
    return [f"  the largest at the peak ({where}):", *(f"    {_line(one)}" for one in found.top_tensors[:_SHOWN])]


def _line(tensor: LiveTensor) -> str:
    from .units import format_bytes

    shape = "×".join(map(str, tensor.shape))
    parts = (tensor.category, f"{shape} {tensor.dtype}".strip(), tensor.module, tensor.source, tensor.operator)
    return f"{format_bytes(tensor.nbytes):>11}  " + "  ".join(part for part in parts if part)
