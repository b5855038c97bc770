"""Models of transformers by type or by configuration: built from the configuration, never from weights or the network."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import torch

from oomcast.errors import BadInput, UnknownName, UnreadableFile
from oomcast.workload import Workload

from ._loaded import LoadedJob, default_loss
from ._vision import import_library

__all__ = ["load_hf"]

_DEFAULT_TOKENS = 512
_TASKS = (
    "CAUSAL_LM",
    "SEQ_TO_SEQ_CAUSAL_LM",
    "MASKED_LM",
    "IMAGE_CLASSIFICATION",
    "SPEECH_SEQ_2_SEQ",
    "CTC",
    "AUDIO_CLASSIFICATION",
    "SEQUENCE_CLASSIFICATION",
    "VIDEO_CLASSIFICATION",
    "ZERO_SHOT_IMAGE_CLASSIFICATION",
    "",
)
"""The heads that are looked for, in this order, where the configuration names no architecture."""


def load_hf(name: str, workload: Workload) -> LoadedJob:
    transformers = import_library("transformers")
    config = _configuration(transformers, name)
    model_class = _model_class(transformers, config)

    def model() -> torch.nn.Module:
        return model_class._from_config(config)

    return LoadedJob(model, lambda: _batch(config, model_class, workload), default_loss)


def _configuration(transformers: Any, name: str) -> Any:
    known = transformers.CONFIG_MAPPING
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json":
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BadInput(f"there is no configuration {name!r}.") from None
        except (OSError, ValueError) as error:
            raise UnreadableFile(f"{name} is not a JSON configuration of transformers: {error}.") from None
        kind = plain.get("model_type") if isinstance(plain, dict) else None
        if not isinstance(kind, str):
            raise UnreadableFile(f"{name} has no model_type; it is not a configuration of transformers.")
        if kind not in known:
            raise UnknownName("model type", kind, known.keys(), "A newer transformers may know it.")
        return known[kind].from_dict(plain)
    if name in known:
        return known[name]()
    try:
        return transformers.AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError):
        raise UnknownName(
            "hf model",
            name,
            known.keys(),
            "Give a model type or the path of a config.json; nothing is fetched from the network.",
        ) from None


def _model_class(transformers: Any, config: Any) -> Any:
    for architecture in config.architectures or ():
        found = getattr(transformers, architecture, None)
        if found is not None:
            return found
    for task in _TASKS:
        mapping = getattr(transformers, f"MODEL_FOR_{task}_MAPPING" if task else "MODEL_MAPPING", {})
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, (tuple, list)) else found
    raise BadInput(f"transformers has no model for the type {config.model_type!r} that can be trained as it is.")


def _batch(config: Any, model_class: Any, workload: Workload) -> dict[str, torch.Tensor]:
    """What the model's forward takes: tokens, pixels or sound, and labels where it computes a loss itself."""
    takes = inspect.signature(model_class.forward).parameters
    batch_size = workload.batch_size
    batch: dict[str, torch.Tensor] = {}
    main = model_class.main_input_name
    if main == "input_ids" or ("input_ids" in takes and main not in takes):
        tokens = workload.seq_len or _default_tokens(config)
        batch["input_ids"] = _tokens(config, batch_size, tokens)
        if "attention_mask" in takes:
            batch["attention_mask"] = torch.ones(batch_size, tokens, dtype=torch.long)
        if "pixel_values" in takes and getattr(config, "vision_config", None) is not None and not _is_text_led(config):
            batch["pixel_values"] = _pixels(config.vision_config, batch_size, workload)
    elif main == "pixel_values":
        batch[main] = _pixels(config, batch_size, workload)
    elif main == "input_features":
        batch[main] = torch.randn(batch_size, *_features(config, workload))
    elif main == "input_values":
        batch[main] = torch.randn(batch_size, workload.seq_len or 16000)
    else:
        raise BadInput(f"hf models with the input {main!r} need a job file with batch().")
    if main != "input_ids" and "decoder_input_ids" in takes:
        batch["decoder_input_ids"] = _tokens(config, batch_size, 32)
    if "labels" in takes:
        batch["labels"] = _labels(config, model_class, batch, batch_size)
    return batch


def _labels(config: Any, model_class: Any, batch: dict[str, torch.Tensor], batch_size: int) -> torch.Tensor:
    if "Classification" in model_class.__name__:
        return torch.zeros(batch_size, dtype=torch.long)
    tokens = batch.get("decoder_input_ids", batch.get("input_ids"))
    if tokens is None:
        return _tokens(config, batch_size, 16)
    return tokens.clone()


def _text(config: Any) -> Any:
    for name in ("text_config", "decoder", "text_encoder"):
        inner = getattr(config, name, None)
        if inner is not None and getattr(inner, "vocab_size", None):
            return inner
    return config


def _is_text_led(config: Any) -> bool:
    """Image-and-text models that also run on text alone need special image tokens to be fed images."""
    return getattr(config, "image_token_id", getattr(config, "image_token_index", None)) is not None


def _tokens(config: Any, batch_size: int, tokens: int) -> torch.Tensor:
    vocabulary = getattr(_text(config), "vocab_size", None) or 1000
    return torch.randint(0, min(vocabulary, 100), (batch_size, tokens))


def _default_tokens(config: Any) -> int:
    positions = getattr(_text(config), "max_position_embeddings", None) or _DEFAULT_TOKENS
    return int(min(positions, _DEFAULT_TOKENS))


def _pixels(config: Any, batch_size: int, workload: Workload) -> torch.Tensor:
    if workload.input_shape is not None:
        return torch.randn(batch_size, *workload.input_shape)
    side = getattr(config, "image_size", None) or 224
    height, width = side if isinstance(side, (tuple, list)) else (side, side)
    channels = getattr(config, "num_channels", None) or 3
    frames = getattr(config, "num_frames", None)
    shape = (frames, channels, height, width) if isinstance(frames, int) and frames > 1 else (channels, height, width)
    return torch.randn(batch_size, *shape)


def _features(config: Any, workload: Workload) -> tuple[int, int]:
    if workload.input_shape is not None:
        if len(workload.input_shape) != 2:
            raise BadInput("sound features have two extents, bins x frames, like 80x3000.")
        return workload.input_shape  # type: ignore[return-value]
    bins = getattr(config, "num_mel_bins", None) or getattr(config, "input_feat_per_channel", None) or 80
    positions = getattr(config, "max_source_positions", None)
    return int(bins), 2 * int(positions) if positions else 512
