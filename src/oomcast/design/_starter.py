"""A campaign file to start from, for any template."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import UnknownName
from ._template import Parameter
from .templates import FRAMEWORKS, TEMPLATES

__all__ = ["starter_campaign"]

_LEVELS = 4
_FACTORS = 4
_NOT_OFFERED = ("channels", "classes", "dropout")
"""Numbers that are facts of the data, or that memory hardly depends on."""


def starter_campaign(template: str, framework: str = "torch", device: str = "cpu") -> str:
    """The text of a TOML file: the template's first sizes as factors, all it takes besides as comments."""
    if template not in TEMPLATES:
        raise UnknownName("template", template, TEMPLATES, f"There are {', '.join(TEMPLATES)}.")
    if framework not in FRAMEWORKS:
        raise UnknownName("framework", framework, FRAMEWORKS, f"There are {' and '.join(FRAMEWORKS)}.")
    parameters = TEMPLATES[template].parameters
    offered = [one for one in parameters if one.name not in _NOT_OFFERED and _levels(one)][:_FACTORS]
    factors = [f"{one.name} = [{', '.join(f'{level:g}' for level in _levels(one))}]" for one in offered]
    others = [one for one in parameters if one not in offered]
    return "\n".join(
        [
            f"# What {framework} adds to the static estimate of {template}.",
            "#   oomcast campaign plan FILE, then run, fit and report",
            f'template = "{template}"',
            f'framework = "{framework}"',
            f'device = "{device}"      # cpu, cuda or a GPU of oomcast devices',
            "steps = 2",
            "repetitions = 1",
            "held_out = 8        # random other configurations, to check what was learned",
            "seed = 0",
            "",
            "[plan]",
            'method = "orthogonal"     # or full; random and adaptive take runs = N',
            "strength = 2",
            "",
            "[factors]",
            *factors,
            "",
            "[layer_factors]     # what deforms the layers; any of those below",
            "",
            "[fixed]             # what all cases share; any of those below",
            *(f"# {line}" for line in _described(others)),
            "",
            "[limits]            # of one case",
            "seconds = 600",
            'bytes = "8GiB"',
            "",
        ]
    )


def _levels(parameter: Parameter) -> list[float]:
    """Four from a quarter of the default, or the least that is taken, up to the default; two where four are too near.

    Factors of as many levels share a small array; others may need every combination.
    """
    if parameter.kind not in ("int", "float") or parameter.choices or isinstance(parameter.default, (str, bool)):
        return []
    default = parameter.default
    low = max(default / 4, parameter.minimum if parameter.minimum is not None else default / 4)
    wanted = [low + (default - low) * step / (_LEVELS - 1) for step in range(_LEVELS)]
    levels = sorted({round(value) if parameter.kind == "int" else value for value in wanted})
    levels = levels if len(levels) == _LEVELS else [levels[0], levels[-1]]
    return levels if len(set(levels)) > 1 and all(parameter.accepts(level) for level in levels) else []


def _described(parameters: Iterable[Parameter]) -> list[str]:
    return [f"{one.name}: {one.takes()}; {one.meaning} (default {one.default})" for one in parameters]
