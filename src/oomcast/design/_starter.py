"""A campaign file to start from, for any template."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import UnknownName
from ._template import Parameter
from .templates import FRAMEWORKS, TEMPLATES

__all__ = ["starter_campaign"]

_SHARES = (0.25, 0.5, 0.75, 1.0)
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
    offered = [one for one in parameters if one.name not in _NOT_OFFERED and len(_levels(one)) > 1][:_FACTORS]
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
    """A quarter, half, three quarters and all of the default, as far as the parameter takes them."""
    if parameter.kind not in ("int", "float") or parameter.choices or isinstance(parameter.default, (str, bool)):
        return []
    wanted = [parameter.default * share for share in _SHARES]
    values = [round(value) if parameter.kind == "int" else value for value in wanted]
    return sorted({value for value in values if parameter.accepts(value)})


def _described(parameters: Iterable[Parameter]) -> list[str]:
    return [f"{one.name}: {one.takes()}; {one.meaning} (default {one.default})" for one in parameters]
