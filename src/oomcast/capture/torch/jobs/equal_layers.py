"""Models of transformers and of the zoo whose layers are alike: which depths tell everything about the whole
(`capture/growth.py`).

The whole model is built on torch's meta device, which costs little, and its layers are compared: classes, parameters,
buffers, plain attributes, and what the configuration lists for each layer. Only where they repeat from some layer to
the last, and two shallow models have the same layers at their beginning, is there an answer. Whether a model treats
equal layers alike must be known of its code: of a user's own model it is not.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from oomcast.spec import DataParallel, JobPhase, Parallel, Workload

from ..blocks import repeated_blocks

__all__ = ["EqualLayers", "attributes_of", "equal_blocks", "equal_layers", "treats_layers_alike", "with_layers"]

_ROUNDS = 4
"""Of the layers that repeat, in the shallower model. What may differ at the ends of loops, and rounds that agree."""
_ROUNDS_OF_FSDP = 6
"""It gathers ahead, and reduces behind: more rounds at the ends differ."""
_WORTH_IT = 0.7
"""Both shallow models together have fewer layers than this share of the whole one."""
_PLAIN = (bool, int, float, str, type(None))
_LAYER_BY_LAYER = (None, DataParallel.FSDP2)
"""The others have buckets that begin in one layer and end in another, or blocks whose reuse other streams delay."""


class EqualLayers(NamedTuple):
    shallow: int
    """Layers of the shallower model."""
    period: int
    """After how many layers they repeat."""
    total: int
    stages: int = 1
    """Of a pipeline: each has its share of the layers, and in the deeper model one period more."""

    @property
    def deeper(self) -> int:
        return self.shallow + self.period * self.stages

    @property
    def further_rounds(self) -> int:
        """That the whole model has more than the deeper one, or a stage of it."""
        return (self.total - self.deeper) // (self.period * self.stages)


def equal_layers(model_class: Any, config: Any, workload: Workload) -> EqualLayers | None:
    """None where layers differ, or where the workload treats them differently."""
    total = getattr(config, "num_hidden_layers", None)
    if not isinstance(total, int) or not treats_layers_alike(workload):
        return None
    try:
        kinds = _kinds(model_class, config, total)
        found = None if kinds is None else _depths(kinds, workload.parallel)
        if found is None or kinds is None:
            return None
        for layers in (found.shallow, found.deeper):
            if _kinds(model_class, with_layers(config, layers), layers) != kinds[:layers]:
                return None
    except Exception:  # code of a library on a device that it does not expect: the whole model is captured instead
        return None
    return found


def equal_blocks(build: Callable[[], nn.Module], workload: Workload) -> EqualLayers | None:
    """The same for a model of the zoo: its repeated blocks, where they stand in one list."""
    if not treats_layers_alike(workload):
        return None
    with torch.device("meta"):
        model = build()
    blocks = repeated_blocks(model)
    if not any(len(blocks) > 0 and list(parent.children()) == blocks for parent in model.modules()):
        return None
    return _depths([tuple(attributes_of(block)) for block in blocks], workload.parallel)


def with_layers(config: Any, layers: int) -> Any:
    """The configuration of the same model with its first layers only."""
    shallow = copy.deepcopy(config)
    total = config.num_hidden_layers
    for name, value in _lists(config):
        if len(value) == total:
            setattr(shallow, name, type(value)(value[:layers]))
    shallow.num_hidden_layers = layers
    return shallow


def treats_layers_alike(workload: Workload) -> bool:
    """Whether nothing that was asked for means single layers, or makes each of them another."""
    if workload.phase is not JobPhase.TRAINING or workload.compile is not None or workload.blocks is not None:
        return False
    if workload.parallel is not None and workload.parallel.data not in _LAYER_BY_LAYER:
        return False
    if (
        workload.objective.generates
        or workload.trained_layers is not None
        or not isinstance(workload.checkpointing, bool)
    ):
        return False
    settings = workload.adapter.settings if workload.adapter is not None else {}
    return all(_names_no_layer(name, value) for name, value in settings.items())


def _names_no_layer(name: str, value: Any) -> bool:
    """Whether a setting of an adapter means every layer: no pattern, no index, no path with a number in it."""
    if isinstance(value, dict):
        return not value
    if isinstance(value, (list, tuple)):
        return all(isinstance(item, str) and re.fullmatch(r"[A-Za-z_][\w]*(\.[A-Za-z_]\w*)*", item) for item in value)
    return "layer" not in name if not isinstance(value, str) else value == "all-linear" or "modules" not in name


def _depths(kinds: list[Any], parallel: Parallel | None) -> EqualLayers | None:
    total = len(kinds)
    rounds = _ROUNDS if parallel is None or parallel.data is not DataParallel.FSDP2 else _ROUNDS_OF_FSDP
    if parallel is not None and parallel.pipeline > 1:
        # Several pieces on a GPU are loops within loops: growth does not look for such.
        return _depths_of_stages(kinds, parallel.pipeline, rounds) if parallel.pieces == 1 else None
    for period in range(1, total // 2):
        first = total - period
        while first > 0 and kinds[first - 1] == kinds[first - 1 + period]:
            first -= 1
        # A whole number of rounds stands behind the layers that are counted by themselves.
        first += (total - first) % period
        shallow = first + rounds * period
        if 2 * shallow + period < _WORTH_IT * total:
            return EqualLayers(shallow, period, total)
    return None


def _depths_of_stages(kinds: list[Any], stages: int, rounds: int) -> EqualLayers | None:
    """Only where all layers are equal: each stage then has the same."""
    total = len(kinds)
    if total % stages or any(kind != kinds[0] for kind in kinds):
        return None
    found = EqualLayers(rounds * stages, 1, total, stages)
    return found if found.shallow + found.deeper < _WORTH_IT * total else None


def _kinds(model_class: Any, config: Any, total: int) -> list[Any] | None:
    """What each layer is made of; None where the list of layers cannot be told from others."""
    with torch.device("meta"):
        model = model_class._from_config(copy.deepcopy(config))
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) == total]
    if len(lists) != 1 or _names_single_layers(config, total):
        return None
    described = [dict(attributes_of(layer)) for layer in lists[0]]
    numbered = {
        key
        for key, value in described[0].items()
        if value == 0 and all(layer.get(key) == index for index, layer in enumerate(described))
    }
    per_layer = [(name, value) for name, value in _lists(config) if len(value) == total]
    return [
        (
            tuple((key, value) for key, value in layer.items() if key not in numbered),
            tuple((name, value[index]) for name, value in per_layer),
        )
        for index, layer in enumerate(described)
    ]


def attributes_of(layer: nn.Module) -> Iterator[tuple[str, Any]]:
    """What a layer is made of: classes, plain attributes, the forms of its tensors."""
    for path, module in layer.named_modules():
        yield f"{path}:", type(module).__qualname__
        for name, value in vars(module).items():
            if isinstance(value, _PLAIN):
                yield f"{path}.{name}", value
    for path, tensor in (*layer.named_parameters(), *layer.named_buffers()):
        yield f"{path}=", (tuple(tensor.shape), tensor.dtype)


def _lists(config: Any) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in vars(config).items() if isinstance(value, (list, tuple))]


def _names_single_layers(config: Any, total: int) -> bool:
    """Whether the configuration lists layers by their numbers: which of them it means cannot be seen in the layers."""
    return any(
        "layer" in name and len(value) != total and value and all(isinstance(item, int) for item in value)
        for name, value in _lists(config)
    )
