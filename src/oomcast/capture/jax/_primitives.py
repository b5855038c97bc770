"""What JAX's primitives are to XLA: which can be part of a fusion, which cost too much to be computed twice."""

from __future__ import annotations

__all__ = ["ALIASES", "CHEAP", "EXPENSIVE", "FUSIBLE", "KNOWN_OPAQUE", "MOVES", "REDUCTIONS", "TREE_WINDOW"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


CHEAP = _names(
    "abs add add_any and bitcast_convert_type ceil clamp clz complex conj convert_element_type copy copy_p "
    "cos eq floor ge gt imag integer_pow is_finite le lt max min mul ne neg nextafter not or population_count "
    "real reduce_precision round select_n shift_left shift_right_arithmetic shift_right_logical sign sin "
    "square stop_gradient sub tan xor"
)
"""Elementwise, and cheap to compute once more."""

EXPENSIVE = _names(
    "acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt cosh digamma div erf erf_inv erfc exp "
    "exp2 expm1 igamma igammac lgamma log log1p logistic pow regularized_incomplete_beta rem rsqrt sinh sqrt "
    "tanh zeta"
)
"""Elementwise; a fusion takes them in only if they are needed nowhere else."""

REDUCTIONS = _names("reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor")

ALIASES = _names("reshape squeeze expand_dims sharding_constraint random_wrap random_unwrap")
"""The same bytes under another shape."""

MOVES = {
    "slice": "slice",
    "dynamic_slice": "dynamic_slice",
    "dynamic_update_slice": "dynamic_update_slice",
    "gather": "gather",
    "scatter": "scatter",
    "scatter-add": "scatter",
    "scatter_add": "scatter",
    "scatter-mul": "scatter",
    "scatter_mul": "scatter",
    "scatter-min": "scatter",
    "scatter_min": "scatter",
    "scatter-max": "scatter",
    "scatter_max": "scatter",
    "concatenate": "concatenate",
    "pad": "pad",
    "rev": "reverse",
    "reduce_window": "reduce_window",
    "reduce_window_sum": "reduce_window",
    "reduce_window_max": "reduce_window",
    "reduce_window_min": "reduce_window",
    "cumsum": "reduce_window",
    "cumprod": "reduce_window",
    "cummax": "reduce_window",
    "cummin": "reduce_window",
    "cumlogsumexp": "reduce_window",
    "argmax": "argmax",
    "argmin": "argmax",
}
"""Primitive → instruction."""

FUSIBLE = _names(
    "broadcast concatenate dynamic_slice dynamic_update_slice gather iota pad reduce reshape reverse slice transpose"
)
"""With the elementwise ones: what can be part of a loop fusion."""

KNOWN_OPAQUE = _names(
    "sort top_k fft cholesky triangular_solve lu qr eigh svd rng_bit_generator rng_uniform random_seed "
    "random_split random_fold_in threefry2x32 custom_call reduce approx_top_k "
    "copy_start copy_done select_and_gather_add create_token psum"
)
"""Whose outputs are all of the memory that they are known to take."""

TREE_WINDOW = 32
"""Extent from which XLA's CPU compiler splits a reduction."""
