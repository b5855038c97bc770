"""What a job's `batch()` returns, as shapes and dtypes, and as the variables that a block is called with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx

from oomcast.errors import BadInput
from oomcast.workload import Workload

from ._read import Form

__all__ = ["as_symbols", "batch_forms", "by_position", "pair"]


def batch_forms(batch: Any, workload: Workload) -> Any:
    """What `batch()` returned, in tuples and dicts as there, with a `Form` in place of every array or shape."""
    if isinstance(batch, dict):
        return {str(name): batch_forms(value, workload) for name, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        if batch and all(isinstance(extent, int) for extent in batch):
            return _form(tuple(batch), "float32", workload)  # a shape alone
        return tuple(batch_forms(value, workload) for value in batch)
    try:
        return _form(tuple(batch.shape), getattr(batch.dtype, "__name__", str(batch.dtype)), workload)
    except (AttributeError, TypeError) as error:
        raise BadInput(
            f"batch() in {workload.job.name} returned something without a shape; return arrays or shapes, as (x, y)."
        ) from error


def as_symbols(batch: Any, given: dict[str, Form]) -> Any:
    """The same with variables, which are noted in `given`: of a pair, the second half are labels."""
    if isinstance(batch, tuple) and len(batch) == 2 and not _is_form(batch):
        return _variables(batch[0], "data", given), _variables(batch[1], "label", given)
    return _variables(batch, "data", given)


def pair(batch: Any, symbols: Any, job: str) -> tuple[tuple[Any, ...], Any]:
    """The model's arguments and the one label; raises BadInput where there is no such thing."""
    if isinstance(batch, tuple) and len(batch) == 2 and not _is_form(batch):
        labels = _leaves(symbols[1])
        if len(labels) == 1:
            return _leaves(symbols[0]), labels[0]
    raise BadInput(f"batch() in {job} returned no labels; return (x, y), or write loss(model, batch) in the job file.")


def by_position(batch: Any, arguments: Sequence[str]) -> dict[str, Form]:
    """For a Symbol: `data` and the label, which a loss names so; otherwise its arguments in order."""
    labels = [name for name in arguments if name.endswith("label")]
    names = ["data" if "data" in arguments else arguments[0], *labels]
    return dict(zip(names, _leaves(batch), strict=False))


def _variables(form: Any, kind: str, given: dict[str, Form]) -> Any:
    if isinstance(form, dict):
        return {name: _variables(part, kind, given) for name, part in form.items()}
    if not _is_form(form):
        return tuple(_variables(part, kind, given) for part in form)
    number = sum(name.startswith(kind) for name in given)
    name = f"{kind}{number or ''}"
    given[name] = form
    return mx.sym.var(name, shape=form[0], dtype=form[1])


def _leaves(value: Any) -> tuple[Any, ...]:
    """Forms or variables, in order."""
    if isinstance(value, mx.sym.Symbol) or _is_form(value):
        return (value,)
    parts = value.values() if isinstance(value, dict) else value
    return tuple(leaf for part in parts for leaf in _leaves(part))


def _is_form(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str)


def _form(shape: tuple[Any, ...], dtype: str, workload: Workload) -> Form:
    if not all(isinstance(extent, int) and extent > 0 for extent in shape):
        raise BadInput(
            f"batch() in {workload.job.name} leaves a dimension open ({shape}); give every dimension a size."
        )
    return shape, dtype
