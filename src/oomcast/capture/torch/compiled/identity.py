"""What a graph is to Inductor, in a word: two graphs of the same word are lowered to the same code.

In it is all that lowering looks at: nodes with their operators' schemas and the forms of their values, which values
share memory, what AOTAutograd allows to be written into, the GPU, the settings of torch, and the versions. Where
something is met that has no plain description, there is no word, and the graph is lowered anew.
"""

from __future__ import annotations

import functools
import hashlib
import json
import operator
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sympy
import torch
from torch import fx
from torch._functorch import config as _functorch_config
from torch._inductor import config as _inductor_config
from torch._inductor.utils import get_donated_idxs

from .... import __version__
from .defaults import reuse_rule

__all__ = ["Places", "identity_of"]

Places = tuple[tuple[str, str], ...]
"""The modules and source lines that the nodes of a graph come from, each once, in their order."""


class _Undescribed(Exception):
    """Something that is not known to be the same another time."""


def identity_of(
    graph: fx.GraphModule, inputs: Sequence[Any], places_of_nodes: Sequence[tuple[str, str]], about: Sequence[Any]
) -> str | None:
    """`about`: what else lowering depends on. None: the graph is not known by a word."""
    place_numbers: dict[tuple[str, str], int] = {}
    for place in places_of_nodes:
        place_numbers.setdefault(place, len(place_numbers))
    describe = _Describer(graph)
    try:
        told = {
            "nodes": [describe.node(node) for node in graph.graph.nodes],
            # The lines themselves may change; which nodes are of the same one may not.
            "places": [place_numbers[place] for place in places_of_nodes],
            "inputs": [describe.value(value) for value in inputs],
            "donated": describe.value(get_donated_idxs()),
            "about": describe.value(list(about)),
            "settings": _settings(describe),
            "versions": _versions(),
        }
    except _Undescribed:
        return None
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


_SAID_OTHERWISE = frozenset({
    "stack_trace", "nn_module_stack", "fwd_nn_module_stack", "source_fn_stack", "fwd_source_fn_stack", "from_node",
    "seq_nr", "torch_fn", "desc", "tensor_meta", "example_value", "original_output_strides", "partitioner_tag",
    "is_gradient_acc", "autograd_backward", "stack_trace_recompute", "proxy_mode_stack",
})  # fmt: skip
"""Of a node: where it comes from (by its place), and what is worked out again from the rest."""
_PLAIN = (bool, int, float, str, type(None))
_BY_NAME = (torch.dtype, torch.layout, torch.memory_format, torch.device)
_FUNCTIONS_OF = (operator.__name__, "_operator", "math")


class _Describer:
    def __init__(self, graph: fx.GraphModule) -> None:
        self._numbers = {node: number for number, node in enumerate(graph.graph.nodes)}
        self._storages: dict[int, int] = {}

    def node(self, node: fx.Node) -> list[Any]:
        if node.op not in ("placeholder", "call_function", "output"):
            raise _Undescribed(node.op)
        told = {key: self.value(value) for key, value in node.meta.items() if key not in _SAID_OTHERWISE}
        target = self._target(node.target) if node.op == "call_function" else str(node.target)
        return [node.op, node.name, target, self.value(node.args), self.value(node.kwargs), told]

    def _target(self, target: Any) -> str:
        if isinstance(target, torch._ops.OpOverload):
            return f"{target} {target._schema} {sorted(map(str, target.tags))}"
        if getattr(target, "__module__", "") in _FUNCTIONS_OF:
            return f"{target.__module__}.{target.__name__}"
        raise _Undescribed(str(target))

    def value(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return ["node", self._numbers[value]]
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if type(value) in _PLAIN:
            return repr(value)
        if isinstance(value, (list, tuple)):
            return [type(value).__name__, *(self.value(item) for item in value)]
        if isinstance(value, dict):
            return ["dict", *([self.value(key), self.value(item)] for key, item in value.items())]
        if isinstance(value, _BY_NAME):
            return str(value)
        if isinstance(value, slice):
            return ["slice", *(self.value(part) for part in (value.start, value.stop, value.step))]
        if isinstance(value, torch._ops.OpOverload):
            return self._target(value)
        raise _Undescribed(type(value).__name__)

    def _tensor(self, tensor: torch.Tensor) -> list[Any]:
        form = [*tensor.shape, *tensor.stride(), tensor.storage_offset()]
        if tensor.layout is not torch.strided or any(type(number) is not int for number in form):
            raise _Undescribed("a form that is not of plain numbers")
        storage = tensor.untyped_storage()
        shared = self._storages.setdefault(storage._cdata, len(self._storages))
        flags = [tensor.requires_grad, tensor._is_view(), isinstance(tensor, torch.nn.Parameter)]
        return [tensor.dim(), *form, str(tensor.dtype), str(tensor.device), shared, *flags]


def _settings(describe: _Describer) -> list[Any]:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return [
        *(sorted((str(name), repr(value)) for name, value in _plain(config).items()) for config in _CONFIGS),
        torch.are_deterministic_algorithms_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
        torch.get_float32_matmul_precision(),
        str(torch.get_default_dtype()),
        repr((matmul.allow_fp16_reduced_precision_reduction, matmul.allow_bf16_reduced_precision_reduction)),
        repr((cudnn.enabled, cudnn.benchmark, cudnn.deterministic)),
        reuse_rule(),
    ]


_CONFIGS = (_inductor_config, _functorch_config)


def _plain(config: Any) -> dict[str, Any]:
    """All settings, those of a job's own functions by where they are in memory: never the same again."""
    told: dict[str, Any] = config.get_config_copy()
    return told


@functools.cache
def _versions() -> list[str]:
    """Of what lowers, and of this folder, which says what it is told."""
    ours = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        ours.update(file.read_bytes())
    return [
        str(torch.__version__),
        str(torch.version.git_version),
        sympy.__version__,
        platform.python_version(),
        __version__,
        ours.hexdigest(),
    ]
