"""Other people's formulas, for the same table. Each takes what was counted in the Trace and gives bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from .features import Features

__all__ = ["BASELINES", "accelerate", "deepspeed", "fake_tensor", "horus", "linear_fit", "sixteen_and_activations"]


def horus(features: Features, batch_size: int) -> int:
    """4·[(A·B + P) + B·P], activations A for one sample (Yeung et al., Horus, IEEE TPDS 2022, as GPUMemNet runs it)."""
    return 4 * (features.outputs + features.parameters + batch_size * features.parameters)


def fake_tensor(features: Features, batch_size: int) -> int:
    """Live outputs of operators in forward and backward; no parameters, no optimizer, no allocator, no context."""
    return features.operator_peak


def accelerate(features: Features, batch_size: int) -> int:
    """`accelerate estimate-memory`, training with Adam: four times what the model itself takes, buffers included."""
    return 4 * (features.parameter_bytes + features.buffer_bytes)


def deepspeed(features: Features, batch_size: int) -> int:
    """`estimate_zero2_model_states_mem_needs` on one GPU without offload: 4 + 16 bytes for each parameter."""
    return 20 * features.parameters


def sixteen_and_activations(features: Features, batch_size: int) -> int:
    """The rule of thumb: 16 bytes for each parameter, and what forward keeps."""
    return 16 * features.parameters + features.kept


BASELINES: Mapping[str, Callable[[Features, int], int]] = {
    "horus": horus,
    "fake-tensor": fake_tensor,
    "accelerate": accelerate,
    "deepspeed": deepspeed,
    "params x16 + activations": sixteen_and_activations,
}


def linear_fit(features: Sequence[Features], truths: Sequence[int], groups: Sequence[Hashable]) -> list[int | None]:
    """Constant, parameter bytes and kept activations, by least squares on relative errors; each group from the others.

    None where the others do not determine the fit.
    """
    answers: list[int | None] = [None] * len(truths)
    for group in dict.fromkeys(groups):
        others = [i for i, other in enumerate(groups) if other != group]
        weights = _least_squares([_columns(features[i]) for i in others], [truths[i] for i in others])
        for i, own in enumerate(groups):
            if own == group and weights is not None:
                answers[i] = round(sum(w * x for w, x in zip(weights, _columns(features[i]), strict=True)))
    return answers


def _columns(features: Features) -> tuple[float, ...]:
    return 2.0**30, float(features.parameter_bytes), float(features.kept)


def _least_squares(rows: Sequence[tuple[float, ...]], truths: Sequence[int]) -> list[float] | None:
    """Weights that minimise the squared relative errors, from the normal equations."""
    scaled = [[x / truth for x in row] for row, truth in zip(rows, truths, strict=True)]
    size = len(rows[0]) if rows else 0
    if len(rows) <= size:
        return None
    matrix = [
        [sum(r[i] * r[j] for r in scaled) for j in range(size)] + [sum(r[i] for r in scaled)] for i in range(size)
    ]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(matrix[k][i]))
        if abs(matrix[pivot][i]) < 1e-9:
            return None
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for k in range(size):
            if k != i:
                factor = matrix[k][i] / matrix[i][i]
                matrix[k] = [a - factor * b for a, b in zip(matrix[k], matrix[i], strict=True)]
    return [matrix[i][size] / matrix[i][i] for i in range(size)]
