"""What a model of transformers is fed: tokens, pixels, sound or a series, and labels where it computes its own loss.

Sizes come from the workload, else from the configuration. Tokens are ordinary words: no special one, and the same in
every run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from oomcast.errors import BadInput
from oomcast.spec import Workload

__all__ = ["make_batch"]

_DEFAULT_TOKENS = 512
_CTC_TOKENS = 16
_SAMPLES = 16_000
"""One second of sound."""
_PARTS = ("text_config", "decoder", "text_encoder", "decoder_config", "vision_config", "audio_config", "encoder",
          "encoder_config", "backbone_config")  # fmt: skip


def make_batch(config: Any, model_class: Any, workload: Workload) -> dict[str, Any]:
    """One batch, by the names that the model's forward takes."""
    takes = inspect.signature(model_class.forward).parameters
    main = model_class.main_input_name
    if main not in takes and "input_ids" in takes:
        main = "input_ids"
    sizes = _Sizes(config, workload)
    if main not in _INPUTS:
        raise BadInput(f"hf models with the input {main!r} need a job file with batch().")
    batch: dict[str, Any] = {main: _INPUTS[main](sizes)}
    wanted = {name for name, parameter in takes.items() if parameter.default is inspect.Parameter.empty}
    if "return_loss" in takes:
        # Two encoders, one loss between them: the other one's input is needed too.
        batch["return_loss"] = True
        wanted |= {"input_ids", "pixel_values", "input_features"}
    elif main == "input_ids" and _sees_by_itself(config):
        wanted.add("pixel_values")
    elif main != "inputs" and "decoder_input_ids" not in takes:
        wanted.add("input_ids")
    for name in sorted(wanted & takes.keys() & _INPUTS.keys() - batch.keys()):
        batch[name] = _INPUTS[name](sizes)
    if "attention_mask" in takes:
        if "input_ids" in batch:
            batch["attention_mask"] = torch.ones_like(batch["input_ids"])
        elif main == "input_features" and not _bins_first(sizes):
            batch["attention_mask"] = torch.ones(batch[main].shape[:2], dtype=torch.long)
    if "future_values" in takes:
        batch.update(_series(sizes, takes))
    if main == "input_ids" and workload.input_shape is not None and sizes.part("vision_config") is not None:
        batch.update(_with_images(sizes, takes, batch["input_ids"]))
    labels = _labels(model_class, sizes, batch) if "labels" in takes else None
    if labels is not None:
        batch["labels"] = labels
    if "start_positions" in takes and "QuestionAnswering" in model_class.__name__:
        where = torch.zeros(sizes.batch_size, dtype=torch.long)
        batch.update(start_positions=where, end_positions=where.clone())
    if "decoder_input_ids" in takes and labels is None:
        batch["decoder_input_ids"] = sizes.tokens(sizes.decoder_tokens)
    return batch


def _sees_by_itself(config: Any) -> bool:
    """Whether image and text go through one encoder. A language model with a vision tower also trains on text alone;
    its images stand behind special tokens, as many as its processor says."""
    return getattr(config, "image_size", None) is not None and getattr(config, "vision_config", None) is None


class _Sizes:
    """The sizes of a batch, looked up in the configuration and in its parts."""

    def __init__(self, config: Any, workload: Workload) -> None:
        self.config = config
        self.workload = workload
        self.batch_size = workload.batch_size

    def get(self, *names: str) -> Any:
        """The first of these settings that is there, in the configuration itself, then in its parts."""
        parts = [self.config, *(part for part in (getattr(self.config, p, None) for p in _PARTS) if part is not None)]
        for part in parts:
            for name in names:
                value = getattr(part, name, None)
                if value is not None:
                    return value
        return None

    def part(self, name: str) -> Any:
        """A configuration within the configuration; None where it has none."""
        return getattr(self.config, name, None)

    @property
    def vocabulary(self) -> int:
        found = self.get("vocab_size")
        return found if isinstance(found, int) and found > 0 else 1000

    def tokens(self, length: int | None = None, batch_size: int | None = None) -> torch.Tensor:
        """Ordinary tokens from the middle of the vocabulary, none that the configuration calls special."""
        length = length or self.text_tokens
        special = self._special()
        ordinary = [i for i in range(self.vocabulary // 4, self.vocabulary) if i not in special][:97] or [0]
        row = torch.tensor(ordinary).repeat(-(-length // len(ordinary)))[:length]
        return row.repeat(batch_size or self.batch_size, 1)

    def _special(self) -> set[int]:
        found: set[int] = set()
        for part in (self.config, *(getattr(self.config, name, None) for name in _PARTS)):
            for name, value in vars(part).items() if part is not None and hasattr(part, "__dict__") else ():
                if name.endswith(("_token_id", "_token_index", "_id")):
                    found.update([value] if isinstance(value, int) else value if isinstance(value, list) else [])
        return found

    @property
    def text_tokens(self) -> int:
        return self.workload.seq_len or self._bounded("max_position_embeddings", "n_positions")

    @property
    def decoder_tokens(self) -> int:
        return self.workload.seq_len or self._bounded("max_target_positions", "max_position_embeddings")

    def _bounded(self, *names: str) -> int:
        positions = self.get(*names)
        return min(positions, _DEFAULT_TOKENS) if isinstance(positions, int) and positions > 0 else _DEFAULT_TOKENS

    @property
    def image(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        given = self.workload.input_shape
        if given is not None:
            if len(given) != 3:
                raise BadInput("an image has three extents, channels x height x width, like 3x224x224.")
            return given[0], given[1], given[2]
        side = self.get("image_size", "img_size", "input_size") or 224
        if isinstance(side, dict):
            side = (side.get("height", 224), side.get("width", 224))
        height, width = (side[-2], side[-1]) if isinstance(side, (tuple, list)) else (side, side)
        channels = self.get("num_channels", "in_channels", "num_image_channels") or 3
        return int(channels) if isinstance(channels, int) else 3, int(height), int(width)


def _pixels(sizes: _Sizes) -> torch.Tensor:
    frames = sizes.get("num_frames", "frames_per_clip")
    video = (frames,) if isinstance(frames, int) and frames > 1 else ()
    return torch.randn(sizes.batch_size, *video, *sizes.image)


def _with_images(sizes: _Sizes, takes: Any, tokens: torch.Tensor) -> dict[str, Any]:
    """One image of `--input-shape` in every sample of a vision-language model: its pixels, and in the text as many of
    the model's image tokens as its encoder makes of them."""
    vision, token = sizes.part("vision_config"), sizes.get("image_token_id", "image_token_index")
    channels, height, width = sizes.image
    if not isinstance(token, int) or "pixel_values" not in takes:
        raise BadInput("this model says no image token, so its images need a job file with batch().")
    patch = getattr(vision, "patch_size", None) or 14
    rows, columns = height // patch, width // patch
    if "image_grid_thw" in takes:
        merge = getattr(vision, "spatial_merge_size", 2)
        rows, columns = rows - rows % merge, columns - columns % merge
        frames = getattr(vision, "temporal_patch_size", 2)
        count = rows * columns // merge**2
        images = {
            "pixel_values": torch.randn(sizes.batch_size * rows * columns, channels * frames * patch * patch),
            "image_grid_thw": torch.tensor([[1, rows, columns]] * sizes.batch_size),
        }
    else:
        count = sizes.get("mm_tokens_per_image") or rows * columns
        images = {"pixel_values": torch.randn(sizes.batch_size, channels, height, width)}
    if count >= tokens.shape[1]:
        raise BadInput(f"an image of {height}x{width} takes {count} tokens; give a --seq-len above that.")
    tokens = tokens.clone()
    tokens[:, 1 : 1 + count] = token
    kinds = (tokens == token).long()
    named = {name: kinds for name in ("mm_token_type_ids", "token_type_ids") if name in takes}
    return {**images, **named, "input_ids": tokens}


def _features(sizes: _Sizes) -> torch.Tensor:
    """Spectra. Whisper and its kin take bins x frames, the others frames x bins."""
    given = sizes.workload.input_shape
    if given is not None:
        if len(given) != 2:
            raise BadInput("sound features have two extents, like 80x3000 (bins x frames).")
        return torch.randn(sizes.batch_size, *given)
    bins = sizes.get(*_FRAMES_FIRST, "num_mel_bins") or 80
    positions = sizes.get("max_source_positions")
    if _bins_first(sizes):
        return torch.randn(sizes.batch_size, bins, 2 * positions)
    return torch.randn(sizes.batch_size, min(positions or _DEFAULT_TOKENS, 2 * _DEFAULT_TOKENS), bins)


_FRAMES_FIRST = ("input_feat_per_channel", "feature_projection_input_dim")


def _bins_first(sizes: _Sizes) -> bool:
    return sizes.get(*_FRAMES_FIRST) is None and bool(sizes.get("max_source_positions"))


def _waveform(sizes: _Sizes) -> torch.Tensor:
    """Sound as it is; an audio spectrogram transformer calls its spectra so too."""
    bins, frames = sizes.get("num_mel_bins"), getattr(sizes.config, "max_length", None)
    if isinstance(bins, int) and isinstance(frames, int) and sizes.get("frequency_stride"):
        return torch.randn(sizes.batch_size, frames, bins)
    channels = sizes.get("audio_channels")
    samples = sizes.workload.seq_len or _SAMPLES
    return torch.randn(sizes.batch_size, *((channels,) if isinstance(channels, int) else ()), samples)


def _past(sizes: _Sizes) -> torch.Tensor:
    length = (sizes.get("context_length") or 32) + max(sizes.get("lags_sequence") or [0])
    channels = sizes.get("num_input_channels")
    if channels is None and (sizes.get("input_size") or 1) > 1:
        channels = sizes.get("input_size")
    return torch.randn(sizes.batch_size, length, *((channels,) if channels else ()))


def _series(sizes: _Sizes, takes: Any) -> dict[str, torch.Tensor]:
    """A series' past has features of its time, and its future is what is learned."""
    past = _past(sizes)
    horizon = sizes.get("prediction_length") or 8
    batch = {"future_values": torch.randn(sizes.batch_size, horizon, *past.shape[2:])}
    if "past_time_features" in takes:
        features = sizes.get("num_time_features") or 0
        batch["past_time_features"] = torch.randn(*past.shape[:2], features)
        batch["future_time_features"] = torch.randn(sizes.batch_size, horizon, features)
        batch["past_observed_mask"] = torch.ones_like(past)
    return batch


_INPUTS: dict[str, Callable[[_Sizes], torch.Tensor]] = {
    "input_ids": lambda sizes: sizes.tokens(),
    "inputs": lambda sizes: sizes.tokens(),
    "pixel_values": _pixels,
    "pixel_values_videos": _pixels,
    "input_features": _features,
    "input_values": _waveform,
    "past_values": _past,
}


def _labels(model_class: Any, sizes: _Sizes, batch: dict[str, Any]) -> Any:
    """Labels of the kind that the head learns from; None for heads whose labels have a form of their own."""
    kind = model_class.__name__
    if "Classification" in kind and "Token" not in kind:
        return torch.zeros(sizes.batch_size, dtype=torch.long)
    if "SemanticSegmentation" in kind:
        return torch.zeros(sizes.batch_size, *batch["pixel_values"].shape[-2:], dtype=torch.long)
    if "CTC" in kind:
        return sizes.tokens(_CTC_TOKENS)
    if any(word in kind for word in ("Detection", "Segmentation", "Depth", "Masked", "PreTraining")) and (
        "input_ids" not in batch
    ):
        return None
    if "input_ids" in batch:
        return batch["input_ids"].clone()
    return sizes.tokens(sizes.decoder_tokens)
