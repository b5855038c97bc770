"""A job that is a network of a seed: `template:vgg,depth=16,edge=64`, a file that oomcast rendered from a template, or
what a campaign was made for: `job.py`, `template:job.py,width=512`, `template:encoder.py.template,width=512` or, for
the script of a line with marked places, `template:train.py,width=512`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from ...errors import BadInput, UnknownName
from ...spec import Job, JobKind
from .factors import Value
from .script_seed import ScriptSeed
from .seeds import MARK, TEXT_ENDING, JobSeed, Seed, TemplateSeed
from .specification import check_network
from .templates import FRAMEWORKS, TEMPLATES, render
from .templates.template import Parametric, Template, complete

__all__ = ["TEMPLATE_PREFIX", "is_template_job", "seed_job", "template_job"]

TEMPLATE_PREFIX = "template:"
_MADE_FROM = re.compile(r"Made from oomcast's template (\w+), with (.+?)\.\s*\n\n", re.DOTALL)
_STEPS = re.compile(r"^STEPS = ([0-9]{1,6})$", re.MULTILINE)
_LARGEST_FILE = 4 << 20


def is_template_job(job: Job) -> bool:
    """Whether a job may be a template's network: by its prefix, or by being a Python file."""
    return job.kind is JobKind.TEMPLATE or (job.kind is JobKind.FILE and job.name.endswith(".py"))


def template_job(job: Job) -> tuple[Template, dict[str, Value]]:
    """The template and the parameters that are given, of a job for which `is_template_job` holds."""
    if job.kind is not JobKind.TEMPLATE:
        return _from_file(Path(job.name))
    name, _, settings = job.name.partition(",")
    template = _template(name.strip())
    return template, _settings(template, settings.split(",") if settings else [], job.reference)


def seed_job(job: Job, digests: Mapping[str, str]) -> tuple[Seed, dict[str, Value]]:
    """The seed and the parameters of a job for which `is_template_job` holds.

    `digests` are those of the job files and scripts that are known by their path: a file with one of these texts is
    that seed, with the values that are written in it.
    """
    name, _, settings = job.name.partition(",") if job.kind is JobKind.TEMPLATE else (job.name, "", "")
    if not digests or not name.strip().endswith((".py", TEXT_ENDING)):
        template, named = template_job(job)
        return TemplateSeed(template), named
    seed = _own_seed(Path(name.strip()), digests)
    if seed.digest not in digests.values():
        raise BadInput(
            f"{name.strip()} is not the file that was measured ({', '.join(digests)}), or its text was changed "
            "beyond the values of its parameters; measure it anew."
        )
    named = {parameter.name: parameter.default for parameter in seed.parameters}
    # The batch is what the command line says.
    named.pop("batch_size")
    return seed, {**named, **_settings(seed, settings.split(",") if settings else [], job.reference)}


def _own_seed(path: Path, digests: Mapping[str, str]) -> JobSeed | ScriptSeed:
    """A job file or a text template, or the script of a line that was measured."""
    for line in digests:
        if path.name.endswith(".py") and MARK.search(line):
            seed = ScriptSeed.read(line, _started_in(path, line))
            if Path(seed.file).name == path.name:
                return seed
    return JobSeed.read(path)


def _started_in(path: Path, line: str) -> Path:
    """The folder that the line is started in, if `path` is its script: so far above it as the line says."""
    words = [word for word in line.split() if Path(word).name == path.name]
    above = len(Path(words[0]).parts) - 1 if words else 0
    return path.resolve().parents[above]


def _template(name: str) -> Template:
    if name not in TEMPLATES:
        raise UnknownName("template", name, TEMPLATES)
    return TEMPLATES[name]


def _settings(template: Parametric, parts: list[str], where: str) -> dict[str, Value]:
    kinds = {parameter.name: parameter.kind for parameter in template.parameters}
    settings: dict[str, Value] = {}
    for part in parts:
        name, equals, written = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise BadInput(f"cannot read {part.strip()!r} in {where}; write NAME=VALUE.")
        if name not in kinds:
            raise UnknownName(f"parameter of template {template.name!r}", name, kinds)
        settings[name] = written if kinds[name] == "str" else _number(written)
    return settings


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
