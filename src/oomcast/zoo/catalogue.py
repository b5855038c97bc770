"""The zoo's models as data, found by name, and what a loaded one offers. Nothing here imports a framework.

A name may be written with `-`, `_` or `.`, in any case: `MobileNet-V2` is `mobilenet_v2`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..errors import UnknownName

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["MODELS", "Job", "Task", "ZooModel", "find", "names"]

Task = Literal[
    "image-classification",
    "causal-lm",
    "masked-lm",
    "text-classification",
    "segmentation",
    "volume-segmentation",
    "tabular",
]


class Job(Protocol):
    """The functions of a job file. There is no `optimizer`: the default applies."""

    def model(self) -> nn.Module:
        """A new model: fp32, in training mode, on the default device."""

    def batch(
        self, batch_size: int, input_shape: tuple[int, ...] | None = None, seq_len: int | None = None
    ) -> tuple[Tensor, Tensor] | dict[str, Tensor]:
        """One batch on the CPU; `BadInput` if the model cannot train on what is asked for."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The scalar to call `backward()` on, for a batch that is on the model's device."""


@dataclass(frozen=True)
class ZooModel:
    """A named model. `default_input` is the shape of one sample without the batch, or a number of tokens for text.

    `module` and `builder` name the function that makes the job; it is imported only by `load`.
    """

    name: str
    summary: str
    task: Task
    default_input: tuple[int, ...] | int
    default_batch_size: int
    citation: str
    module: str
    builder: str

    def load(self) -> Job:
        """The job of this model. Imports torch; builds nothing yet."""
        build: Callable[[ZooModel], Job] = getattr(importlib.import_module(self.module), self.builder)
        return build(self)


_IMAGE = (3, 224, 224)


def _family(
    module: str,
    citation: str,
    task: Task,
    default_input: tuple[int, ...] | int,
    default_batch_size: int,
    members: dict[str, str],
) -> Iterator[ZooModel]:
    """One entry for each name → summary; the builder is the name as a Python identifier."""
    for name, summary in members.items():
        builder = name.replace("-", "_").replace(".", "_")
        yield ZooModel(
            name, summary, task, default_input, default_batch_size, citation, f"oomcast.zoo.{module}", builder
        )


_BERT = "Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers, NAACL 2019, arXiv:1810.04805"
_LLAMA_2 = "Touvron et al., Llama 2: Open Foundation and Fine-Tuned Chat Models, 2023, arXiv:2307.09288"
_LLAMA_3 = "Grattafiori et al., The Llama 3 Herd of Models, 2024, arXiv:2407.21783"
_LLAMA_3_2 = "Meta AI, Llama 3.2 model card, 2024; architecture of The Llama 3 Herd of Models, arXiv:2407.21783"

MODELS: tuple[ZooModel, ...] = (
    *_family(
        "vgg",
        "Simonyan and Zisserman, Very Deep Convolutional Networks, ICLR 2015, arXiv:1409.1556",
        "image-classification",
        _IMAGE,
        32,
        {
            "vgg11": "VGG configuration A: 8 convolutions, 3 linear layers",
            "vgg11_bn": "VGG configuration A with batch norm after each convolution",
            "vgg13": "VGG configuration B: 10 convolutions, 3 linear layers",
            "vgg13_bn": "VGG configuration B with batch norm after each convolution",
            "vgg16": "VGG configuration D: 13 convolutions, 3 linear layers",
            "vgg16_bn": "VGG configuration D with batch norm after each convolution",
            "vgg19": "VGG configuration E: 16 convolutions, 3 linear layers",
            "vgg19_bn": "VGG configuration E with batch norm after each convolution",
        },
    ),
    *_family(
        "resnet",
        "He et al., Deep Residual Learning for Image Recognition, CVPR 2016, arXiv:1512.03385",
        "image-classification",
        _IMAGE,
        32,
        {
            "resnet18": "residual network, basic blocks 2-2-2-2",
            "resnet34": "residual network, basic blocks 3-4-6-3",
            "resnet50": "residual network, bottleneck blocks 3-4-6-3, stride on the 3x3 convolution",
            "resnet101": "residual network, bottleneck blocks 3-4-23-3, stride on the 3x3 convolution",
            "resnet152": "residual network, bottleneck blocks 3-8-36-3, stride on the 3x3 convolution",
        },
    ),
    *_family(
        "inception",
        "Szegedy et al., Rethinking the Inception Architecture, CVPR 2016, arXiv:1512.00567",
        "image-classification",
        (3, 299, 299),
        32,
        {"inception_v3": "Inception v3 with its auxiliary head, whose loss counts 0.4"},
    ),
    *_family(
        "mobilenet",
        "Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, CVPR 2018, arXiv:1801.04381",
        "image-classification",
        _IMAGE,
        64,
        {"mobilenet_v2": "inverted residuals with depthwise convolutions, width 1.0"},
    ),
    *_family(
        "efficientnet",
        "Tan and Le, EfficientNet: Rethinking Model Scaling, ICML 2019, arXiv:1905.11946",
        "image-classification",
        _IMAGE,
        64,
        {"efficientnet_b0": "inverted residuals with squeeze-and-excitation, SiLU and stochastic depth"},
    ),
    *_family(
        "vit",
        "Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021, arXiv:2010.11929",
        "image-classification",
        _IMAGE,
        32,
        {
            "vit_t_16": "vision transformer tiny, patches of 16 (sizes of Touvron et al., DeiT, arXiv:2012.12877)",
            "vit_s_16": "vision transformer small, patches of 16 (sizes of Touvron et al., DeiT, arXiv:2012.12877)",
            "vit_b_16": "vision transformer base, patches of 16",
            "vit_l_16": "vision transformer large, patches of 16",
        },
    ),
    *_family(
        "unet",
        "Ronneberger et al., U-Net: Convolutional Networks for Biomedical Image Segmentation, arXiv:1505.04597",
        "segmentation",
        (3, 512, 512),
        4,
        {"unet2d": "2D U-Net, 64 to 1024 filters, padded convolutions with batch norm, 2 classes"},
    ),
    *_family(
        "unet",
        "Çiçek et al., 3D U-Net, MICCAI 2016, arXiv:1606.06650; sizes of the Dell white paper on symbolic regression",
        "volume-segmentation",
        (1, 128, 128, 128),
        4,
        {"unet3d": "3D U-Net of the Dell white paper, 16 to 256 filters, batch norm, 1 class"},
    ),
    *_family(
        "mlp_and_lstm",
        "Rumelhart et al., Learning representations by back-propagating errors, Nature 1986",
        "tabular",
        (784,),
        128,
        {"mlp": "multilayer perceptron 784-2048-2048-2048-10 with ReLU"},
    ),
    *_family(
        "bert",
        _BERT,
        "text-classification",
        512,
        8,
        {
            "bert-base": "BERT base with a classifier for 2 classes on the pooled first token",
            "bert-large": "BERT large with a classifier for 2 classes on the pooled first token",
        },
    ),
    *_family(
        "bert",
        _BERT,
        "masked-lm",
        512,
        8,
        {
            "bert-base-mlm": "BERT base with the masked-language-model head, tied to the embeddings",
            "bert-large-mlm": "BERT large with the masked-language-model head, tied to the embeddings",
        },
    ),
    *_family(
        "gpt2",
        "Radford et al., Language Models are Unsupervised Multitask Learners, OpenAI 2019",
        "causal-lm",
        1024,
        4,
        {
            "gpt2": "GPT-2 small: 12 layers of width 768",
            "gpt2-medium": "GPT-2 medium: 24 layers of width 1024",
            "gpt2-large": "GPT-2 large: 36 layers of width 1280",
            "gpt2-xl": "GPT-2 XL: 48 layers of width 1600",
        },
    ),
    *_family(
        "llama",
        _LLAMA_3_2,
        "causal-lm",
        8192,
        1,
        {"llama-3.2-1b": "Llama 3.2 1B: 16 layers of width 2048, 8 key-value heads, tied head"},
    ),
    *_family(
        "llama",
        _LLAMA_2,
        "causal-lm",
        4096,
        1,
        {"llama-2-7b": "Llama 2 7B: 32 layers of width 4096"},
    ),
    *_family(
        "llama",
        _LLAMA_3,
        "causal-lm",
        8192,
        1,
        {"llama-3-8b": "Llama 3 8B: 32 layers of width 4096, 8 key-value heads, 128,256 tokens"},
    ),
    *_family(
        "llama",
        _LLAMA_2,
        "causal-lm",
        4096,
        1,
        {
            "llama-2-13b": "Llama 2 13B: 40 layers of width 5120",
            "llama-2-70b": "Llama 2 70B: 80 layers of width 8192, 8 key-value heads",
        },
    ),
    *_family(
        "llama",
        _LLAMA_3,
        "causal-lm",
        8192,
        1,
        {"llama-3-70b": "Llama 3 70B: 80 layers of width 8192, 8 key-value heads, 128,256 tokens"},
    ),
    *_family(
        "mlp_and_lstm",
        "Zaremba et al., Recurrent Neural Network Regularization, 2014, arXiv:1409.2329",
        "causal-lm",
        35,
        20,
        {"lstm-lm": "LSTM language model, the paper's large one: 2 layers of 1500 units, 10,000 words"},
    ),
)


def names() -> tuple[str, ...]:
    """Every model of the zoo, family by family, small to large."""
    return tuple(model.name for model in MODELS)


def find(name: str) -> ZooModel:
    """The model of that name; `UnknownName` with the nearest names if there is none."""
    wanted = _plain(name)
    for model in MODELS:
        if _plain(model.name) == wanted:
            return model
    raise UnknownName("zoo model", name, names())


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
