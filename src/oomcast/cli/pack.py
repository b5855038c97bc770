"""`oomcast pack JOBS.toml`: which jobs can share which GPU; with `--replay`, what a scheduler would make of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from .terminal import print_json, terminal, working

if TYPE_CHECKING:
    from ..advise.pack import Card, Item, JobList, Replayed, Timing

__all__ = ["add_to"]

NOT_ALL_PLACED = 3
_RISK = 0.05
_EXAMPLES = """examples:
  oomcast pack jobs.toml --gpus 4xa100-40gb
  oomcast pack jobs.toml --gpus 4xa100-40gb,2xrtx-3090 --risk 0.01 --svg cards.svg
  oomcast pack jobs.toml --gpus 8xa100-40gb --replay

a job of the list, in TOML:
  [[job]]                        |  [[job]]
  name = "resnet"                |  name = "measured-before"
  job = "zoo:resnet50"           |  device_total = "9.5GiB"
  batch_size = 64                |  low = "9.1GiB"
  count = 3                      |  high = "10.4GiB"

exit codes: 0 all placed, 3 not all placed, 2 bad input, 1 failure"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "pack",
        help="which jobs can share which GPU, with a bounded risk of running out of memory",
        description="Place training jobs on GPUs; each card may run out of memory with a probability below a bound.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="JOBS.toml", help="the list of jobs")
    parser.add_argument("--gpus", metavar="CARDS", help="like 4xa100-40gb,2xrtx-3090 (default: what the list says)")
    parser.add_argument(
        "--risk", type=float, metavar="SHARE", help=f"bound on a card's P(OOM) (default: the list's, else {_RISK})"
    )
    parser.add_argument("--max-per-gpu", type=int, metavar="N", help="at most so many jobs on a card")
    parser.add_argument(
        "--estimator",
        metavar="NAME",
        help="who estimates, or whose given estimate counts (default: simulator)",
    )
    parser.add_argument(
        "--time-limit", type=float, default=10.0, metavar="S", help="seconds for the packing (default: 10)"
    )
    parser.add_argument("--replay", action="store_true", help="let a scheduler run the list, by each policy")
    parser.add_argument(
        "--policies",
        nargs="+",
        default=[],
        metavar="NAME",
        help="with --replay: exclusive, first-fit, best-fit, interval",
    )
    parser.add_argument(
        "--draw-truth", type=int, metavar="SEED", help="with --replay: draw unknown truths from intervals"
    )
    parser.add_argument(
        "--slowdown", type=float, metavar="SHARE", help="with --replay: of a job by each other on its card (default: 0)"
    )
    parser.add_argument(
        "--crash-after", type=float, metavar="S", help="with --replay: seconds until a job dies of memory (default: 60)"
    )
    parser.add_argument("--figure", "--svg", metavar="FILE", help="draw the cards there: a .svg or .png file")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        return _replay(options) if options.replay else _pack(options)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("oomcast"):
            raise
        raise BadInput(
            f"packing needs the package {error.name}; install it with: pip install 'oomcast[packing]'"
        ) from None


def _pack(options: argparse.Namespace) -> int:
    from ..advise.pack import pack_jobs, read_jobs
    from ..report.pack import draw_packing, packing_as_json, render_packing
    from .files import check_figure, write_figure

    for option in ("draw_truth", "slowdown", "crash_after"):
        if getattr(options, option) is not None:
            raise BadInput(f"--{option.replace('_', '-')} is for a replay; add --replay.")
    if options.policies:
        raise BadInput("--policies are compared by a replay; add --replay.")
    check_figure(options.figure)
    listed = read_jobs(options.file)
    cards = _cards(options, listed)
    if not options.time_limit > 0:
        raise BadInput(f"the time limit must be above 0 seconds, not {options.time_limit:g}.")
    packing = pack_jobs(
        _items(listed, cards, options.estimator),
        cards,
        risk=_risk(options, listed),
        max_per_gpu=_most(options, listed),
        seconds=options.time_limit,
    )
    if options.figure is not None:
        write_figure(options.figure, draw_packing(packing))
    if options.json:
        print_json(packing_as_json(packing))
    else:
        terminal().print(render_packing(packing))
    return NOT_ALL_PLACED if packing.left_out else 0


def _replay(options: argparse.Namespace) -> int:
    from ..advise.pack import Problem, estimators_of, find_policies, read_jobs, replay, timings_of
    from ..report.pack import render_schedules, schedules_as_json

    if options.figure is not None:
        raise BadInput("--figure draws a packing; leave it out with --replay.")
    listed = read_jobs(options.file)
    cards = _cards(options, listed)
    policies = find_policies(options.policies)
    estimators = (options.estimator,) if options.estimator else estimators_of(listed.jobs) or (None,)
    found: list[tuple[str, Replayed]] = []
    timings: tuple[Timing, ...] = ()
    for estimator in estimators:
        items = _items(listed, cards, estimator)
        # Truths that are drawn are the same for all: from the first estimator's intervals.
        timings = timings or timings_of(listed.jobs, items, cards, options.draw_truth)
        problem = Problem(items, cards, _risk(options, listed), _most(options, listed))
        for policy in policies:
            if policy.admits is None and found:
                continue  # it asks no estimator: once is enough
            done = replay(
                problem,
                timings,
                policy,
                slowdown=0.0 if options.slowdown is None else options.slowdown,
                crash_after=60.0 if options.crash_after is None else options.crash_after,
            )
            found.append(("" if policy.admits is None else estimator or "simulator", done))
    if options.json:
        print_json(schedules_as_json(found))
    else:
        terminal().print(render_schedules(found, len(cards)))
    return NOT_ALL_PLACED if any(done.failed for _, done in found) else 0


def _most(options: argparse.Namespace, listed: JobList) -> int | None:
    return listed.max_per_gpu if options.max_per_gpu is None else int(options.max_per_gpu)


def _cards(options: argparse.Namespace, listed: JobList) -> tuple[Card, ...]:
    from ..advise.pack import parse_cards

    text = options.gpus or listed.gpus
    if not text:
        raise BadInput("no GPUs are given; add --gpus 4xa100-40gb, or gpus = '4xa100-40gb' to the list.")
    return parse_cards(text)


def _risk(options: argparse.Namespace, listed: JobList) -> float:
    given = listed.risk if options.risk is None else options.risk
    return _RISK if given is None else float(given)


def _items(listed: JobList, cards: tuple[Card, ...], estimator: str | None) -> tuple[Item, ...]:
    from ..advise.pack import items_of

    with working("Reading …") as show:
        return items_of(
            listed.jobs,
            cards,
            estimator=estimator,
            on_estimate=lambda job, kind: show(f"Running {job} on a virtual {kind} …"),
        )
