"""What can be named on the command line, for people and programs: models, GPUs, environments, estimators."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..devices import Gpu, Stack, all_stacks
from ..errors import OomcastError
from ..estimation import Estimator
from ..spec import Flag, options_of
from ..zoo import ZooModel

__all__ = [
    "OTHER_JOBS",
    "devices_as_json",
    "environments_as_json",
    "estimators_as_json",
    "models_as_json",
    "render_environments",
    "render_estimators",
    "render_models",
]

OTHER_JOBS: tuple[tuple[str, str], ...] = (
    ("timm:NAME", "a model of timm, like timm:convnext_tiny; needs pip install 'oomcast[timm]'"),
    ("torchvision:NAME", "a model of torchvision, like torchvision:resnet50; needs pip install 'oomcast[torchvision]'"),
    ("hf:NAME", "a configuration that transformers has built in, like hf:gpt2; needs pip install 'oomcast[hf]'"),
    ("hf:FILE.json", "the config.json of any transformers model"),
    ("diffusers:NAME", "a diffusion model, like diffusers:black-forest-labs/FLUX.1-dev; needs 'oomcast[diffusers]'"),
    ("template:NAME,…", "a network of a campaign, like template:vgg,depth=16; for the estimators tbem and equation"),
    ("FILE.py", "your own job: model() and batch(batch_size); in PyTorch, Keras, TensorFlow, JAX, Flax or MXNet"),
    ("FILE.onnx", "a model in ONNX's form"),
)
"""What a job can be beside `zoo:NAME`: how it is written, and what that is."""


def devices_as_json(gpus: Iterable[Gpu]) -> list[dict[str, Any]]:
    return [
        {
            "name": gpu.name,
            "driver_name": gpu.driver_name,
            "maker": "NVIDIA" if gpu.maker is None else gpu.maker.name,
            "architecture": gpu.architecture,
            "compute_capability": list(gpu.compute_capability) if gpu.maker is None else None,
            "total_memory": gpu.total_memory,
            "usable_memory": gpu.usable_memory,
            "aliases": list(gpu.aliases),
            "source": gpu.source,
        }
        for gpu in gpus
    ]


def models_as_json(models: Iterable[ZooModel]) -> dict[str, Any]:
    listed = [
        {
            "job": f"zoo:{model.name}",
            "name": model.name,
            "task": model.task,
            "default_input": model.default_input if isinstance(model.default_input, int) else list(model.default_input),
            "default_batch_size": model.default_batch_size,
            "summary": model.summary,
            "citation": model.citation,
        }
        for model in models
    ]
    return {"zoo": listed, "others": [{"job": job, "summary": summary} for job, summary in OTHER_JOBS]}


def render_models(models: Iterable[ZooModel], *, with_others: bool) -> RenderableType:
    """The zoo; `with_others`, also the other ways to name a job."""
    table = _table("Job", "Task", "Default input", "What it is")
    for model in models:
        table.add_row(f"zoo:{model.name}", model.task, _input_in_words(model.default_input), model.summary)
    if not with_others:
        return table
    others = _table("Job", "What it is")
    for job, summary in OTHER_JOBS:
        others.add_row(job, summary)
    return Group(table, Text(""), Text("Other jobs", style="bold"), others)


def _input_in_words(default_input: tuple[int, ...] | int) -> str:
    return f"{default_input} tokens" if isinstance(default_input, int) else "x".join(map(str, default_input))


def environments_as_json(stacks: Iterable[Stack]) -> list[dict[str, Any]]:
    return [
        {
            "name": stack.name,
            "framework": stack.framework,
            "versions": versions_of(stack),
            "cuda": _dotted(stack.cuda),
            "cudnn": _dotted(stack.cudnn),
            "year": stack.year,
            "default": stack.default,
            "lazy_loading": stack.lazy_loading,
            "note": stack.note,
        }
        for stack in stacks
    ]


def render_environments(stacks: Iterable[Stack]) -> RenderableType:
    table = _table("Name", "Stands for", "CUDA", "cuDNN", "Year", "Chosen", "Note")
    for stack in stacks:
        chosen = "by version" if stack.default else "by name only"
        table.add_row(
            stack.name,
            f"{stack.framework} {versions_of(stack)}",
            _dotted(stack.cuda),
            _dotted(stack.cudnn),
            str(stack.year),
            chosen,
            stack.note,
        )
    return table


def versions_of(stack: Stack) -> str:
    """The versions of its framework that a stack stands for: from its first to where the next default begins."""
    first = _dotted(stack.first_version)
    later = [
        other.first_version
        for other in all_stacks()
        if other.default and other.framework == stack.framework and other.first_version > stack.first_version
    ]
    return f"{first} to below {_dotted(min(later))}" if later else f"{first} and later"


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def estimators_as_json(estimators: Mapping[str, Estimator | OomcastError]) -> list[dict[str, Any]]:
    return [
        {"name": name, "error": str(estimator)}
        if isinstance(estimator, OomcastError)
        else {
            "name": name,
            "summary": _summary(estimator),
            "options": [{"flag": flag.name, "help": flag.help} for flag in _flags(estimator)],
        }
        for name, estimator in estimators.items()
    ]


def render_estimators(estimators: Mapping[str, Estimator | OomcastError]) -> RenderableType:
    table = _table("Name", "How it estimates", "Its own options")
    for name, estimator in estimators.items():
        if isinstance(estimator, OomcastError):
            table.add_row(name, str(estimator), "")
        else:
            flags = ", ".join(f"{flag.name} {flag.metavar}".strip() for flag in _flags(estimator))
            table.add_row(name, _summary(estimator), flags)
    return table


def _summary(estimator: Estimator) -> str:
    return (type(estimator).__doc__ or "").strip().partition("\n")[0]


def _flags(estimator: Estimator) -> Iterable[Flag]:
    return itertools.chain.from_iterable(option.flags for option in options_of(estimator.options))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    return table
