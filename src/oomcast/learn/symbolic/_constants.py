"""Constants of a given form, by Levenberg-Marquardt on the relative error.

Written out here because the same samples must give the same bits: MINPACK as scipy 1.17 has it does not where two
constants do one's work, which is usual in a search.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ._expression import Expression, Floats, constants, value, with_constants
from ._tape import Tape

__all__ = ["levenberg_marquardt", "relative_errors"]

_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-12, 1e8
_CALMER, _BOLDER = 10.0, 0.1
_CONVERGED = 1e-12
_FLAT = 1e-12
"""Added to the damping of constants that change nothing, as a share of the largest."""


def relative_errors(expression: Expression, columns: Mapping[str, Floats], y: Floats) -> Floats:
    """Value over response, less 1, at each row; not finite where the value is not."""
    with np.errstate(all="ignore"):
        errors: Floats = value(expression, columns) / y - 1
    return errors


def levenberg_marquardt(
    expression: Expression, columns: Mapping[str, Floats], y: Floats, iterations: int
) -> Expression:
    """The form with constants of a smaller sum of squared relative errors; as it was where none is found."""
    start = np.array(constants(expression))
    if not iterations or not 0 < len(start) <= len(y):
        return expression
    tape = Tape(expression, columns)

    def errors_and_slopes(at: Floats) -> tuple[Floats, Floats, float]:
        values, slopes = tape.value_and_slopes(at.tolist())
        errors = values / y - 1
        return errors, slopes / y[:, None], float(errors @ errors)

    with np.errstate(all="ignore"):
        numbers, damping = start, _FIRST_DAMPING
        errors, slopes, loss = errors_and_slopes(numbers)
        for _ in range(iterations):
            curvature, downhill = slopes.T @ slopes, slopes.T @ errors
            sizes = np.diag(curvature)
            if not (np.isfinite(curvature).all() and np.isfinite(downhill).all()) or not sizes.max() > 0:
                break
            damped = curvature + np.diag(damping * (sizes + _FLAT * sizes.max()))
            try:
                tried = numbers - np.linalg.solve(damped, downhill)
            except np.linalg.LinAlgError:
                break
            after, slopes_after, loss_after = errors_and_slopes(tried)
            if loss_after < loss:
                converged = loss - loss_after <= _CONVERGED * loss
                numbers, errors, slopes, loss = tried, after, slopes_after, loss_after
                damping = max(damping * _BOLDER, _LEAST_DAMPING)
                if converged:
                    break
            else:
                damping *= _CALMER
                if damping > _MOST_DAMPING:
                    break
    return expression if numbers is start else with_constants(expression, numbers.tolist())
