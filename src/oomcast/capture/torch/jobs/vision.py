"""Models of timm and torchvision by name, without weights, on images of the size they were made for."""

from __future__ import annotations

import importlib
import inspect
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from oomcast.errors import BadInput, UnknownName
from oomcast.spec import Workload

from ..vision_operators import prepare_torchvision
from .loaded import LoadedJob

__all__ = ["import_library", "load_timm", "load_torchvision"]


def import_library(name: str) -> Any:
    """Import a library, or say which extra brings it."""
    try:
        prepare_torchvision()
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in (name, "torchvision"):
            raise
        extra = {"transformers": "hf"}.get(name, name)
        raise BadInput(f"{name} is not installed; install it with: pip install 'oomcast[{extra}]'") from None


def load_timm(name: str, workload: Workload) -> LoadedJob:
    _refuse_seq_len(workload)
    timm = import_library("timm")
    if not timm.is_model(name.partition(".")[0]):
        raise UnknownName("timm model", name, timm.list_models())
    configuration = timm.get_pretrained_cfg(name, allow_unregistered=True) if "." in name else None
    configuration = configuration or timm.models.get_pretrained_cfg(name)
    shape = workload.input_shape or tuple(configuration.input_size if configuration else (3, 224, 224))
    options: dict[str, Any] = {}
    if workload.input_shape is not None:
        options["in_chans"] = shape[0]
        entry = timm.models.model_entrypoint(name)
        if "img_size" in inspect.getsource(inspect.getmodule(entry) or entry):
            options["img_size"] = shape[1:]

    def model() -> torch.nn.Module:
        try:
            return timm.create_model(name, pretrained=False, **options)
        except TypeError:
            return timm.create_model(name, pretrained=False, **{k: v for k, v in options.items() if k != "img_size"})

    return LoadedJob(model, partial(_images, workload.batch_size, _image_shape(shape)), _timm_loss)


def _timm_loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    """As timm's own training does, the first of several heads counts. Encoders without classes give features."""
    images, labels = batch
    output = model(images)
    scores = output[0] if isinstance(output, (tuple, list)) else output
    return F.cross_entropy(scores, labels) if scores.dim() == 2 else scores.float().mean()


def load_torchvision(name: str, workload: Workload) -> LoadedJob:
    _refuse_seq_len(workload)
    torchvision = import_library("torchvision")
    known = torchvision.models.list_models()
    if name not in known:
        raise UnknownName("torchvision model", name, known)
    if name not in torchvision.models.list_models(module=torchvision.models):
        raise BadInput(f"torchvision:{name} needs targets of its own; write a job file with batch() and loss() for it.")
    side = 299 if name.startswith("inception") else 224
    shape = _image_shape(workload.input_shape or (3, side, side))

    def model() -> torch.nn.Module:
        plain = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
        return torchvision.models.get_model(name, weights=None, **plain)

    return LoadedJob(model, partial(_images, workload.batch_size, shape), _torchvision_loss)


def _torchvision_loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    """As torchvision's own training does, auxiliary heads count 0.4 and 0.3."""
    images, labels = batch
    output = model(images)
    if isinstance(output, torch.Tensor):
        return F.cross_entropy(output, labels)
    weight = 0.4 if len(output) == 2 else 0.3
    loss = F.cross_entropy(output[0], labels)
    for auxiliary in output[1:]:
        if auxiliary is not None:
            loss = loss + weight * F.cross_entropy(auxiliary, labels)
    return loss


def _images(batch_size: int, shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch_size, *shape), torch.randint(0, 10, (batch_size,))


def _image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) != 3:
        raise BadInput(f"an image has three extents, channels x height x width, not {'x'.join(map(str, shape))}.")
    return shape


def _refuse_seq_len(workload: Workload) -> None:
    if workload.seq_len is not None:
        raise BadInput("--seq-len is for text; an image model takes --input-shape, like 3x224x224.")
