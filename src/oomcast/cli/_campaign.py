"""`oomcast campaign new|plan|run|status|fit|report`: testing-based estimation, from a file to a fitted Gap."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..errors import BadInput
from ..estimate import missing_extra
from ._files import check_figure, write_figure
from ._terminal import terminal

if TYPE_CHECKING:
    from ..design import Campaign
    from ..measure import Store

__all__ = ["add_to"]

_EXAMPLES = """examples:
  oomcast campaign new vgg --output vgg.toml
  oomcast campaign plan vgg.toml --screen
  oomcast campaign run vgg.toml --workers 2
  oomcast campaign run vgg-keras.toml --python keras=/path/to/other/bin/python
  oomcast campaign fit vgg.toml
  oomcast campaign report vgg.toml
  oomcast estimate template:vgg,depth=16,convolutions=13 --batch-size 16 --device cpu --estimator tbem \\
      --campaign vgg.gap.json

exit codes: 0 done, 2 bad input, 1 failure"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "campaign",
        help="measure an orthogonal array of real runs, and learn from it what a framework adds",
        description="Testing-based estimation: plan real runs, make them, and fit what they hold beyond the estimate.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=type(parser))
    _add_new(actions)
    _add_plan(actions)
    _add_run(actions)
    _add_status(actions)
    _add_fit(actions)
    _add_report(actions)


def _add_new(actions: Any) -> None:
    parser = actions.add_parser("new", help="write a campaign file to start from")
    parser.add_argument("template", metavar="TEMPLATE", help="vgg, resnet, mlp, unet2d, unet3d, transformer or lstm")
    parser.add_argument("--framework", default="torch", metavar="NAME", help="torch or keras (default: torch)")
    parser.add_argument("--device", default="cpu", metavar="NAME", help="cpu, cuda or a GPU (default: cpu)")
    parser.add_argument("--output", metavar="FILE", help="where to write it (default: TEMPLATE.toml)")
    parser.set_defaults(run=_guarded(_new))


def _add_plan(actions: Any) -> None:
    parser = actions.add_parser("plan", help="show what will run, what it costs and what was rejected")
    _add_file(parser)
    _add_store(parser)
    parser.add_argument("--screen", action="store_true", help="rank the factors by the static estimate, without a run")
    parser.add_argument("--figure", "--svg", metavar="FILE", help="with --screen: draw the ranking, .svg or .png")
    parser.add_argument("--render", metavar="FOLDER", help="write the source file of every case there")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_guarded(_plan))


def _add_run(actions: Any) -> None:
    parser = actions.add_parser("run", help="measure every case that has no result yet")
    _add_file(parser)
    _add_store(parser)
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="cases at a time (default: 1)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of a case (default: 1)")
    parser.add_argument("--engine", default="local", metavar="NAME", help="local or ray (default: local)")
    parser.add_argument("--address", metavar="ADDRESS", help="of the Ray cluster, or local to start one")
    parser.add_argument(
        "--python", action="append", default=[], metavar="FRAMEWORK=PATH", help="the Python that has a framework"
    )
    parser.add_argument(
        "--steady-malloc",
        action="store_true",
        help="let glibc return every tensor's pages at once: peaks without the heap's holes, equal run to run",
    )
    parser.add_argument("--retry-failed", action="store_true", help="also repeat cases that crashed or timed out")
    parser.set_defaults(run=_guarded(_run))


def _add_status(actions: Any) -> None:
    parser = actions.add_parser("status", help="how far the campaign is")
    _add_file(parser)
    _add_store(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_guarded(_status))


def _add_fit(actions: Any) -> None:
    parser = actions.add_parser("fit", help="learn the Gap from what was measured")
    _add_file(parser)
    _add_store(parser)
    parser.add_argument("--output", metavar="FILE", help="where to write it (default: beside the campaign, .gap.json)")
    parser.add_argument(
        "--features",
        metavar="NAME",
        help="what the Gap is a function of: factors, static or both (default: the best on runs kept out)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_guarded(_fit))


def _add_report(actions: Any) -> None:
    parser = actions.add_parser("report", help="write an HTML report of fitted campaigns")
    parser.add_argument("files", nargs="+", metavar="FILE", help="campaign files, or files that fit has written")
    parser.add_argument("--output", metavar="FILE", help="where to write it (default: beside the first, .html)")
    parser.add_argument("--against", metavar="FACTOR", help="the factor of the first figure (default: depth or levels)")
    parser.set_defaults(run=_guarded(_report))


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the campaign, a TOML file")


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", metavar="PLACE", help="SQLite file or postgresql:// URL (default: beside the campaign, .db)"
    )


def _guarded(action: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Campaigns need extra packages; which one is missing is told in a sentence."""

    def run(options: argparse.Namespace) -> int:
        try:
            return action(options)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("oomcast"):
                raise
            raise missing_extra(error) from None

    return run


def _new(options: argparse.Namespace) -> int:
    from ..design import starter_campaign

    text = starter_campaign(options.template, options.framework, options.device)
    path = Path(options.output or f"{options.template}.toml")
    if path.exists():
        raise BadInput(f"{path} exists; name another file with --output.")
    _write(path, text)
    print(f"wrote {path}; change it, then: oomcast campaign plan {path}")
    return 0


def _plan(options: argparse.Namespace) -> int:
    from ..design import plan_campaign
    from ..estimate import screen
    from ..report import campaign_plan_as_json, draw_screening, render_campaign_plan, render_screening

    if options.figure and not options.screen:
        raise BadInput("--figure draws the screening; add --screen.")
    check_figure(options.figure)
    campaign = _read(options)
    plan = plan_campaign(campaign)
    cost = plan.cost(_seconds_per_case(options, campaign))
    screened = None
    if options.screen:
        with _counting("static estimates") as progress:
            screened = screen(plan, progress)
    if options.json:
        print(json.dumps(campaign_plan_as_json(plan, cost, screened), indent=2))
    else:
        terminal().print(render_campaign_plan(plan, cost))
        if screened is not None:
            terminal().print(render_screening(screened))
    if screened is not None and options.figure:
        write_figure(options.figure, draw_screening(screened))
    if options.render:
        _render_sources(Path(options.render), plan.cases)
    return 0


def _run(options: argparse.Namespace) -> int:
    from ..estimate import measure_campaign
    from ..measure import STEADY_MALLOC, Conditions, Limits, Outcome, engines

    campaign = _read(options)
    conditions = Conditions(
        limits=Limits(campaign.limits.seconds, campaign.limits.bytes),
        threads=options.threads,
        interpreters=dict(_interpreter(text) for text in options.python),
        variables=STEADY_MALLOC if options.steady_malloc else {},
    )
    if options.engine not in ("local", "ray"):
        raise BadInput(f"the engine is local or ray, not {options.engine!r}.")
    if options.address and options.engine != "ray":
        raise BadInput("--address is that of a Ray cluster; add --engine ray.")
    engine: engines.Engine = engines.LocalEngine(options.workers)
    if options.engine == "ray":
        engine = engines.RayEngine(options.address) if options.address else engines.RayEngine()
    with _store(options) as store:
        if options.retry_failed:
            store.reopen(campaign.name, [Outcome.CRASH, Outcome.TIMEOUT])
        with _progress_bar(campaign.name) as progress:
            measured = measure_campaign(campaign, store, engine, conditions=conditions, progress=progress)
        status = store.status(campaign.name)
        failed = status.done - status.outcomes.get(Outcome.OK, 0)
        print(
            f"{campaign.name}: {measured} cases measured now, {status.done} of {status.total} done, {failed} failed, "
            f"in {store.name}"
        )
    return 0


def _status(options: argparse.Namespace) -> int:
    from ..measure import Outcome, Selection
    from ..report import campaign_status_as_json, render_campaign_status

    campaign = _read(options)
    with _store(options, must_exist=True) as store:
        status = store.status(campaign.name)
        failed = [
            one
            for outcome in Outcome
            if outcome is not Outcome.OK
            for one in store.measurements(Selection(campaign=campaign.name, outcome=outcome))
        ]
    if options.json:
        print(json.dumps(campaign_status_as_json(campaign, status, failed), indent=2))
    else:
        terminal().print(render_campaign_status(campaign, status, failed))
    return 0


def _fit(options: argparse.Namespace) -> int:
    from ..estimate import fit_campaign, read_gap, write_gap
    from ..report import gap_as_json, render_gap

    campaign = _read(options)
    path = Path(options.output) if options.output else _gap_path(options.file)
    before = None
    if path.exists():
        before = read_gap(path)
    with _store(options, must_exist=True) as store, _counting("static estimates") as progress:
        gap = fit_campaign(campaign, store, features=options.features, before=before, progress=progress)
    write_gap(gap, path)
    if options.json:
        print(json.dumps({"path": str(path), **gap_as_json(gap)}, indent=2))
    else:
        terminal().print(render_gap(gap))
        print(f"wrote {path}; use it with: oomcast estimate … --estimator tbem --campaign {path}")
    return 0


def _report(options: argparse.Namespace) -> int:
    from ..estimate import read_gap
    from ..report import campaign_html

    paths = [_gap_path(file) if file.endswith(".toml") else Path(file) for file in options.files]
    for file, path in zip(options.files, paths, strict=True):
        if not path.exists():
            raise BadInput(f"there is no {path}; make it with: oomcast campaign fit {file}")
    output = Path(options.output) if options.output else paths[0].with_suffix("").with_suffix(".html")
    _write(output, campaign_html([read_gap(path) for path in paths], options.against))
    print(f"wrote {output}")
    return 0


def _read(options: argparse.Namespace) -> Campaign:
    from ..design import read_campaign

    return read_campaign(options.file)


@contextlib.contextmanager
def _store(options: argparse.Namespace, *, must_exist: bool = False) -> Iterator[Store]:
    from ..measure import Store

    place = options.store or str(Path(options.file).with_suffix(".db"))
    if must_exist and "://" not in place and not Path(place).exists():
        raise BadInput(f"there is no store {place}; run the campaign first, or name its store with --store.")
    with Store.open(place) as store:
        yield store


def _seconds_per_case(options: argparse.Namespace, campaign: Campaign) -> float | None:
    """From the cases that have run already."""
    place = options.store or str(Path(options.file).with_suffix(".db"))
    if "://" not in place and not Path(place).exists():
        if options.store:
            raise BadInput(f"there is no store {place}.")
        return None
    from ..measure import Selection

    with _store(options) as store:
        seconds = [row[0] for row in store.rows(["seconds"], Selection(campaign=campaign.name))]
    return sum(seconds) / len(seconds) if seconds else None


def _gap_path(file: str) -> Path:
    return Path(file).with_suffix(".gap.json")


def _interpreter(text: str) -> tuple[str, str]:
    framework, equals, path = text.partition("=")
    if not equals or not path or framework not in ("torch", "keras"):
        raise BadInput(f"cannot read --python {text!r}; write torch=PATH or keras=PATH.")
    return framework, path


def _render_sources(folder: Path, cases: Any) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot make the folder {folder}: {error.strerror}.") from None
    first = [case for case in cases if case.repetition == 0]
    for number, case in enumerate(first, 1):
        _write(folder / f"{case.role}_{number:03d}.py", case.source)
    print(f"wrote {len(first)} files into {folder}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}.") from None


@contextlib.contextmanager
def _counting(what: str) -> Iterator[Callable[[int, int], None]]:
    console = Console(stderr=True)
    with _bar(console) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def _progress_bar(name: str) -> Iterator[Callable[[Any], None]]:
    from ..report import campaign_progress_words

    console = Console(stderr=True)
    with _bar(console) as bar:
        task = bar.add_task(name, total=None)

        def tell(progress: Any) -> None:
            words = campaign_progress_words(progress)
            bar.update(task, completed=progress.done, total=progress.total, description=f"{name} {words}")

        yield tell


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
