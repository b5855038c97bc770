"""`oomcast campaign report|curve|compare`: what fitted campaigns tell, as pages, figures and tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ..command_parts import write_text
from .command_options import (
    add_pythons,
    capture_with,
    gap_path,
    needing_campaign,
    progress_of,
    read_interpreter,
    static_estimates,
)

if TYPE_CHECKING:
    from .gap import Gap

__all__ = ["add_compare", "add_curve", "add_report"]


def add_report(actions: Any) -> None:
    parser = actions.add_parser("report", help="write an HTML report of fitted campaigns")
    parser.add_argument("files", nargs="+", metavar="FILE", help="campaign files, or files that fit has written")
    parser.add_argument("--output", metavar="FILE", help="where to write it (default: beside the first, .html)")
    parser.add_argument(
        "--against",
        metavar="FACTOR",
        help="the factor that the first figure is drawn against (default: depth or levels)",
    )
    parser.set_defaults(run=needing_campaign(_report))


def add_curve(actions: Any) -> None:
    parser = actions.add_parser("curve", help="measured memory as a polynomial of one factor, with its band")
    parser.add_argument("file", metavar="FILE", help="a campaign file, or a file that fit has written")
    parser.add_argument("--against", metavar="FACTOR", help="the factor (default: the campaign's first)")
    parser.add_argument("--figure", "--svg", metavar="FILE", help="draw it, .svg or .png")
    parser.set_defaults(run=needing_campaign(_curve))


def add_compare(actions: Any) -> None:
    parser = actions.add_parser("compare", help="the Gap by framework and version: constant and slope, with intervals")
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="campaign files or files that fit has written; or one campaign file with several --python",
    )
    add_pythons(parser)
    parser.add_argument("--steady-malloc", action="store_true", help="with --python: as for run")
    parser.add_argument("--figure", "--svg", metavar="FILE", help="draw the mean Gaps, .svg or .png")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=needing_campaign(_compare))


def _report(options: argparse.Namespace) -> int:
    from .gap import read_gap
    from .page import campaign_html

    paths = _fitted(options.files)
    output = Path(options.output) if options.output else paths[0].with_suffix("").with_suffix(".html")
    write_text(output, campaign_html([read_gap(path) for path in paths], options.against))
    print(f"wrote {output}")
    return 0


def _fitted(given: Sequence[str]) -> list[Path]:
    """The fitted files that are named, or that belong to the campaigns that are."""
    paths = [gap_path(file) if file.endswith(".toml") else Path(file) for file in given]
    for file, path in zip(given, paths, strict=True):
        if not path.exists():
            raise BadInput(f"there is no {path}; make it with: oomcast campaign fit {file}")
    return paths


def _curve(options: argparse.Namespace) -> int:
    from ...cli.files import check_figure, write_figure
    from .analysis import factor_curve
    from .gap import read_gap
    from .page import draw_curve

    check_figure(options.figure)
    gap = read_gap(_fitted([options.file])[0])
    name = options.against or gap.factors[0].name
    curve = factor_curve(gap, name)
    print(f"GV = {curve.model.equation()} bytes")
    if options.figure:
        write_figure(options.figure, draw_curve(gap, name))
        print(f"wrote {options.figure}")
    return 0


def _compare(options: argparse.Namespace) -> int:
    from ...cli.files import check_figure, write_figure
    from ...cli.terminal import terminal
    from .gap import read_gap
    from .page import draw_efficiency
    from .report import efficiency_as_json, render_efficiency

    check_figure(options.figure)
    if options.python and not (len(options.files) == 1 and options.files[0].endswith(".toml")):
        raise BadInput("--python measures one campaign in several environments; give one campaign file (.toml).")
    if options.python:
        gaps = [_measured_in(options, *read_interpreter(text)) for text in options.python]
    else:
        gaps = [read_gap(path) for path in _fitted(options.files)]
    if options.json:
        print(json.dumps([efficiency_as_json(gap) for gap in gaps], indent=2))
    else:
        terminal().print(render_efficiency(gaps))
    if options.figure:
        write_figure(options.figure, draw_efficiency(gaps))
    return 0


def _measured_in(options: argparse.Namespace, framework: str, python: str) -> Gap:
    """The campaign measured and fitted in one environment, beside its file: a store and a fit for each version."""
    import dataclasses

    from ..measure import STEADY_MALLOC, Conditions, Limits, Store, check_framework, facts_of
    from .campaign import measure_campaign
    from .campaign_file import read_campaign
    from .gap import fit_campaign, read_gap, write_gap

    check_framework(framework, python)
    capture_with(framework, python)
    versions = facts_of(framework, python)["versions"]
    campaign = read_campaign(options.files[0])
    if any(framework not in seed.frameworks for seed in campaign.seeds) or (
        framework != campaign.framework and any(seed.digest for seed in campaign.seeds)
    ):
        raise BadInput(f"campaign {campaign.name!r} is one of {campaign.framework}; {framework} cannot run it.")
    campaign = dataclasses.replace(campaign, framework=framework)
    version = "-".join(f"{name}-{number}" for name, number in versions.items())
    place = Path(options.files[0]).with_suffix("")
    gap_path = place.with_name(f"{place.name}.{version}.gap.json")
    conditions = Conditions(
        Limits(campaign.limits.seconds, campaign.limits.bytes),
        interpreters={framework: python},
        variables=STEADY_MALLOC if options.steady_malloc else {},
    )
    with Store.open(str(place.with_name(f"{place.name}.{version}.db"))) as store:
        with progress_of(f"{campaign.name} {version}") as progress:
            measure_campaign(campaign, store, conditions=conditions, progress=progress)
        before = read_gap(gap_path) if gap_path.exists() else None
        with static_estimates() as captures:
            gap = fit_campaign(campaign, store, before=before, progress=captures)
    write_gap(gap, gap_path)
    return gap
