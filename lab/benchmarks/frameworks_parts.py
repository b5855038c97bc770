"""DNNMem's table as one picture: five models × batch sizes × PyTorch, TensorFlow and MXNet, each cell with its parts.

`python -m lab.benchmarks.frameworks_parts FRAMEWORK` prints one line of JSON for each cell, by oomcast's estimate for
an A100-40GB (Adam, fp32); it runs where that framework is installed, on no GPU. `python -m lab bench frameworks parts`
asks all three and draws. The models are those of `bench frameworks table`; PyTorch's are below.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import oomcast
from oomcast.trace import Category
from oomcast.zoo import find

from .frameworks_forms import FORMS

__all__ = ["CELLS", "FRAMEWORKS", "PARTS", "draw", "markdown"]

FRAMEWORKS = ("torch", "tensorflow", "mxnet")
CELLS: Mapping[str, tuple[int, ...]] = {
    "vgg16": (8, 32, 128),
    "resnet50": (8, 32, 128),
    "inception-v3": (8, 32, 128),
    "lstm-lm": (16, 64, 256),
    "bert-base": (16, 64, 256),
}
PARTS: Mapping[str, tuple[str, ...]] = {
    "weights": (Category.PARAMETER.value, Category.BUFFER.value),
    "gradients and Adam": (Category.GRADIENT.value, Category.OPTIMIZER_STATE.value),
    "activations": (Category.ACTIVATION.value, Category.TEMPORARY.value, Category.INPUT.value),
    "workspace": (Category.WORKSPACE.value,),
    "resident": ("context", "allocator_cache"),
}
"""At the peak. Resident: the CUDA context, and what the framework's allocator holds beside its tensors."""
_VOCABULARY, _WORDS = 10_000, 30_522
_TOKENS = ("lstm-lm", "bert-base")
_IMAGES = {"vgg16": "vgg16", "resnet50": "resnet50", "inception-v3": "inception_v3"}
"""PyTorch's are the zoo's: nothing but oomcast needs to be installed."""


@dataclass(frozen=True)
class _Job:
    """One model in one framework."""

    framework: str
    name: str

    def model(self) -> Any:
        if self.framework == "torch":
            return _torch_model(self.name)
        build = importlib.import_module(f"{__package__}.frameworks_{self.framework}").MODELS[self.name][0]
        model = build()
        if self.framework == "mxnet":
            model.hybridize()
        else:
            model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", jit_compile=False)
        return model

    def batch(self, batch_size: int) -> Any:
        sample, labels = FORMS[self.name]
        if len(sample) == 3 and self.framework != "tensorflow":
            sample = (sample[2], *sample[:2])
        if self.framework == "torch":
            import torch

            made = torch.zeros(batch_size, *sample, dtype=torch.long if self.name in _TOKENS else torch.float32)
            return made, torch.zeros(batch_size, *labels, dtype=torch.long)
        import numpy

        x = numpy.zeros((batch_size, *sample), "int32" if self.name in _TOKENS else "float32")
        return x, numpy.zeros((batch_size, *labels), "int32" if self.framework == "tensorflow" else "float32")


class _TorchJob(_Job):
    def loss(self, model: Any, batch: Any) -> Any:
        from torch.nn import functional

        found = model(batch[0])
        return functional.cross_entropy(found.flatten(0, -2), batch[1].flatten())


def _torch_model(name: str) -> Any:
    from torch import nn

    if name in _IMAGES:
        model: Any = find(_IMAGES[name]).load().model()
        if name == "inception-v3":  # without the auxiliary head, which the other frameworks' models have not
            return nn.Sequential(model.stem, model.until_auxiliary, model.after_auxiliary, model.classifier)
        return model

    class Tokens(nn.Module):
        """An embedding, a body, and a word for every token."""

        def __init__(self, words: int, width: int, body: nn.Module) -> None:
            super().__init__()
            self.embedding, self.body, self.last = nn.Embedding(words, width), body, nn.Linear(width, words)

        def forward(self, tokens: Any) -> Any:
            found = self.body(self.embedding(tokens))
            return self.last(found[0] if isinstance(found, tuple) else found)

    if name == "lstm-lm":
        return Tokens(_VOCABULARY, 512, nn.LSTM(512, 512, num_layers=2, batch_first=True))
    layer = nn.TransformerEncoderLayer(768, 12, 3072, 0.1, "gelu", batch_first=True)
    return Tokens(_WORDS, 768, nn.TransformerEncoder(layer, 12, enable_nested_tensor=False))


def cell(framework: str, name: str, batch_size: int) -> dict[str, Any]:
    job = (_TorchJob if framework == "torch" else _Job)(framework, name)
    found = oomcast.estimate(
        job, batch_size=batch_size, device="a100-40gb", optimizer="adam", framework=framework, use_calibration=False
    )
    parts = {part: sum(found.breakdown.get(key, 0) for key in keys) for part, keys in PARTS.items()}
    parts["resident"] += found.device_total - sum(parts.values())
    return {"framework": framework, "model": name, "batch_size": batch_size, "total": found.device_total, **parts}


def markdown(cells: Sequence[Mapping[str, Any]]) -> str:
    """A line for each model and framework, the batch sizes side by side; GiB."""
    lines = [
        f"| model | framework | batch | total, GiB | {' | '.join(PARTS)} |",
        f"| --- | --- | ---: | ---: | {' | '.join('---:' for _ in PARTS)} |",
    ]
    for model in CELLS:
        for framework in FRAMEWORKS:
            own = [one for one in cells if (one["model"], one["framework"]) == (model, framework)]
            if own:
                figures = [" / ".join(f"{one[key] / 2**30:.2f}" for one in own) for key in ("total", *PARTS)]
                batches = " / ".join(str(one["batch_size"]) for one in own)
                lines.append(f"| {model} | {framework} | {batches} | {' | '.join(figures)} |")
    return "\n".join(lines)


_COLOURS = ("#2f6fb2", "#8fb8de", "#c96a1b", "#2f8f5b", "#b9c0c8")
_BAR, _LEFT, _HIGH, _TOP, _WIDE = 15, 44, 110, 66, 228


def draw(cells: Sequence[Mapping[str, Any]]) -> str:
    """A row of panels for each model, a panel for each framework, a bar for each batch size, parts one on the other."""
    models = [model for model in CELLS if any(one["model"] == model for one in cells)]
    step = _HIGH + 54
    width, height = _LEFT + _WIDE * len(FRAMEWORKS) + 20, _TOP + step * len(models)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11" fill="#222" role="img">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<text x="12" y="20" font-size="13" font-weight="bold">Training on an A100-40GB, estimated: GiB at the peak, '
        "by its parts</text>",
    ]
    for place, name in enumerate(PARTS):
        x = 12 + place * 138
        parts.append(f'<rect x="{x}" y="30" width="10" height="10" fill="{_COLOURS[place]}"/>')
        parts.append(f'<text x="{x + 14}" y="39">{escape(name)}</text>')
    for row, model in enumerate(models):
        most = max(one["total"] for one in cells if one["model"] == model) / 2**30
        bottom = _TOP + row * step + _HIGH + 12
        for column, framework in enumerate(FRAMEWORKS):
            left = _LEFT + column * _WIDE
            own = [one for one in cells if (one["model"], one["framework"]) == (model, framework)]
            parts.append(f'<text x="{left}" y="{bottom - _HIGH - 6}" font-weight="bold">{model}, {framework}</text>')
            parts.append(f'<line x1="{left}" y1="{bottom}" x2="{left + _WIDE - 20}" y2="{bottom}" stroke="#999"/>')
            for number, one in enumerate(own):
                x, y = left + 8 + number * 66, float(bottom)
                for place, name in enumerate(PARTS):
                    tall = max(one[name], 0) / 2**30 / most * (_HIGH - 16)
                    y -= tall
                    parts.append(
                        f'<rect x="{x}" y="{y:.1f}" width="{2 * _BAR}" height="{tall:.1f}" fill="{_COLOURS[place]}"/>'
                    )
                parts.append(f'<text x="{x + 2 * _BAR + 3}" y="{y + 9:.1f}">{one["total"] / 2**30:.1f}</text>')
                below = f'x="{x + _BAR}" y="{bottom + 13}" text-anchor="middle" fill="#666"'
                parts.append(f"<text {below}>× {one['batch_size']}</text>")
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    for wanted, sizes in CELLS.items():
        for size in sizes:
            print(json.dumps(cell(sys.argv[1], wanted, size)), flush=True)
