"""Models of transformers by type or configuration: built from the configuration, never from weights or the network."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from oomcast.errors import BadInput, UnknownName, UnreadableFile
from oomcast.workload import Workload

from ._hf_inputs import make_batch
from ._loaded import LoadedJob
from ._vision import import_library

__all__ = ["load_hf"]

_ENCODER_DECODER = ("SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM")
_IMAGE_AND_TEXT = ("IMAGE_TEXT_TO_TEXT",)
_DECODER = ("CAUSAL_LM",)
_ENCODER = ("CTC", "MASKED_LM")
_OTHERS = (
    "ZERO_SHOT_IMAGE_CLASSIFICATION",
    "IMAGE_CLASSIFICATION",
    "VIDEO_CLASSIFICATION",
    "AUDIO_CLASSIFICATION",
    "SEQUENCE_CLASSIFICATION",
    "SEMANTIC_SEGMENTATION",
    "DEPTH_ESTIMATION",
    "TIME_SERIES_PREDICTION",
    "PRETRAINING",
    "",
)
"""Heads by transformers' own names; "" is the bare model."""


def load_hf(name: str, workload: Workload) -> LoadedJob:
    """The job of a model type (`bert`), of a `config.json`, or of a folder that holds one.

    The workload's precision decides the type of the parameters, not the one that the configuration was saved with.
    """
    transformers = _import_transformers()
    config = _configuration(transformers, name)
    _complete(config)
    model_class = _model_class(transformers, config)

    def model() -> torch.nn.Module:
        return model_class._from_config(config, dtype=torch.float32)

    batch = partial(make_batch, config, model_class, workload)
    return LoadedJob(model, batch, assumptions=_assumptions(config, model_class, batch()))


def _assumptions(config: Any, model_class: Any, batch: dict[str, Any]) -> tuple[str, ...]:
    stated = [f"hf: {model_class.__name__} is trained on {', '.join(batch)}"]
    for part, fed in (("vision_config", "pixel_values"), ("audio_config", "input_features")):
        if getattr(config, part, None) is not None and fed not in batch:
            stated.append(f"hf: it is fed no {fed}, so the memory of that encoder's activations is not in the figures")
    if "labels" not in batch:
        stated.append("hf: it computes no loss of its own, so the mean of its output is trained")
    return tuple(stated)


def _import_transformers() -> Any:
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    return import_library("transformers")


def _configuration(transformers: Any, name: str) -> Any:
    known = transformers.CONFIG_MAPPING
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json":
        plain = _read(path)
        kind = plain["model_type"]
        if kind not in known:
            raise UnknownName("model type", kind, known.keys(), "A newer transformers may know it.")
        return _built(path.name, lambda: known[kind].from_dict(plain))
    if name in known:
        return _built(name, lambda: known[name]())
    try:
        return transformers.AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=False)
    except Exception:  # whatever the cache says of a name that it does not hold
        hint = "Give a model type or the path of a config.json; nothing is fetched from the network."
        raise UnknownName("hf model", name, known.keys(), hint) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"there is no configuration {str(path)!r}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} is not a JSON configuration of transformers: {error}.") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("model_type"), str):
        raise UnreadableFile(f"{path} has no model_type; it is not a configuration of transformers.")
    return plain


def _built(name: str, build: Any) -> Any:
    """transformers checks what a configuration says when it is made."""
    try:
        return build()
    except Exception as error:  # its checks raise anything
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = (lines[-1] if lines else type(error).__name__).rstrip(".")
        raise BadInput(f"transformers rejects the configuration {name}: {reason}.") from None


def _complete(config: Any) -> None:
    """Encoder–decoders shift the labels with two ids that published configurations have and plain ones may lack."""
    if getattr(config, "is_encoder_decoder", False):
        if getattr(config, "pad_token_id", None) is None:
            config.pad_token_id = 0
        if getattr(config, "decoder_start_token_id", None) is None:
            config.decoder_start_token_id = config.pad_token_id


def _model_class(transformers: Any, config: Any) -> Any:
    """The class that the configuration names, else the one that its type is trained with."""
    for architecture in getattr(config, "architectures", None) or ():
        found = getattr(transformers, str(architecture), None)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    for task in _tasks(config):
        mapping = getattr(transformers, f"MODEL_FOR_{task}_MAPPING" if task else "MODEL_MAPPING", {})
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, (tuple, list)) else found
    raise BadInput(f"transformers has no model for the type {config.model_type!r} that can be trained as it is.")


def _tasks(config: Any) -> tuple[str, ...]:
    """Many types have heads of several kinds: an encoder can be told to decode, an encoder–decoder to drop a half."""
    if getattr(config, "is_encoder_decoder", False):
        return (*_ENCODER_DECODER, *_IMAGE_AND_TEXT, *_ENCODER, *_DECODER, *_OTHERS)
    if getattr(config, "is_decoder", False):
        return (*_IMAGE_AND_TEXT, *_DECODER, *_ENCODER, *_ENCODER_DECODER, *_OTHERS)
    return (*_IMAGE_AND_TEXT, *_ENCODER, *_DECODER, *_ENCODER_DECODER, *_OTHERS)
