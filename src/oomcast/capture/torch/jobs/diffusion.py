"""Diffusion models of diffusers: the denoiser is trained; the autoencoder and the text encoders stand frozen beside it
on the GPU, or what they give was computed before.

The step is the one of diffusers' own training scripts (examples/text_to_image, examples/dreambooth): images become
latents and captions become embeddings without gradients, noise is added, and the denoiser learns to tell it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oomcast import zoo
from oomcast.errors import BadInput, UnknownName, UnreadableFile
from oomcast.spec import Adapter, JobPhase, Precision, Workload

from .loaded import LoadedJob
from .loading import is_loaded_to_gpu, load_to_gpu
from .quantised import DTYPES
from .tuned import tune_model
from .vision import import_library

__all__ = ["load_diffusers"]

_SHRINKS = 8
"""Pixels of an image for one of a latent, in height and width, for the autoencoders of four stages."""
_ATTENTION = "to_k+to_q+to_v+to_out.0"
"""What diffusers' scripts put LoRA beside."""


@dataclass(frozen=True)
class _Text:
    """What the denoiser knows of the captions."""

    sequence: torch.Tensor
    pooled: torch.Tensor | None = None


@dataclass(frozen=True)
class _Kind:
    """What differs between the classes of denoisers."""

    denoise: Callable[[Any, Any, torch.Tensor, torch.Tensor, _Text], torch.Tensor]
    """From the model, its configuration, noisy latents, times and captions: what it takes for the noise."""
    read: Callable[[list[Any]], _Text]
    """What the text encoders' outputs are made into."""
    width: str
    """The key of its configuration that tells the width of the captions' embeddings."""
    tokens: int
    """Of a caption, where nothing tells it."""
    pooled_width: Callable[[Any], int | None]
    channels: Callable[[Any], int] = lambda config: int(config["in_channels"])
    """Of the latents."""


# -------- The classes of denoisers


def _unet(model: Any, config: Any, noisy: torch.Tensor, times: torch.Tensor, text: _Text) -> torch.Tensor:
    conditions = {}
    if text.pooled is not None:
        sizes = noisy.new_zeros(noisy.shape[0], 6)  # the image's size, how it was cropped, the size asked for
        conditions["added_cond_kwargs"] = {"text_embeds": text.pooled, "time_ids": sizes}
    predicted: torch.Tensor = model(noisy, times, text.sequence, **conditions, return_dict=False)[0]
    return predicted


def _sd3(model: Any, config: Any, noisy: torch.Tensor, times: torch.Tensor, text: _Text) -> torch.Tensor:
    predicted: torch.Tensor = model(
        hidden_states=noisy,
        timestep=times,
        encoder_hidden_states=text.sequence,
        pooled_projections=text.pooled,
        return_dict=False,
    )[0]
    return predicted


def _flux(model: Any, config: Any, noisy: torch.Tensor, times: torch.Tensor, text: _Text) -> torch.Tensor:
    """Squares of two by two become one place of a sequence, and are laid out again at the end."""
    rows, channels, height, width = noisy.shape
    squares = noisy.view(rows, channels, height // 2, 2, width // 2, 2).permute(0, 2, 4, 1, 3, 5)
    packed = squares.reshape(rows, height * width // 4, channels * 4)
    places = noisy.new_zeros(height * width // 4, 3)
    guidance = noisy.new_ones(rows) if config.get("guidance_embeds") else None
    predicted = model(
        hidden_states=packed,
        timestep=times / 1000,
        guidance=guidance,
        pooled_projections=text.pooled,
        encoder_hidden_states=text.sequence,
        txt_ids=noisy.new_zeros(text.sequence.shape[1], 3),
        img_ids=places,
        return_dict=False,
    )[0]
    laid_out = predicted.view(rows, height // 2, width // 2, channels, 2, 2).permute(0, 3, 1, 4, 2, 5)
    whole: torch.Tensor = laid_out.reshape(rows, channels, height, width)
    return whole


def _pixart(model: Any, config: Any, noisy: torch.Tensor, times: torch.Tensor, text: _Text) -> torch.Tensor:
    predicted = model(
        noisy,
        encoder_hidden_states=text.sequence,
        timestep=times,
        added_cond_kwargs={"resolution": None, "aspect_ratio": None},
        return_dict=False,
    )[0]
    noise: torch.Tensor = predicted.chunk(2, dim=1)[0]  # the other half is how sure it is
    return noise


def _last_state(outputs: list[Any]) -> _Text:
    return _Text(outputs[0].last_hidden_state)


def _of_two_clips(outputs: list[Any]) -> _Text:
    """Of one encoder its last state; of SDXL's two the states before the last, side by side."""
    if len(outputs) == 1:
        return _last_state(outputs)
    return _Text(torch.cat([output.hidden_states[-2] for output in outputs], dim=-1), outputs[-1].text_embeds)


def _of_clips_and_t5(outputs: list[Any]) -> _Text:
    *clips, t5 = outputs
    beside = torch.cat([clip.hidden_states[-2] for clip in clips], dim=-1)
    long = t5.last_hidden_state
    beside = F.pad(beside, (0, long.shape[-1] - beside.shape[-1]))
    return _Text(torch.cat([beside, long], dim=-2), torch.cat([clip.text_embeds for clip in clips], dim=-1))


def _of_clip_and_t5(outputs: list[Any]) -> _Text:
    return _Text(outputs[1].last_hidden_state, outputs[0].pooler_output)


def _unet_pooled(config: Any) -> int | None:
    if config.get("addition_embed_type") != "text_time":
        return None
    return int(config["projection_class_embeddings_input_dim"]) - 6 * int(config["addition_time_embed_dim"])


_KINDS = {
    "UNet2DConditionModel": _Kind(_unet, _of_two_clips, "cross_attention_dim", 77, _unet_pooled),
    "SD3Transformer2DModel": _Kind(
        _sd3, _of_clips_and_t5, "joint_attention_dim", 154, lambda config: int(config["pooled_projection_dim"])
    ),
    "FluxTransformer2DModel": _Kind(
        _flux,
        _of_clip_and_t5,
        "joint_attention_dim",
        512,
        lambda config: int(config["pooled_projection_dim"]),
        channels=lambda config: int(config["in_channels"]) // 4,
    ),
    "PixArtTransformer2DModel": _Kind(_pixart, _last_state, "caption_channels", 300, lambda config: None),
}


# -------- The job


def load_diffusers(name: str, workload: Workload) -> LoadedJob:
    """The job of a public diffusion model, or of a denoiser's own `config.json`."""
    if workload.phase is not JobPhase.TRAINING:
        raise BadInput("diffusers:NAME is trained; for its other phases give a script to oomcast run.")
    diffusers = import_library("diffusers")
    pipeline, denoiser = _described(name)
    class_name = str(denoiser["_class_name"])
    if class_name not in _KINDS:
        raise UnknownName(
            "class of denoisers", class_name, _KINDS, "Others are trained by a job file or a script of yours."
        )
    config = _configuration(getattr(diffusers, class_name), denoiser)
    step = _Step(_KINDS[class_name], config, pipeline, workload)
    workload = _as_the_scripts_tune(workload)

    def model() -> nn.Module:
        built: nn.Module = getattr(diffusers, class_name).from_config(config)
        return built.to(DTYPES[workload.weights or "fp32"])

    return LoadedJob(
        model,
        step.batch,
        step.loss,
        frozen=step.frozen if step.encodes is not None or step.reads is not None else None,
        load=(lambda built: load_to_gpu(built, workload, model)) if is_loaded_to_gpu(workload) else None,
        tune=lambda built: tune_model(built, workload),
        assumptions=(*step.told(), *_about_adapter(workload)),
    )


def _described(name: str) -> tuple[zoo.DiffusionModel | None, Mapping[str, Any]]:
    path = Path(name)
    if path.suffix != ".json":
        found = zoo.find_diffusion_model(name)
        if found is None:
            names = [one for model in zoo.diffusion_models() for one in model.names]
            hint = (
                "Nothing is fetched from the network: save the config.json of its unet or transformer, give its path."
            )
            raise UnknownName("diffusion model", name, names, hint)
        return found, found.denoiser
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} is not a JSON configuration of diffusers: {error}.") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("_class_name"), str):
        raise UnreadableFile(f"{path} has no _class_name; it is not a configuration of diffusers.")
    return None, plain


def _configuration(model_class: Any, denoiser: Mapping[str, Any]) -> Any:
    """With the defaults of the installed diffusers for what the configuration leaves open."""
    try:
        with torch.device("meta"):
            return model_class.from_config(dict(denoiser)).config
    except Exception as error:  # its checks raise anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise BadInput(f"diffusers rejects the configuration of {model_class.__name__}: {reason}.") from None


def _as_the_scripts_tune(workload: Workload) -> Workload:
    """LoRA beside the attention's layers unless it says where; in the type of the weights, but for fp16."""
    adapter = workload.adapter
    if adapter is None:
        return workload
    if "target_modules" not in adapter.settings and adapter.kind == "lora":
        adapter = Adapter.create(adapter.kind, **adapter.settings, target_modules=_ATTENTION.split("+"))
    trained = workload.trained_weights or ("bf16" if workload.weights == "bf16" else None)
    return dataclasses.replace(workload, adapter=adapter, trained_weights=trained)


def _about_adapter(workload: Workload) -> tuple[str, ...]:
    if workload.adapter is None:
        return ()
    return (f"the adapter is {workload.adapter}, trained in {workload.trained_weights or 'fp32'}",)


class _Step:
    """Batches and the loss of one job; and the parts that are not trained."""

    def __init__(self, kind: _Kind, config: Any, pipeline: zoo.DiffusionModel | None, workload: Workload) -> None:
        self.kind, self.config, self.pipeline = kind, config, pipeline
        self.rows = workload.batch_size
        before = set(workload.precomputed)
        self.encodes = pipeline if pipeline is not None and "latents" not in before else None
        self.reads = pipeline if pipeline is not None and "text" not in before else None
        self.dtype = _working_type(workload)
        self.height, self.width = _image_size(workload, pipeline, config)
        self.tokens = self._tokens(workload.seq_len)
        self.autoencoder: Any = None
        self.encoders: list[Any] = []

    def _tokens(self, seq_len: int | None) -> list[int]:
        """Of each text encoder. T5 alone reads captions of any length."""
        if self.pipeline is None:
            return [seq_len or self.kind.tokens]
        encoders = self.pipeline.text_encoders
        lengths = [
            seq_len if seq_len is not None and encoder.facts["model_type"] == "t5" else encoder.tokens
            for encoder in encoders
        ]
        if seq_len is not None and not any(encoder.facts["model_type"] == "t5" for encoder in encoders):
            raise BadInput(
                f"--seq-len: the captions of {self.pipeline.family} always have {encoders[0].tokens} tokens."
            )
        return lengths

    def told(self) -> tuple[str, ...]:
        images = f"images of {self.height} x {self.width}"
        if self.pipeline is None:
            return (f"{images}; the configuration is the denoiser's alone: latents and captions were encoded before",)
        parts = [
            "the autoencoder stands frozen on the GPU" if self.encodes else "latents were computed before",
            "the text encoders stand frozen on the GPU" if self.reads else "captions' embeddings were computed before",
        ]
        return (f"{images}; {', '.join(parts)}",)

    # -------- What is not trained

    def frozen(self) -> Iterator[nn.Module]:
        if self.encodes is not None:
            facts = dict(self.encodes.autoencoder)
            made = getattr(import_library("diffusers"), facts.pop("_class_name")).from_config(facts)
            kept = torch.float32 if self.encodes.autoencoder_in_fp32 else self.dtype
            self.autoencoder = _frozen(made, kept)
            yield self.autoencoder
        self.encoders = []
        if self.reads is not None:
            for encoder in self.reads.text_encoders:
                self.encoders.append(_frozen(_text_encoder(encoder.facts), self.dtype))
                yield self.encoders[-1]

    def _latents(self, images: torch.Tensor) -> torch.Tensor:
        with _outside_of_autocast():
            encoded = self.autoencoder.encode(images.to(self.autoencoder.dtype)).latent_dist.sample()
            return (encoded * self.autoencoder.config.scaling_factor).to(self.dtype)

    def _text(self, batch: dict[str, torch.Tensor]) -> _Text:
        if self.reads is None:
            return _Text(batch["text"], batch.get("pooled"))
        with _outside_of_autocast():
            outputs = [
                encoder(batch[f"captions_{number}"], output_hidden_states=True)
                for number, encoder in enumerate(self.encoders)
            ]
            return self.kind.read(outputs)

    # -------- What is trained

    def batch(self) -> dict[str, torch.Tensor]:
        tensors = {}
        if self.encodes is not None:
            tensors["images"] = torch.randn(self.rows, 3, self.height, self.width)
        else:
            latent = (self.kind.channels(self.config), self.height // _SHRINKS, self.width // _SHRINKS)
            tensors["latents"] = torch.randn(self.rows, *latent, dtype=self.dtype)
        if self.reads is not None:
            for number, tokens in enumerate(self.tokens):
                tensors[f"captions_{number}"] = torch.ones(self.rows, tokens, dtype=torch.long)
            return tensors
        tensors["text"] = torch.randn(self.rows, self._embedded_tokens(), self._text_width(), dtype=self.dtype)
        pooled = self.kind.pooled_width(self.config)
        if pooled is not None:
            tensors["pooled"] = torch.randn(self.rows, pooled, dtype=self.dtype)
        return tensors

    def _text_width(self) -> int:
        return int(self.config[self.kind.width])

    def _embedded_tokens(self) -> int:
        """SD3's captions stand one after the other, read by two encoders together and by the third."""
        if self.kind.read is _of_clips_and_t5 and len(self.tokens) == 3:
            return self.tokens[0] + self.tokens[2]
        return self.tokens[-1]

    def loss(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        latents = batch["latents"] if self.encodes is None else self._latents(batch["images"])
        noise = torch.randn_like(latents)
        times = torch.randint(0, 1000, (latents.shape[0],), device=latents.device)
        mixed = torch.rand(latents.shape[0], 1, 1, 1, device=latents.device, dtype=latents.dtype)
        noisy = (1 - mixed) * latents + mixed * noise
        predicted = self.kind.denoise(model, self.config, noisy, times, self._text(batch))
        return F.mse_loss(predicted.float(), noise.float())


@contextlib.contextmanager
def _outside_of_autocast() -> Iterator[None]:
    """Frozen parts are run in their own type: accelerate casts in the forward of what is trained alone."""
    with torch.no_grad(), torch.autocast("cuda", enabled=False):
        yield


def _working_type(workload: Workload) -> torch.dtype:
    """What the frozen parts and the latents are in: diffusers' weight_dtype."""
    by_precision = {
        Precision.AMP_BF16: torch.bfloat16,
        Precision.AMP_FP16: torch.float16,
        Precision.BF16: torch.bfloat16,
    }
    if workload.precision in by_precision:
        return by_precision[workload.precision]
    return DTYPES[workload.weights or "fp32"]


def _image_size(workload: Workload, pipeline: zoo.DiffusionModel | None, config: Any) -> tuple[int, int]:
    if workload.input_shape is None:
        side = pipeline.image if pipeline is not None else _SHRINKS * int(config.get("sample_size") or 128)
        return side, side
    if len(workload.input_shape) != 3 or workload.input_shape[0] != 3:
        raise BadInput("--input-shape is the image's: 3 x height x width, like 3x1024x1024.")
    height, width = workload.input_shape[1:]
    if height % 64 or width % 64:
        raise BadInput(f"an image of {height} x {width} does not fit the network's halvings; give multiples of 64.")
    return height, width


def _frozen(model: Any, dtype: torch.dtype) -> Any:
    return model.to(dtype).to("cuda").eval().requires_grad_(False)


def _text_encoder(facts: Mapping[str, Any]) -> nn.Module:
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers = import_library("transformers")
    config = transformers.CONFIG_MAPPING[facts["model_type"]].from_dict(dict(facts))
    made: nn.Module = getattr(transformers, facts.get("architectures", ["CLIPTextModel"])[0])._from_config(config)
    return made
