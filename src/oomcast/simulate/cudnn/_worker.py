"""The process that has cuDNN loaded: questions come in as lines of JSON, answers go out the same way.

The first line out says which cuDNN this is, or why there is none: {"version": 92000} or {"error": "..."}.
A question is {"device": {...}, "tf32": true, "query": [...]}, its answer {"plans": [...], "largest": n} or {"error": "..."}.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

from ._query import Query
from ._stub import load_driver

__all__ = ["Library", "main"]

TYPES = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "bfloat16": "BFLOAT16"}


class Library:
    """cuDNN through its Python frontend, for GPUs that are described and need not be here."""

    def __init__(self) -> None:
        load_driver()
        self._cudnn: Any = importlib.import_module("cudnn")
        self.version = int(self._cudnn.backend_version())
        self._devices: dict[str, Any] = {}

    def plans(self, device: str, tf32: bool, query: Query) -> tuple[list[int], int]:
        """Workspaces in the order in which torch tries the plans, each smaller than those before, and the largest.

        `device` is JSON text. torch asks for the fallback list only when nothing of the heuristic's own list runs.
        """
        modes = self._cudnn.heur_mode
        for mode in (modes.A, modes.FALLBACK):
            sizes = self._sizes(device, tf32, query, mode)
            if sizes:
                smaller = [n for i, n in enumerate(sizes) if i == 0 or n < min(sizes[:i])]
                return smaller, max(sizes)
        raise RuntimeError("no plan can be built")

    def names(self, device: str, tf32: bool, query: Query, limit: int) -> list[tuple[str, int]]:
        """The first plans with their names (`eng38_k2=4…`), for looking at what cuDNN chooses."""
        graph = self._graph(device, tf32, query, self._cudnn.heur_mode.A)
        found: list[tuple[str, int]] = []
        for index in range(graph.get_execution_plan_count()):
            size = self._size(graph, index)
            if size is not None:
                found.append((graph.get_plan_name_at_index(index), size))
            if len(found) == limit:
                break
        return found

    def _sizes(self, device: str, tf32: bool, query: Query, mode: Any) -> list[int]:
        try:
            graph = self._graph(device, tf32, query, mode)
        except self._cudnn.cudnnGraphNotSupportedError:
            return []
        sizes = (self._size(graph, index) for index in range(graph.get_execution_plan_count()))
        return [size for size in sizes if size is not None]

    @staticmethod
    def _size(graph: Any, index: int) -> int | None:
        try:
            graph.build_plan_at_index(index)
        except Exception:  # deselected, or not for this GPU: the next one is tried, as torch does
            return None
        return int(graph.get_workspace_size_plan_at_index(index))

    def _graph(self, device: str, tf32: bool, query: Query, mode: Any) -> Any:
        types, notes = self._cudnn.data_type, self._cudnn.numerical_note
        io = getattr(types, TYPES[query.dtype])
        compute = types.DOUBLE if query.dtype == "float64" else types.FLOAT
        graph = self._cudnn.pygraph(
            io_data_type=io,
            intermediate_data_type=compute,
            compute_data_type=compute,
            device_property=self._properties(device),
        )

        def tensor(name: str, shape: tuple[int, ...]) -> Any:
            strides = _strides(shape, query.channels_last)
            return graph.tensor(name=name, dim=list(shape), stride=strides, data_type=io)

        how = {
            "padding": list(query.padding),
            "stride": list(query.stride),
            "dilation": list(query.dilation),
            "compute_data_type": compute,
        }
        if query.kind == "fprop":
            made, shape = graph.conv_fprop(image=tensor("x", query.x), weight=tensor("w", query.w), **how), query.y
        elif query.kind == "dgrad":
            made, shape = graph.conv_dgrad(filter=tensor("w", query.w), loss=tensor("y", query.y), **how), query.x
        else:
            made, shape = graph.conv_wgrad(image=tensor("x", query.x), loss=tensor("y", query.y), **how), query.w
        made.set_output(True).set_dim(list(shape)).set_stride(_strides(shape, query.channels_last))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([mode])
        unwanted = [notes.DOWN_CONVERT_INPUTS]
        if query.dtype == "float32" and not tf32:
            unwanted.append(notes.TENSOR_CORE)
        graph.deselect_numeric_notes(unwanted)
        return graph

    def _properties(self, device: str) -> Any:
        if device not in self._devices:
            self._devices[device] = self._cudnn.create_device_properties(device)
        return self._devices[device]


def _strides(shape: tuple[int, ...], channels_last: bool) -> list[int]:
    order = (1, *range(len(shape) - 1, 1, -1), 0) if channels_last else range(len(shape) - 1, -1, -1)
    strides = [0] * len(shape)
    step = 1
    for dimension in order:
        strides[dimension] = step
        step *= shape[dimension]
    return strides


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the libraries print must not mix with the answers

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        library = Library()
    except Exception as problem:
        answer({"error": f"{type(problem).__name__}: {problem}"})
        return
    answer({"version": library.version})
    for line in sys.stdin:
        asked = json.loads(line)
        kind, x, w, y, channels_last, dtype, *how = asked["query"]
        query = Query(kind, tuple(x), tuple(w), tuple(y), channels_last, dtype, *map(tuple, how))
        try:
            plans, largest = library.plans(json.dumps(asked["device"]), asked["tf32"], query)
        except Exception as problem:
            answer({"error": f"{type(problem).__name__}: {problem}"})
        else:
            answer({"plans": plans, "largest": largest})


if __name__ == "__main__":
    main()
