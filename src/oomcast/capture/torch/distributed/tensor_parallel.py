"""Tensor parallelism of a job's model: which layers are cut by columns and which by rows, and DTensor does the rest.

Whose word counts, in this order: the job's own `tensor_parallel_plan(model)`, the plan that a model of transformers
brings, the names that layers of Transformers usually have. Embedding and head are cut by the vocabulary.
"""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Callable, Mapping
from typing import Any, cast

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from ....errors import BadInput, UnknownName
from ..blocks import repeated_blocks

__all__ = ["cut_tensors", "has_cut_experts"]

_COLUMNS = {"query", "key", "value", "q", "k", "v", "qkv", "q_proj", "k_proj", "v_proj", "qkv_proj", "wq", "wk", "wv",
            "wqkv", "c_attn", "gate", "up", "gate_proj", "up_proj", "gate_up_proj", "w1", "w3", "fc1", "c_fc", "fc_in",
            "lin1", "linear1", "dense_h_to_4h", "query_key_value", "in_proj", "expand"}  # fmt: skip
_ROWS = {"out", "o", "o_proj", "out_proj", "wo", "down", "down_proj", "w2", "fc2", "c_proj", "fc_out", "lin2",
         "linear2", "dense_4h_to_h", "proj", "dense", "contract"}  # fmt: skip
_HEADS = ("heads", "num_heads", "n_heads", "n_head", "num_attention_heads", "key_value_heads", "num_key_value_heads",
          "num_kv_heads", "n_kv_heads", "n_kv_head", "kv_heads")  # fmt: skip
_STYLES: Mapping[str, Callable[[], ParallelStyle]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
    "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate()),
    "rowwise_rep": lambda: RowwiseParallel(input_layouts=Replicate()),
}
"""In the words of transformers' plans."""


def cut_tensors(model: nn.Module, mesh: DeviceMesh, plan_of_job: Callable[[nn.Module], Any] | None) -> str:
    """Cut the model's layers over the mesh, and say in a sentence by whose plan."""
    size = mesh.size()
    if plan_of_job is None:
        _check_heads_of_transformers(model, size)
    if plan_of_job is None and _cuts_more_than_layers(model):
        return _cut_as_transformers(model, mesh)
    plan, whose = _plan(model, plan_of_job)
    styles: dict[str, ParallelStyle] = {}
    for name, style in plan.items():
        if not isinstance(style, ParallelStyle):
            if style not in _STYLES:
                raise UnknownName("style of tensor parallelism", str(style), _STYLES)
            style = _STYLES[style]()
        styles[name] = style
    for name, style in styles.items():
        _check_cut(name, model.get_submodule(name), style, size)
    _share_heads(model, styles, size)
    parallelize_module(model, mesh, styles)
    return f"tp={size}: {len(styles)} layers are cut by {whose}, without sequence parallelism"


def has_cut_experts(model: nn.Module) -> bool:
    """Whether parameters that are in no layer of their own were cut."""
    return any(
        isinstance(value, DTensor)
        for module in model.modules()
        if not isinstance(module, (nn.Linear, nn.Embedding))
        for value in module.parameters(recurse=False)
    )


def _cuts_more_than_layers(model: nn.Module) -> bool:
    """Whether the plan that the model brings cuts parameters that are in no layer of their own, as those of fused
    experts."""
    plan = getattr(model, "tp_plan", None) or {}
    layers = {name for name, module in model.named_modules() if isinstance(module, (nn.Linear, nn.Embedding))}
    loose = [name for name, _ in model.named_parameters() if name.rpartition(".")[0] not in layers]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in plan for name in loose)


def _cut_as_transformers(model: nn.Module, mesh: DeviceMesh) -> str:
    """By the library's own code, which knows how experts are cut and what they give is summed."""
    size, plan = mesh.size(), dict(cast("Mapping[str, str]", model.tp_plan))
    # A stage of a pipeline has nothing where other stages have their layers.
    empty = [name for name, module in model.named_modules() if not any(True for _ in module.parameters())]
    plan = {pattern: plan[pattern] for pattern in plan if not fnmatch.filter(empty, pattern)}
    try:
        library = importlib.import_module("transformers.distributed.tensor_parallel")
        library.apply_tensor_parallelism(model, mesh, plan)
    except (ImportError, AttributeError):
        raise BadInput(
            f"tp={size} cuts experts by the code of transformers, which needs a newer one; install it, or write "
            "tensor_parallel_plan(model) in the job."
        ) from None
    except ValueError as error:
        raise BadInput(f"tp={size} does not divide the model: {str(error).rstrip('.')}.") from None
    return (
        f"tp={size}: layers and experts are cut by the plan and the code of transformers, without sequence parallelism"
    )


def _plan(model: nn.Module, plan_of_job: Callable[[nn.Module], Any] | None) -> tuple[dict[str, Any], str]:
    modules = {name: module for name, module in model.named_modules() if isinstance(module, (nn.Linear, nn.Embedding))}
    if plan_of_job is not None:
        wanted = plan_of_job(model)
        if not isinstance(wanted, Mapping) or not wanted:
            raise BadInput("tensor_parallel_plan(model) must return names of layers with colwise, rowwise, ….")
        return _expanded(wanted, modules, strict=True), "the job's tensor_parallel_plan"
    brought = getattr(model, "tp_plan", None)
    if isinstance(brought, Mapping) and brought:
        return _without_tied(model, _expanded(brought, modules, strict=False)), "the plan of transformers"
    plan: dict[str, Any] = {}
    inside = {id(part) for block in repeated_blocks(model) for part in block.modules()}
    for name, module in modules.items():
        last = name.rpartition(".")[2].lower()
        if id(module) in inside and isinstance(module, nn.Linear):
            if last in _COLUMNS:
                plan[name] = "colwise"
            elif last in _ROWS:
                plan[name] = "rowwise"
    if "colwise" not in plan.values() or "rowwise" not in plan.values():
        raise BadInput(
            "tp was asked for, but the names of the model's layers do not tell which are cut by columns and which by "
            "rows; write tensor_parallel_plan(model) in the job, like {'blocks.*.fc1': 'colwise', …}."
        )
    plan.update(_vocabulary(modules, inside))
    return _without_tied(model, plan), "the names of the layers"


def _expanded(plan: Mapping[str, Any], modules: Mapping[str, nn.Module], *, strict: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pattern, style in plan.items():
        names = [name for name in modules if fnmatch.fnmatchcase(name, pattern)]
        if strict and not names:
            raise UnknownName("layer", pattern, modules)
        if strict or style in _STYLES:
            found.update(dict.fromkeys(names, style))
    return found


def _vocabulary(modules: Mapping[str, nn.Module], inside: set[int]) -> dict[str, str]:
    """The largest embedding and the head that has as many outputs. Where there is none, the model may use the
    embedding's own weight for it, outside of the layer, where DTensor does not follow: it stays whole."""
    tables = {n: m for n, m in modules.items() if isinstance(m, nn.Embedding) and id(m) not in inside}
    if not tables:
        return {}
    table = max(tables, key=lambda name: tables[name].num_embeddings)
    heads = [
        name
        for name, module in modules.items()
        if isinstance(module, nn.Linear)
        and id(module) not in inside
        and module.out_features == tables[table].num_embeddings
    ]
    return {table: "embedding_rowwise", heads[-1]: "colwise_gather_output"} if heads else {}


def _without_tied(model: nn.Module, plan: dict[str, Any]) -> dict[str, Any]:
    """Layers that share a weight stay whole: cut one by one, each would get a weight of its own."""
    owners: dict[int, list[str]] = {}
    for name in plan:
        owners.setdefault(id(model.get_submodule(name).weight), []).append(name)
    tied = {name for names in owners.values() if len(names) > 1 for name in names}
    return {name: style for name, style in plan.items() if name not in tied}


def _check_cut(name: str, layer: nn.Module, style: ParallelStyle, size: int) -> None:
    if isinstance(layer, nn.Embedding):
        return  # a vocabulary may leave the last rank less
    assert isinstance(layer, nn.Linear)
    extent = layer.out_features if isinstance(style, ColwiseParallel) else layer.in_features
    is_head = isinstance(style, ColwiseParallel) and style.output_layouts == (Replicate(),)
    if extent % size and not is_head:
        raise BadInput(f"tp={size} does not divide the {extent} features of {name}; choose a divisor.")


def _check_heads_of_transformers(model: nn.Module, size: int) -> None:
    """Its attention, where the plan cuts it, splits what a rank has of a projection into whole heads."""
    plan = getattr(model, "tp_plan", None)
    if not isinstance(plan, Mapping) or not any("attn." in name for name in plan):
        return
    text = cast("Any", model.config).get_text_config()
    for attribute, whose in (("num_attention_heads", "heads"), ("num_key_value_heads", "heads of keys and values")):
        count = getattr(text, attribute, None)
        if isinstance(count, int) and count % size:
            raise BadInput(f"tp={size} does not divide the {count} {whose}; choose a divisor.")


def _share_heads(model: nn.Module, styles: Mapping[str, ParallelStyle], size: int) -> None:
    """An attention whose queries are cut has a rank's share of the heads, where its code counts them."""
    by_columns = (name for name, style in styles.items() if isinstance(style, ColwiseParallel))
    for owner in sorted({name.rpartition(".")[0] for name in by_columns}):
        module = model.get_submodule(owner)
        for attribute in _HEADS:
            count = module.__dict__.get(attribute)
            if type(count) is int and count > 1:
                if count % size:
                    raise BadInput(f"tp={size} does not divide the {count} heads of {owner}; choose a divisor.")
                setattr(module, attribute, count // size)
