"""The sizes of a model's inputs: its file's, the batch, and what was asked for. A size that has a name is one size.

Exporters name open sizes: `batch`, `sequence`, `past`, and sums of them (`past + sequence`), which follow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...errors import BadInput
from ...spec import Workload

__all__ = ["fix_inputs"]

_SUM = re.compile(r"[\w.]+(\s*[+*-]\s*[\w.]+)+")
_TERM = re.compile(r"([+*-])?\s*([\w.]+)")


def fix_inputs(graph: Any, workload: Workload, forms: Mapping[str, tuple[int, ...]]) -> None:
    """Write the sizes into the graph; `forms` are the shapes of inputs that are known otherwise."""
    weights = {item.name for item in graph.initializer}
    inputs = [item for item in graph.input if item.name not in weights and item.type.HasField("tensor_type")]
    symbols = _Symbols(workload, inputs, forms)
    shapes = {item.name: symbols.shape(item) for item in inputs}
    for item in inputs:
        for dimension, extent in zip(item.type.tensor_type.shape.dim, shapes[item.name], strict=True):
            dimension.Clear()
            dimension.dim_value = extent
    for item in (*graph.value_info, *graph.output):
        for dimension in item.type.tensor_type.shape.dim:
            # What was inferred for other sizes must not contradict these; a name that means nothing any more says none.
            if dimension.WhichOneof("value") == "dim_param":
                known = symbols.value(dimension.dim_param)
                dimension.Clear()
                if known is not None:
                    dimension.dim_value = known


class _Symbols:
    """Open sizes by name, as the inputs tell them one after the other."""

    def __init__(self, workload: Workload, inputs: list[Any], forms: Mapping[str, tuple[int, ...]]) -> None:
        self._workload = workload
        self._reference = workload.job.reference
        self._forms = forms
        self._known: dict[str, int] = {}
        dimensions = [item.type.tensor_type.shape.dim for item in inputs]
        self._has_open_batch = any(sizes and sizes[0].WhichOneof("value") != "dim_value" for sizes in dimensions)
        for item, sizes in zip(inputs, dimensions, strict=True):
            if item.name in forms:
                self._learn(item.name, sizes, forms[item.name])
        if not forms:
            self._learn_batch(dimensions)
            self._learn_length(dimensions)

    def value(self, name: str) -> int | None:
        """Of a name, or of a sum of names and numbers."""
        if name in self._known or not _SUM.fullmatch(name):
            return self._known.get(name)
        terms = [(sign, int(term) if term.isdigit() else self._known.get(term)) for sign, term in _TERM.findall(name)]
        total, product = 0, 1
        for sign, value in terms:
            if value is None:
                return None
            if sign == "*":
                product *= value
            else:
                total, product = total + product if sign else 0, -value if sign == "-" else value
        return total + product

    def shape(self, item: Any) -> tuple[int, ...]:
        dimensions = item.type.tensor_type.shape.dim
        if item.name in self._forms:
            return self._forms[item.name]
        wanted = self._workload.input_shape
        shape: list[int] = []
        for axis, dimension in enumerate(dimensions):
            known = self.value(dimension.dim_param)
            if dimension.WhichOneof("value") == "dim_value":
                shape.append(self._fixed(item.name, axis, dimension.dim_value))
            elif known is not None:
                shape.append(known)
            elif axis == 0:
                shape.append(self._workload.batch_size)
            elif wanted is not None and len(wanted) == len(dimensions) - 1:
                shape.append(wanted[axis - 1])
            elif wanted is None and self._workload.seq_len is not None and not dimension.dim_param:
                shape.append(self._workload.seq_len)
            else:
                called = f" ({dimension.dim_param})" if dimension.dim_param else ""
                raise BadInput(
                    f"{self._reference} leaves dimension {axis}{called} of its input {item.name} open; say its size "
                    "with --seq-len, or the shape of one sample with --input-shape."
                )
            if dimension.dim_param:
                self._known.setdefault(dimension.dim_param, shape[-1])
        return tuple(shape)

    def _fixed(self, name: str, axis: int, extent: int) -> int:
        """A first dimension that is fixed is a batch, unless another input has an open one."""
        if axis == 0 and extent != self._workload.batch_size and not self._has_open_batch:
            raise BadInput(
                f"{self._reference} has a fixed batch of {extent} in its input {name}; ask for --batch-size "
                f"{extent}, or export the model with an open batch dimension."
            )
        return extent

    def _learn(self, name: str, dimensions: Any, shape: tuple[int, ...]) -> None:
        if len(shape) != len(dimensions):
            raise BadInput(f"batch() gives {len(shape)} dimensions for {name}, which has {len(dimensions)}.")
        for dimension, extent in zip(dimensions, shape, strict=True):
            called = dimension.dim_param
            if called and self._known.setdefault(called, extent) != extent:
                raise BadInput(
                    f"batch() gives {extent} for the size {called} in the input {name}, and {self._known[called]} "
                    f"elsewhere; in {self._reference} it is one size."
                )

    def _learn_batch(self, dimensions: list[Any]) -> None:
        """The name of the first dimensions that is not also the name of a later one, as a length is."""
        later = {size.dim_param for sizes in dimensions for size in sizes[1:]}
        for sizes in dimensions:
            if sizes and sizes[0].dim_param and sizes[0].dim_param not in later:
                self._known.setdefault(sizes[0].dim_param, self._workload.batch_size)

    def _learn_length(self, dimensions: list[Any]) -> None:
        """--seq-len is one size. Where several are left open, none of them is guessed."""
        if self._workload.seq_len is None or self._workload.input_shape is not None:
            return
        names = dict.fromkeys(size.dim_param for sizes in dimensions for size in sizes if size.dim_param)
        open_names = [name for name in names if name not in self._known and not _SUM.fullmatch(name)]
        if len(open_names) > 1:
            raise BadInput(
                f"{self._reference} leaves several sizes open ({', '.join(open_names)}), and --seq-len is one; "
                "return the path from model() of a job file (--framework onnx) whose batch() gives the shape of every "
                "input."
            )
        for name in open_names:
            self._known[name] = self._workload.seq_len
