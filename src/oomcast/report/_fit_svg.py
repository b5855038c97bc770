"""Memory against a parameter, with the device's line: a figure in one SVG."""

from __future__ import annotations

from ..advise import Fit
from ..units import GiB
from ._charts import Series, chart

__all__ = ["fit_svg"]


def fit_svg(fit: Fit) -> str:
    """Two curves, the device's end, and the values that were captured."""
    if not fit.curve:
        raise ValueError("the search was asked for no curve")
    ends = (fit.curve[0].value, fit.curve[-1].value)
    lines = [
        Series("reserved", [(p.value, p.reserved / GiB) for p in fit.curve], joined=True),
        Series("allocated", [(p.value, p.allocated / GiB) for p in fit.curve], joined=True),
        Series(f"end of {fit.device}", [(value, fit.device_usable / GiB) for value in ends], joined=True),
    ]
    if fit.value is not None:
        line = [(fit.value, 0.0), (fit.value, fit.device_usable / GiB)]
        lines.append(Series(f"largest: {fit.value}", line, joined=True))
    title = f"{fit.job}: memory by {fit.parameter}, {100 * fit.confidence:.4g}% sure"
    return chart(title, lines, x="", y=f"GiB, context included, against {fit.parameter}")
