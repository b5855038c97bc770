"""`python -m lab bench unseen`: the well-known CNNs that GPUMemNet was shown on, by every estimator, as bars.

    python -m lab bench unseen [--picture FILE.svg] [--json]

Measured figures and those of GPUMemNet, Horus and FakeTensor are GPUMemNet's own (itu-rad/GPUMemNet, commit f01eb05,
Results_plotter_for_paper/data.csv; A100-40GB, 2024, Adam, fp32). Beside them:

- Horus as GPUMemNet ran it: 4 [(A·B + P) + B·P] bytes and 800 MiB, where A counts what every convolution, batch norm,
  activation, linear and dropout layer puts out, in place or not, and no pooling. Its published figures at two batch
  sizes of one model give the constant and A; both come out as here.
- FakeTensor as GPUMemNet ran it (`fake_tensor`).
- Our replicas of its classifiers, as they ship, on two readings of the layers. GPUMemNet reads the modules
  (torchsummary); we read the Trace, where an activation in place (torchvision's ReLU) is known by its gradient alone.
  Both must agree.
- The simulator.

An estimate by class is the class's upper edge, which is why it is seldom too low; where it is, the class is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oomcast.capture import capture
from oomcast.capture.torch.jobs.vision import import_library
from oomcast.estimation import Target, estimate_trace
from oomcast.methods.gpumemnet import LayerFeatures, layer_features, load_artifact
from oomcast.methods.gpumemnet.classes import classes_of
from oomcast.methods.gpumemnet.estimators import GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER
from oomcast.methods.gpumemnet.features import Layer, layer_features_of_layers
from oomcast.spec import Spec
from oomcast.units import MiB

from ..training.pictures import groups_picture
from .fake_tensor import fake_tensor_as_run
from .report import Bar, Outcome, print_outcome

__all__ = ["ROWS", "Published", "Unseen", "horus_as_run", "module_features"]

HORUS_CONSTANT = 800 * MiB
_FLOAT = 4
_DEVICE, _STACK = "a100-40gb", "torch-2.4-cu121-eager"
_KINDS = {"Conv2d": "convolution", "BatchNorm2d": "batch_norm", "Linear": "linear", "Dropout": "dropout"}
_FUNCTIONS = {"ReLU": "relu", "ReLU6": "relu", "SiLU": "silu", "Sigmoid": "sigmoid", "Hardswish": "silu"}
_NO_LAYER = ("StochasticDepth", "Identity", "Flatten")


@dataclass(frozen=True)
class Published:
    """One run of GPUMemNet's file; MiB."""

    name: str
    job: str
    batch_size: int
    image: int
    measured: float
    gpumemnet: float
    fake_tensor: float
    horus: float


ROWS = (
    Published("VGG16", "torchvision:vgg16", 32, 224, 8222, 16000, 3121.3, 21525.8),
    Published("VGG16", "torchvision:vgg16", 128, 224, 24408, 24000, 9894.4, 82119.9),
    Published("ResNet50", "torchvision:resnet50", 32, 224, 5262, 16000, 2672.5, 7903.9),
    Published("ResNet50", "torchvision:resnet50", 128, 224, 15120, 24000, 10666.0, 28923.3),
    Published("MobileNetV2", "torchvision:mobilenet_v2", 32, 224, 4544, 8000, 2425.3, 3617.1),
    Published("MobileNetV2", "torchvision:mobilenet_v2", 128, 224, 12578, 16000, 9686.1, 12028.2),
    Published("EfficientNet-B0", "torchvision:efficientnet_b0", 32, 224, 4958, 8000, 2730.0, 3864.9),
    Published("EfficientNet-B0", "torchvision:efficientnet_b0", 128, 224, 13832, 16000, 10904.9, 12999.1),
)
"""Xception and Inception, of which the file does not say which implementation was meant, and the language models, for
which it has no FakeTensor, are left out."""


@dataclass(frozen=True)
class Unseen:
    """All figures of one run, MiB."""

    name: str
    batch_size: int
    measured: float
    gpumemnet: float
    fake_tensor: float
    horus: float
    horus_here: float
    fake_tensor_here: float
    mlp_by_trace: float
    transformer_by_trace: float
    mlp_by_modules: float
    transformer_by_modules: float
    simulator: float


def horus_as_run(features: LayerFeatures) -> int:
    """Bytes, by GPUMemNet's script: see the module's head."""
    outputs = sum(layer.activations for layer in features.layers if layer.kind != "pooling")
    values = outputs * features.batch_size + features.parameters * (1 + features.batch_size)
    return _FLOAT * values + HORUS_CONSTANT


def module_features(model: Any, image: int, batch_size: int) -> LayerFeatures:
    """The layers as a list of modules shows them: what each puts out for a sample, in place or not."""
    import torch
    from torch._subclasses import FakeTensorMode

    layers: list[Layer] = []
    functions: Counter[str] = Counter()

    def note(module: Any, given: Any, made: Any) -> None:
        name = type(module).__name__
        kind = _KINDS.get(name) or ("pooling" if "Pool" in name else "activation" if name in _FUNCTIONS else name)
        if name in _FUNCTIONS:
            functions[_FUNCTIONS[name]] += 1
        own = sum(parameter.numel() for parameter in module.parameters(recurse=False))
        layers.append(Layer(kind, made.numel() // made.shape[0], own))

    leaves = [m for m in model.modules() if not list(m.children()) and type(m).__name__ not in _NO_LAYER]
    hooks = [module.register_forward_hook(note) for module in leaves]
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        model(torch.empty(2, 3, image, image))
    for hook in hooks:
        hook.remove()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return layer_features_of_layers(layers, functions, batch_size, parameters)


def judged(row: Published) -> Unseen:
    model = getattr(import_library("torchvision").models, row.job.partition(":")[2])()
    listed = module_features(model, row.image, row.batch_size)
    spec = Spec.read(row.job, device=_DEVICE, environment=_STACK, use_calibration=False, batch_size=row.batch_size,
                     optimizer="adam", input_shape=f"3x{row.image}x{row.image}")  # fmt: skip
    trace = capture(spec)
    traced = layer_features(trace)
    mlp, transformer = GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER
    return Unseen(
        name=row.name,
        batch_size=row.batch_size,
        measured=row.measured,
        gpumemnet=row.gpumemnet,
        fake_tensor=row.fake_tensor,
        horus=row.horus,
        horus_here=horus_as_run(traced) / MiB,
        fake_tensor_here=fake_tensor_as_run(model, row.image, row.batch_size) / MiB,
        mlp_by_trace=_edge(mlp, traced),
        transformer_by_trace=_edge(transformer, traced),
        mlp_by_modules=_edge(mlp, listed),
        transformer_by_modules=_edge(transformer, listed),
        simulator=estimate_trace(trace, Target.of(spec.place)).device_total / MiB,
    )


def _edge(estimator: str, features: LayerFeatures) -> float:
    """The upper edge of the class, on the machine that was learnt from."""
    best = classes_of(load_artifact().classes[estimator]["cnn"], features)[0]
    return (best.chosen + 1) * best.width / MiB


_SHOWN = {
    "gpumemnet": "GPUMemNet, published",
    "mlp_by_trace": "our MLPs, layers of the Trace",
    "transformer_by_trace": "our Transformer, layers of the Trace",
    "mlp_by_modules": "our MLPs, layers of the modules",
    "transformer_by_modules": "our Transformer, layers of the modules",
    "fake_tensor": "FakeTensor, published",
    "fake_tensor_here": "FakeTensor as they ran it, here",
    "horus": "Horus, published",
    "horus_here": "Horus as they ran it, here",
    "simulator": "oomcast's simulator",
}


def outcome_of(found: Sequence[Unseen]) -> Outcome:
    rows = [
        (f"{one.name} × {one.batch_size}", f"{one.measured:,.0f}", *(f"{getattr(one, key):,.0f}" for key in _SHOWN))
        for one in found
    ]
    bars = []
    for key, words in _SHOWN.items():
        under = sum(getattr(one, key) < one.measured for one in found)
        bars.append(Bar(f"{words}: below the truth", f"{under} of {len(found)}", None))
    worst = max(abs(one.horus_here / one.horus - 1) for one in found)
    bars.append(Bar("Horus as published, within 1 %", f"worst {worst:.2%}", worst <= 0.01))
    worst = max(abs(one.fake_tensor_here / one.fake_tensor - 1) for one in found)
    bars.append(Bar("FakeTensor as published, within 0.1 %", f"worst {worst:.2%}", worst <= 0.001))
    for key in ("mlp", "transformer"):
        low = sum(getattr(one, f"{key}_by_trace") < one.measured for one in found)
        theirs = sum(one.gpumemnet < one.measured for one in found)
        words = f"our {key} on the Trace is too low at most once more often than GPUMemNet"
        bars.append(Bar(words, f"{low} and {theirs} of {len(found)}", low <= theirs + 1))
    return Outcome("Unseen CNNs, MiB", ("run", "measured", *_SHOWN.values()), rows, bars)


def _picture(found: Sequence[Unseen]) -> str:
    keys = ("measured", "simulator", "gpumemnet", "mlp_by_trace", "fake_tensor_here", "horus_here")
    names = {"measured": "measured", **_SHOWN}
    groups = {f"{one.name} × {one.batch_size}": [getattr(one, key) / 1024 for key in keys] for one in found}
    return groups_picture("CNNs that no estimator has learnt from, GiB", groups, [names[key] for key in keys], 34.0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench unseen", description=__doc__)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="an SVG to write")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    found = [judged(row) for row in ROWS]
    if given.picture is not None:
        given.picture.write_text(_picture(found), encoding="utf-8")
    outcome = outcome_of(found)
    if given.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        print_outcome(outcome)
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
