"""A job that is a network of a template: `template:vgg,depth=16,edge=64`, or a file that oomcast rendered from one."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from ..design import Template, Value, complete
from ..design.spec import check_network
from ..design.templates import FRAMEWORKS, TEMPLATES, render
from ..errors import BadInput, UnknownName

__all__ = ["TEMPLATE_PREFIX", "is_template_job", "template_job"]

TEMPLATE_PREFIX = "template:"
_MADE_FROM = re.compile(r"Made from oomcast's template (\w+), with (.+?)\.\s*\n\n", re.DOTALL)
_STEPS = re.compile(r"^STEPS = ([0-9]{1,6})$", re.MULTILINE)
_LARGEST_FILE = 4 << 20


def is_template_job(job: Any) -> bool:
    """Whether it may be one: by its prefix, or by being a Python file."""
    text = str(job) if isinstance(job, (str, os.PathLike)) else ""
    return text.startswith(TEMPLATE_PREFIX) or text.endswith(".py")


def template_job(job: Any) -> tuple[Template, dict[str, Value]]:
    """The template and the parameters that are given, of a job for which `is_template_job` holds."""
    text = str(job)
    if text.startswith(TEMPLATE_PREFIX):
        name, _, settings = text[len(TEMPLATE_PREFIX) :].partition(",")
        template = _template(name.strip())
        return template, _settings(template, settings.split(",") if settings else [], text)
    return _from_file(Path(text))


def _template(name: str) -> Template:
    if name not in TEMPLATES:
        raise UnknownName("template", name, TEMPLATES)
    return TEMPLATES[name]


def _settings(template: Template, parts: list[str], where: str) -> dict[str, Value]:
    kinds = {parameter.name: parameter.kind for parameter in template.parameters}
    found: dict[str, Value] = {}
    for part in parts:
        name, equals, written = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise BadInput(f"cannot read {part.strip()!r} in {where}; write NAME=VALUE.")
        if name not in kinds:
            raise UnknownName(f"parameter of template {template.name!r}", name, kinds)
        found[name] = written if kinds[name] == "str" else _number(written)
    return found


def _number(written: str) -> Value:
    try:
        value = json.loads(written.lower())
    except ValueError:
        return written
    return value if isinstance(value, (int, float)) else written


def _from_file(path: Path) -> tuple[Template, dict[str, Value]]:
    """The parameters that a rendered file names, if it is still what they give."""
    try:
        source = path.read_text(encoding="utf-8") if path.stat().st_size <= _LARGEST_FILE else ""
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}.") from None
    made, steps = _MADE_FROM.search(source), _STEPS.search(source)
    if made is None or steps is None:
        raise BadInput(
            f"{path} was not rendered by oomcast from a template; what real runs of a template told holds for its own "
            "networks only."
        )
    template = _template(made.group(1))
    parameters = _settings(template, " ".join(made.group(2).split()).split(", "), str(path))
    network = template.network(complete(template, parameters))
    if check_network(network) is not None or source not in {
        render(network, framework, steps=max(int(steps.group(1)), 1), device=device)
        for framework in FRAMEWORKS
        for device in ("cpu", "cuda")
    }:
        raise BadInput(
            f"{path} was changed after oomcast rendered it; what real runs of a template told holds for its own "
            "networks only."
        )
    return template, parameters
