"""Classic networks whose layers and hyperparameters can be varied, held as data and rendered as source code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .convolutional import RESNET, UNET2D, UNET3D, VGG
from .dense import LSTM, MLP, TRANSFORMER
from .network import Input, Layer, Network, count_parameters
from .render import FRAMEWORKS, render
from .template import Parameter, Template, complete

__all__ = [
    "FRAMEWORKS",
    "TEMPLATES",
    "Input",
    "Layer",
    "Network",
    "Parameter",
    "Template",
    "complete",
    "count_parameters",
    "render",
]

TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {template.name: template for template in (VGG, RESNET, MLP, UNET2D, UNET3D, TRANSFORMER, LSTM)}
)
