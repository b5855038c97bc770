"""Linear layers with quantised weights, as bitsandbytes, torchao, GPTQ, AWQ and HQQ hold them, and those that torchao
trains as if they were quantised.

bitsandbytes and torchao quantise by their own code, one weight after the other on the GPU; the packed weights of the
other libraries stand in (`packed_weights.py`).
"""

from __future__ import annotations

import dataclasses
import importlib
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from oomcast.errors import BadInput
from oomcast.spec import QUANTIZATIONS, JobPhase, Workload

from .packed_weights import PACKED, PackedLinear

__all__ = [
    "DTYPES",
    "about_quantization",
    "is_quantised",
    "kept_as_they_are",
    "kept_layers",
    "library",
    "published_quantization",
    "quantise",
    "train_as_quantised",
]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def library(name: str, what: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        if error.name != package:
            raise
        raise BadInput(
            f"{what} needs {package}; install it with: pip install {package} (--no-deps keeps torch)"
        ) from None


def quantise(model: Any, workload: Workload) -> None:
    """The weights of the linear layers, but for those that transformers leaves as they are: the head, what is tied to
    it, and what a published configuration names."""
    name = workload.quantization or ""
    if name in TORCHAO:
        _apply_torchao(model, _torchao_config(name, _told(model)), f"--quantization {name}")
        return
    new_layer = _packed(name) if name in PACKED else _of_bitsandbytes(name, DTYPES[workload.weights or "bf16"])
    kept, found = kept_layers(model), False
    for path, module in list(model.named_modules()):
        if not is_quantised(path, module, kept, also_transposed=name not in PACKED):
            continue
        found = True
        new = new_layer(module)
        new.bias = module.bias
        new.requires_grad_(False)
        parent, _, leaf = path.rpartition(".")
        setattr(model.get_submodule(parent), leaf, new)
    if not found:
        raise BadInput(f"--quantization {name}: {type(model).__name__} has no linear layer that {name} quantises.")
    if name not in PACKED:
        model.is_loaded_in_8bit, model.is_loaded_in_4bit = name == "int8", name != "int8"


def is_quantised(path: str, module: nn.Module, kept: Collection[str], also_transposed: bool) -> bool:
    """By transformers' rule for names. GPT-2's layers are linear ones whose weights are transposed."""
    is_linear = type(module) is nn.Linear or (also_transposed and type(module).__name__ == "Conv1D")
    return is_linear and not any(key == path or path.endswith(f".{key}") for key in kept)


def kept_layers(model: Any) -> list[str]:
    """The names of layers that stay as they are. To be asked once: it looks at all of the model."""
    keys: list[str] = []  # of a model of diffusers every linear layer is quantised, as its own quantisers do
    if isinstance(model, importlib.import_module("transformers").PreTrainedModel):
        keys = importlib.import_module("transformers.quantizers.base").get_keys_to_not_convert(model)
    told = _told(model)
    return [*keys, *(told.get("modules_to_not_convert") or ()), *(told.get("llm_int8_skip_modules") or ())]


def _told(model: Any) -> Mapping[str, Any]:
    """What the model's own configuration says of its quantisation."""
    told = getattr(getattr(model, "config", None), "quantization_config", None)
    return told if isinstance(told, Mapping) else {}


def published_quantization(told: Mapping[str, Any]) -> str | None:
    """Our name of what a `quantization_config` tells; None where there is none."""
    method, bits = str(told.get("quant_method", "bitsandbytes")), told.get("bits", told.get("nbits", 4))
    if method.startswith(("bitsandbytes", "bnb")):
        double = "-double" if told.get("bnb_4bit_use_double_quant") else ""
        name = "int8" if told.get("load_in_8bit") else f"{told.get('bnb_4bit_quant_type', 'fp4')}{double}"
    elif method == "torchao":
        return _torchao_name(told.get("quant_type"))
    else:
        name = f"{method}-int{bits}"
    return name if name in QUANTIZATIONS else None


def kept_as_they_are(model: nn.Module) -> Iterator[str]:
    """What was not quantised though one may expect it. transformers holds all experts of a layer in one tensor of three
    dimensions; the libraries that quantise look for linear layers."""
    kept = {
        type(module).__name__: str(parameter.dtype).removeprefix("torch.")
        for module in model.modules()
        if not isinstance(module, nn.modules.conv._ConvNd)
        for parameter in module.parameters(recurse=False)
        if parameter.dim() == 3 and not parameter.requires_grad
    }
    for name, kind in kept.items():
        yield f"{name} holds its experts in one tensor, which is not quantised: they stay in {kind}"


# -------- bitsandbytes and the libraries that pack


def _packed(name: str) -> Callable[[Any], Any]:
    return lambda layer: PackedLinear(layer, name)


def _of_bitsandbytes(name: str, compute: torch.dtype) -> Callable[[Any], Any]:
    kinds = library("bitsandbytes", "--quantization").nn
    kind, _, double = name.partition("-")

    def new_layer(layer: Any) -> Any:
        weight, has_bias = layer.weight.data, layer.bias is not None
        if not isinstance(layer, nn.Linear):
            weight = weight.T
        outputs, inputs = weight.shape
        if kind == "int8":
            new = kinds.Linear8bitLt(inputs, outputs, has_bias, has_fp16_weights=False)
            new.weight = kinds.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
            return new
        new = kinds.Linear4bit(
            inputs, outputs, has_bias, compute_dtype=compute, compress_statistics=bool(double), quant_type=kind
        )
        new.weight = kinds.Params4bit(weight, requires_grad=False, compress_statistics=bool(double), quant_type=kind)
        return new

    return new_layer


# -------- torchao

_INT4 = torch.int4  # type: ignore[attr-defined]
TORCHAO: dict[str, tuple[str, str, dict[str, Any]]] = {
    "int8-torchao": ("Int8WeightOnlyConfig", "int8_weight_only", {}),
    "int4-torchao": ("Int4WeightOnlyConfig", "int4_weight_only", {}),
    "fp8-torchao": ("Float8WeightOnlyConfig", "float8_weight_only", {}),
    "nf4-torchao": ("NF4WeightOnlyConfig", "nf4_weight_only", {}),
    "int8-dynamic-torchao": (
        "Int8DynamicActivationInt8WeightConfig", "int8_dynamic_activation_int8_weight", {}
    ),
    "int8-int4-torchao": (
        "Int8DynamicActivationIntxWeightConfig", "int8_dynamic_activation_int4_weight", {"weight_dtype": _INT4}
    ),
    "fp8-dynamic-torchao": (
        "Float8DynamicActivationFloat8WeightConfig", "float8_dynamic_activation_float8_weight", {}
    ),
}  # fmt: skip
"""Our names → torchao's class, the name that it had in configurations of transformers 4, its settings."""
_QAT: dict[str, tuple[str, dict[str, Any]]] = {
    "int4": ("Int4WeightOnlyConfig", {}),
    "int8-int4": ("Int8DynamicActivationIntxWeightConfig", {"weight_dtype": _INT4}),
    "fp8-int4": ("Float8DynamicActivationInt4WeightConfig", {}),
    "fp8-fp8": ("Float8DynamicActivationFloat8WeightConfig", {}),
}


def _torchao_name(quant_type: Any) -> str | None:
    """transformers 5 writes a table, whose class it names; transformers 4 wrote a name."""
    inner = quant_type.get("default") if isinstance(quant_type, Mapping) else quant_type
    named = inner.get("_type") if isinstance(inner, Mapping) else inner
    return next((name for name, (new, old, _) in TORCHAO.items() if named in (new, old)), None)


def _torchao_config(name: str, told: Mapping[str, Any]) -> Any:
    """With the settings of a published configuration, where it tells this quantisation."""
    quantization = library("torchao.quantization", "--quantization")
    class_name, _, settings = TORCHAO[name]
    if name == "nf4-torchao":
        return library("torchao.prototype._nf4tensor_api", "--quantization").NF4WeightOnlyConfig()
    if _torchao_name(told.get("quant_type")) == name:
        config = _published_torchao_config(quantization, name, told)
    else:
        config = getattr(quantization, class_name)(**settings)
    if name == "int4-torchao":
        # The default packing needs Meta's mslk, which has no path here; this one is torch's own kernel's.
        formats = importlib.import_module("torchao.quantization.quantize_.workflows").Int4PackingFormat
        config = dataclasses.replace(config, int4_packing_format=formats.TILE_PACKED_TO_4D)
    return config


def _published_torchao_config(quantization: Any, name: str, told: Mapping[str, Any]) -> Any:
    quant_type, (class_name, _, settings) = told["quant_type"], TORCHAO[name]
    try:
        if isinstance(quant_type, Mapping):
            return library("torchao.core.config", "--quantization").config_from_dict(quant_type["default"])
        settings = {**settings, **(told.get("quant_type_kwargs") or {})}
        if name == "int8-int4-torchao" and "group_size" in settings:
            settings["weight_granularity"] = quantization.PerGroup(settings.pop("group_size"))
        return getattr(quantization, class_name)(**settings)
    except (TypeError, ValueError, KeyError, AssertionError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise BadInput(
            f"the installed torchao does not read the quantization_config of the model: {reason}; give --quantization "
            f"{name} and a config.json without it."
        ) from None


def about_quantization(workload: Workload) -> Iterator[str]:
    """What an answer must say of a quantisation."""
    if workload.quantization == "int4-torchao":
        yield (
            "int4-torchao is packed in tiles (tile_packed_to_4d), for which widths are rounded up to 1,024; torchao's "
            "plain packing, which needs mslk, does not round"
        )
    if workload.quantization in ("int8-dynamic-torchao", "int8-int4-torchao") and workload.phase is JobPhase.TRAINING:
        yield "torchao rounds activations without a derivative: no gradient passes through the quantised layers"


def _apply_torchao(model: Any, config: Any, option: str) -> None:
    """As transformers' loader does it: each weight on the GPU, then quantised there."""
    quantization = library("torchao.quantization", option.partition(" ")[0])
    kept = kept_layers(model)
    chosen = {module for path, module in model.named_modules() if is_quantised(path, module, kept, False)}
    if not chosen:
        raise BadInput(f"{option}: {type(model).__name__} has no linear layer that torchao quantises.")
    try:
        quantization.quantize_(model, config, filter_fn=lambda module, path: module in chosen, device="cuda")
    except (AssertionError, ValueError, NotImplementedError, ImportError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise BadInput(f"{option}: torchao refuses the model: {lines[0].rstrip('.')}.") from None


def train_as_quantised(model: Any, name: str) -> None:
    """Quantisation-aware training: weights, and activations perhaps, are rounded in each forward pass; the weights that
    are trained stay as they are."""
    qat = library("torchao.quantization.qat", "--qat")
    class_name, settings = _QAT[name]
    base = getattr(library("torchao.quantization", "--qat"), class_name)(**settings)
    _apply_torchao(model, qat.QATConfig(base, step="prepare"), f"--qat {name}")
