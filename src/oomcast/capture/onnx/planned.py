"""What ONNX Runtime knows of the values' sizes when it plans their memory: before a run, open sizes are only names.

Its planner gives a value the memory of another where both have the same form: every dimension the same number, or the
same name. With an open batch that is less often so than for the sizes of one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import shape_inference

__all__ = ["Form", "forms_before_a_run"]

Form = tuple[int | str | None, ...]
"""A dimension is a number, the name of an open size, or not known."""

_MADE_UP = "unk__"
"""So ONNX's inference names dimensions that it cannot know. ONNX Runtime leaves them unknown."""


def forms_before_a_run(model: Any) -> Mapping[str, Form | None]:
    """Of every value that a node makes; None where not even the number of dimensions is known.

    Values of sizes are not followed, as the runtime does not: what a `Reshape` by computed sizes makes is not known.
    """
    forms: dict[str, Form | None] = {name: None for node in model.graph.node for name in node.output if name}
    try:
        inferred = shape_inference.infer_shapes(model, strict_mode=False, data_prop=False).graph
    except Exception:  # what does not fit together is told when it is inferred with sizes
        return forms
    for item in (*inferred.input, *inferred.value_info, *inferred.output):
        if item.type.tensor_type.HasField("shape"):
            forms[item.name] = tuple(_dimension(size) for size in item.type.tensor_type.shape.dim)
    return forms


def _dimension(size: Any) -> int | str | None:
    if size.HasField("dim_value"):
        return int(size.dim_value)
    return size.dim_param if size.dim_param and not size.dim_param.startswith(_MADE_UP) else None
