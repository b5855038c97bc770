"""Public architectures for `bench onnx_exports`, made from small configurations: nothing is downloaded.

Weights are random; a model of a few layers has every kind of operator that its larger sisters have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["EXAMPLES", "Example", "Export"]


@dataclass(frozen=True)
class Export:
    """What an exporter is given."""

    module: Any
    inputs: tuple[Any, ...]
    """Of a batch of two."""
    names: tuple[str, ...]
    open: Mapping[str, Mapping[int, str]]
    """Input → axis → name of the open size."""


@dataclass(frozen=True)
class Example:
    build: Callable[[], Export]
    batches: tuple[int, ...] = (1, 4, 16)
    seq_len: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Open sizes for which `--seq-len` is not enough; a job file gives them by the shapes of its batch."""
    is_transformer: bool = False


def _image(model: Any, side: int = 224) -> Export:
    import torch

    return Export(model.eval(), (torch.zeros(2, 3, side, side),), ("image",), {"image": {0: "batch"}})


def _torchvision(name: str, side: int = 224, **options: Any) -> Example:
    def build() -> Export:
        import torchvision

        return _image(getattr(torchvision.models, name)(weights=None, **options), side)

    return Example(build)


def _timm(name: str, side: int = 224, **options: Any) -> Example:
    def build() -> Export:
        import timm

        return _image(timm.create_model(name, **options), side)

    return Example(build)


_TEXT = ("input_ids", "attention_mask")
_LENGTH = 48
_SMALL: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
_SMALL_VOCABULARY: dict[str, Any] = {"vocab_size": 1000, "max_position_embeddings": 256}
_DISTIL: dict[str, Any] = {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128}
_GPT2: dict[str, Any] = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, "vocab_size": 1000}
_T5: dict[str, Any] = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 1000}
_DECODER: dict[str, Any] = {**_SMALL, **_SMALL_VOCABULARY, "num_key_value_heads": 2}
_VIT: dict[str, Any] = {**_SMALL, "image_size": 96, "patch_size": 16}
_WHISPER: dict[str, Any] = {"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 128}
_WHISPER_SOUND: dict[str, Any] = {"num_mel_bins": 40, "max_source_positions": 100}


def _one_result(model: Any, names: tuple[str, ...]) -> Any:
    """A module that takes inputs by place and gives one tensor, as people export them."""
    import torch

    class OneResult(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            options = {"use_cache": False} if getattr(self.model.config, "use_cache", False) else {}
            return self.model(**dict(zip(names, inputs, strict=True)), **options)[0]

    return OneResult().eval()


def _transformer(
    model: str, config: str, names: tuple[str, ...] = _TEXT, shape: tuple[int, ...] = (_LENGTH,), **options: Any
) -> Example:
    """`shape` is that of one sample; a text's length is open."""
    is_text = names[0] == "input_ids"

    def build() -> Export:
        import torch
        import transformers

        library = transformers.models.whisper.modeling_whisper if model.startswith("Whisper") else transformers
        made = getattr(library, model)(getattr(transformers, config)(**options))
        kind = torch.int64 if is_text else torch.float32
        inputs = tuple(torch.ones((2, *shape), dtype=kind) for _ in names)
        axes = {0: "batch", 1: "sequence"} if is_text else {0: "batch"}
        return Export(_one_result(made, names), inputs, names, dict.fromkeys(names, axes))

    return Example(build, (1, 4, 16), _LENGTH if is_text else None, is_transformer=True)


def _with_past(model: str, config: str, heads: int, **options: Any) -> Example:
    """A step of generation: one token, a mask over all, and what is remembered of those before."""
    past, layers, width = 32, 2, 16

    def build() -> Export:
        import torch
        import transformers

        made = getattr(transformers, model)(getattr(transformers, config)(**options))

        class Step(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = made

            def forward(self, input_ids: Any, attention_mask: Any, *memory: Any) -> Any:
                pairs = list(zip(memory[::2], memory[1::2], strict=True))
                cache = transformers.DynamicCache(pairs)
                out = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache)
                kept = [part for layer in out.past_key_values.layers for part in (layer.keys, layer.values)]
                return out.logits, *kept

        memory = tuple(torch.zeros(2, heads, past, width) for _ in range(2 * layers))
        remembered = tuple(f"past_{part}_{layer}" for layer in range(layers) for part in ("key", "value"))
        return Export(
            Step().eval(),
            (torch.ones(2, 3, dtype=torch.int64), torch.ones(2, past + 3, dtype=torch.int64), *memory),
            (*_TEXT, *remembered),
            {
                "input_ids": {0: "batch", 1: "sequence"},
                "attention_mask": {0: "batch", 1: "past + sequence"},
                **{name: {0: "batch", 2: "past"} for name in remembered},
            },
        )

    return Example(build, (1, 4, 16), None, {"sequence": 2, "past": 40}, is_transformer=True)


EXAMPLES: Mapping[str, Example] = {
    "resnet18": _torchvision("resnet18"),
    "densenet121": _torchvision("densenet121"),
    "alexnet": _torchvision("alexnet"),
    "squeezenet1_1": _torchvision("squeezenet1_1"),
    "mobilenet_v3_small": _torchvision("mobilenet_v3_small"),
    "efficientnet_b0": _torchvision("efficientnet_b0"),
    "shufflenet_v2_x0_5": _torchvision("shufflenet_v2_x0_5"),
    "regnet_y_400mf": _torchvision("regnet_y_400mf"),
    "mnasnet0_5": _torchvision("mnasnet0_5"),
    "googlenet": _torchvision("googlenet", aux_logits=False, init_weights=False),
    "convnext_tiny": _torchvision("convnext_tiny"),
    "swin_t": _torchvision("swin_t"),
    "deit_tiny": _timm("deit_tiny_patch16_224"),
    "mixer_s32": _timm("mixer_s32_224"),
    "ghostnet_100": _timm("ghostnet_100"),
    "resnest14d": _timm("resnest14d"),
    "repvgg_a0": _timm("repvgg_a0"),
    "mobilevit_xxs": _timm("mobilevit_xxs", 256),
    "poolformer_s12": _timm("poolformer_s12"),
    "xcit_nano": _timm("xcit_nano_12_p16_224"),
    "bert": _transformer("BertModel", "BertConfig", **_SMALL, **_SMALL_VOCABULARY),
    "roberta": _transformer("RobertaModel", "RobertaConfig", **_SMALL, **_SMALL_VOCABULARY),
    "distilbert": _transformer("DistilBertModel", "DistilBertConfig", **_DISTIL, **_SMALL_VOCABULARY),
    "deberta_v2": _transformer("DebertaV2Model", "DebertaV2Config", **_SMALL, **_SMALL_VOCABULARY),
    "gpt2": _transformer("GPT2LMHeadModel", "GPT2Config", **_GPT2),
    "gpt2_with_past": _with_past("GPT2LMHeadModel", "GPT2Config", 4, **_GPT2),
    "t5_encoder": _transformer("T5EncoderModel", "T5Config", **_T5),
    "llama": _transformer("LlamaForCausalLM", "LlamaConfig", **_DECODER),
    "llama_with_past": _with_past("LlamaForCausalLM", "LlamaConfig", 2, **_DECODER),
    "qwen2": _transformer("Qwen2ForCausalLM", "Qwen2Config", **_DECODER),
    "vit": _transformer("ViTModel", "ViTConfig", ("pixel_values",), (3, 96, 96), **_VIT),
    "whisper_encoder": _transformer(
        "WhisperEncoder", "WhisperConfig", ("input_features",), (40, 200), **_WHISPER, **_WHISPER_SOUND
    ),
}  # fmt: skip
