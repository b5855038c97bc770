"""An Estimate as one HTML file that needs nothing else, and as a piece of one for notebooks."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

from ..estimation import Estimate
from .as_json import estimate_as_json
from .page_held import flame_graph, treemap
from .page_parts import breakdown_table, facts, gauge, largest_tensors, notes, phase_table
from .page_timeline import static_timeline, timeline
from .page_words import embedded_json, escape
from .words import COLOURS, LABELS, chance, moment, setting_words, verdict_sentence

__all__ = ["estimate_fragment", "estimate_html", "page", "styles"]

_EMPTY_ICON = "data:,"
_SCRIPTS = ("page_helpers.js", "page_stack.js", "page_timeline.js", "page_modules.js", "page_flame.js", "page.js")
"""Parts of the page's one script, in which they share their names; the last one starts everything."""


def estimate_html(estimate: Estimate) -> str:
    """The whole page. With its history (`keep_history`) it has the timeline and the modules, else it goes without."""
    history = estimate.history
    body = [_head(estimate), _section("The device", _device(estimate))]
    if history is not None and history.actions:
        body.append(_section("The job over time", timeline(estimate, history)))
        body.append(_section("The peak by module", treemap(history)))
        body.append(_section("The peak as a flame graph", flame_graph(history)))
    if estimate.top_tensors:
        body.append(_section("The largest at the peak", largest_tensors(estimate)))
    if estimate.phase_peaks:
        body.append(_section("The highest of each phase", phase_table(estimate)))
    body.append(_section("What stands behind it", notes(estimate)))
    body += [embedded_json("estimate", estimate_as_json(estimate)), embedded_json("labels", LABELS)]
    return page(f"{_job(estimate)} on {estimate.device}: {estimate.verdict.name}", "\n".join(body))


def estimate_fragment(estimate: Estimate) -> str:
    """Verdict, device, breakdown and, where it is known, the timeline, without any script."""
    history = estimate.history
    parts = [_head(estimate), _device(estimate)]
    if history is not None and history.actions:
        parts.append(static_timeline(estimate, history))
    return f'<div class="oomcast fragment"><style>{styles()}</style>{"".join(parts)}</div>'


def page(title: str, body: str) -> str:
    """One file: its styles and its only script are in it, and a policy forbids anything else."""
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f'<link rel="icon" href="{_EMPTY_ICON}">',
            f"<title>{escape(title)}</title>",
            f"<style>{styles()}</style></head>",
            f'<body><main class="oomcast">\n{body}\n',
            "<footer>Made by oomcast. Sizes are in powers of two: 1 GiB is 2<sup>30</sup> bytes.</footer></main>",
            f"<script>{script}</script></body></html>",
            "",
        ]
    )


def _head(estimate: Estimate) -> str:
    verdict = estimate.verdict.value
    return (
        f"<header><h1>{escape(_job(estimate))}</h1>"
        f'<p class="dim">{escape(setting_words(estimate))} on {escape(estimate.device)}</p>'
        f'<p class="verdict"><strong class="badge {verdict}">{verdict.upper()}</strong> '
        f"{escape(verdict_sentence(estimate))}</p>"
        f"<p>Probability of running out of memory: <b>{escape(chance(estimate.p_oom))}</b>. "
        f"The peak is in {escape(moment(estimate.peak))}.</p></header>"
    )


def _device(estimate: Estimate) -> str:
    return f'{gauge(estimate)}<div class="columns">{breakdown_table(estimate)}{facts(estimate)}</div>'


def _job(estimate: Estimate) -> str:
    return str(estimate.workload.get("job", "job"))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


@cache
def styles() -> str:
    """Of everything that is drawn here, the colours of the categories included."""
    colours = "".join(f".part-{part}{{--part:{colour}}}" for part, colour in COLOURS.items())
    return _file("page.css") + colours


@cache
def _script() -> str:
    parts = "\n".join(_file(name) for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


@cache
def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
