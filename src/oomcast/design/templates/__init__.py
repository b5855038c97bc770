"""Classic networks whose layers and hyperparameters can be varied, held as data and rendered as source code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .._template import Template
from ._count import count_parameters
from ._network import Input, Layer, Network
from .lstm import LSTM
from .mlp import MLP
from .render import FRAMEWORKS, render
from .resnet import RESNET
from .transformer import TRANSFORMER
from .unet import UNET2D, UNET3D
from .vgg import VGG

__all__ = ["FRAMEWORKS", "TEMPLATES", "Input", "Layer", "Network", "count_parameters", "render"]

TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {template.name: template for template in (VGG, RESNET, MLP, UNET2D, UNET3D, TRANSFORMER, LSTM)}
)
