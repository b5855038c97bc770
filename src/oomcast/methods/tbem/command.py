"""`oomcast campaign …`: testing-based estimation, from a file to a fitted Gap."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BadInput, OomcastError
from ..command_parts import add_actions, write_text
from .analysis_command import add_compare, add_curve, add_report
from .command_options import add_pythons, gap_path, needing_campaign, progress_of, static_estimates, use_pythons

if TYPE_CHECKING:
    from ..measure import CaseSpec, Progress, Store
    from .campaign_file import Campaign

__all__ = ["SUMMARY", "add_to"]

SUMMARY = "measure an orthogonal array of real runs, and learn from it what a framework adds"
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
    actions = add_actions(
        commands,
        "campaign",
        SUMMARY,
        "Testing-based estimation: plan real runs, make them, and fit what they hold beyond the estimate.",
        _EXAMPLES,
    )
    _add_new(actions)
    _add_plan(actions)
    _add_run(actions)
    _add_status(actions)
    _add_fit(actions)
    add_report(actions)
    add_curve(actions)
    add_compare(actions)


def _add_new(actions: Any) -> None:
    parser = actions.add_parser("new", help="write a campaign file to start from")
    parser.add_argument(
        "template",
        metavar="TEMPLATE|JOB|LINE",
        help="vgg, resnet, mlp, unet2d, unet3d, transformer or lstm; or your own job file (.py), text with marked "
        "places (.template) or the line of a script ('train.py --batch {{batch_size=8}} --width {{width=512}}'): its "
        "parameters are then screened for those that move its memory",
    )
    parser.add_argument(
        "--framework",
        metavar="NAME",
        help="torch or keras; for a job file also jax or mxnet (default: torch, or what the job imports)",
    )
    parser.add_argument("--device", default="cpu", metavar="NAME", help="cpu, cuda or a GPU (default: cpu)")
    parser.add_argument("--output", metavar="FILE", help="where to write it (default: its name with .toml)")
    add_pythons(parser)
    parser.set_defaults(run=needing_campaign(_new))


def _add_plan(actions: Any) -> None:
    parser = actions.add_parser("plan", help="show what will run, what it costs and what was rejected")
    _add_file(parser)
    _add_store(parser)
    parser.add_argument("--screen", action="store_true", help="rank the factors by the static estimate, without a run")
    parser.add_argument("--figure", "--svg", metavar="FILE", help="with --screen: draw the ranking, .svg or .png")
    parser.add_argument("--render", metavar="FOLDER", help="write the source file of every case there")
    parser.add_argument(
        "--time",
        action="store_true",
        help="measure the first and the last case of the array now, to tell how long all will take",
    )
    add_pythons(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=needing_campaign(_plan))


def _add_run(actions: Any) -> None:
    parser = actions.add_parser("run", help="measure every case that has no result yet")
    _add_file(parser)
    _add_store(parser)
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="how many cases run at a time (default: 1)")
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="threads that each case computes with (default: 1)"
    )
    parser.add_argument(
        "--engine",
        default="local",
        metavar="NAME",
        help="where cases run: local, ray for a Ray cluster, or slurm for job arrays (default: local)",
    )
    parser.add_argument(
        "--sbatch",
        metavar="OPTIONS",
        default="",
        help="with --engine slurm: sbatch's own options, like '--partition=gpu --account=me'",
    )
    parser.add_argument(
        "--page", metavar="FILE", help="an HTML page that shows how far it is, written anew after every case"
    )
    parser.add_argument("--address", metavar="ADDRESS", help="of the Ray cluster, or local to start one")
    add_pythons(parser)
    parser.add_argument(
        "--steady-malloc",
        action="store_true",
        help="let glibc return the pages of every tensor at once, so that peaks do not vary from run to run",
    )
    parser.add_argument("--retry-failed", action="store_true", help="also repeat cases that crashed or timed out")
    parser.set_defaults(run=needing_campaign(_run))


def _add_status(actions: Any) -> None:
    parser = actions.add_parser("status", help="how far the campaign is")
    _add_file(parser)
    _add_store(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=needing_campaign(_status))


def _add_fit(actions: Any) -> None:
    parser = actions.add_parser("fit", help="learn the Gap from what was measured")
    _add_file(parser)
    _add_store(parser)
    parser.add_argument("--output", metavar="FILE", help="where to write it (default: beside the campaign, .gap.json)")
    parser.add_argument(
        "--features",
        metavar="NAME",
        help="what the Gap is a function of: factors, static (figures of the trace) or both, as a polynomial, or "
        "bayesian (default: what errs least on runs that were kept out)",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="the fitted Gap of another version, GPU or family of networks to start from: few runs then are enough",
    )
    add_pythons(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=needing_campaign(_fit))


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the campaign, a TOML file")


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", metavar="PLACE", help="SQLite file or postgresql:// URL (default: beside the campaign, .db)"
    )


def _new(options: argparse.Namespace) -> int:
    from .campaign import affordable, propose_factors
    from .campaign_file import read_campaign, starter_campaign, starter_factors
    from .campaign_plan import plan_campaign
    from .script_seed import ScriptSeed
    from .seeds import find_seed

    use_pythons(options)
    seed = find_seed(options.template)
    framework = options.framework or seed.framework
    path = Path(options.output or f"{Path(seed.file if isinstance(seed, ScriptSeed) else options.template).stem}.toml")
    if path.exists():
        raise BadInput(f"{path} exists; name another file with --output.")
    remarks = {}
    if seed.digest:
        with static_estimates() as progress:
            _, proposed = propose_factors(seed, framework, options.device, progress)
        if not proposed:
            raise BadInput(
                f"no number written in {seed.name} moves its memory; write sizes as arguments of model() or batch() "
                "with a default, as constants in capitals, or mark their places."
            )
        factors = tuple(one.factor for one in proposed)
        remarks = {one.factor.name: f"moves SGV by {100 * one.effect:.0f} %" for one in proposed}
        seed_name = seed.name if isinstance(seed, ScriptSeed) else os.path.relpath(seed.reference, path.parent)
    else:
        factors, seed_name = starter_factors(seed), seed.name
        with contextlib.suppress(OomcastError):  # without a framework to capture with, the levels stay as they are
            factors = affordable(seed, factors, "torch", options.device)
    text = starter_campaign(seed, factors, framework, options.device, remarks)
    write_text(path, text.replace(json.dumps(seed.name), json.dumps(seed_name), 1))
    runs = plan_campaign(read_campaign(path)).cost().runs
    then = f"oomcast campaign plan {path} --time, which says how long they take"
    print(f"wrote {path}, {runs} runs; change it, then: {then}")
    return 0


def _plan(options: argparse.Namespace) -> int:
    from ...cli.files import check_figure, write_figure
    from ...cli.terminal import terminal
    from .campaign import screen
    from .campaign_plan import plan_campaign
    from .page import draw_screening
    from .report import campaign_plan_as_json, render_campaign_plan, render_screening

    if options.figure and not options.screen:
        raise BadInput("--figure draws the screening; add --screen.")
    check_figure(options.figure)
    use_pythons(options)
    campaign = _read(options)
    plan = plan_campaign(campaign)
    if options.time:
        _time(options, campaign, plan.cases)
    cost = plan.cost(_seconds_per_case(options, campaign))
    screened = None
    if options.screen:
        with static_estimates() as progress:
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


def _time(options: argparse.Namespace, campaign: Campaign, cases: Sequence[CaseSpec]) -> None:
    """Measure the two ends of the array, the smallest levels and mostly the largest; what is measured is kept."""
    from ..measure import Conditions, Limits, run_campaign

    array = [case for case in cases if case.role == "array" and case.repetition == 0]
    limits = Limits(campaign.limits.seconds, campaign.limits.bytes)
    conditions = Conditions(limits, interpreters=use_pythons(options))
    with _store(options) as store, progress_of(campaign.name) as progress:
        run_campaign(
            {case.key: case for case in (array[0], array[-1])}.values(),
            store,
            None,
            conditions=conditions,
            progress=progress,
        )


def _run(options: argparse.Namespace) -> int:
    from ..measure import STEADY_MALLOC, Conditions, Limits, Outcome, engines
    from .campaign import measure_campaign

    interpreters = use_pythons(options)
    campaign = _read(options)
    conditions = Conditions(
        limits=Limits(campaign.limits.seconds, campaign.limits.bytes),
        threads=options.threads,
        interpreters=interpreters,
        variables=STEADY_MALLOC if options.steady_malloc else {},
    )
    if options.engine not in ("local", "ray", "slurm"):
        raise BadInput(f"the engine is local, ray or slurm, not {options.engine!r}.")
    if options.sbatch and options.engine != "slurm":
        raise BadInput("--sbatch gives options of Slurm; add --engine slurm.")
    if options.address and options.engine != "ray":
        raise BadInput("--address is that of a Ray cluster; add --engine ray.")
    engine: engines.Engine = engines.LocalEngine(options.workers)
    if options.engine == "ray":
        engine = engines.RayEngine(options.address) if options.address else engines.RayEngine()
    if options.engine == "slurm":
        # Beside the campaign: a folder of the user's that nodes see, as the job files there must be seen.
        folder = Path(options.file).resolve().parent
        engine = engines.SlurmEngine(folder, tuple(shlex.split(options.sbatch)))
    with _store(options) as store:
        if options.retry_failed:
            store.reopen(campaign.name, [Outcome.CRASH, Outcome.TIMEOUT])
        with progress_of(campaign.name) as tell:
            progress = _with_page(options.page, campaign, store, tell) if options.page else tell
            measured = measure_campaign(campaign, store, engine, conditions=conditions, progress=progress)
        status = store.status(campaign.name)
        failed = status.done - status.outcomes.get(Outcome.OK, 0)
        print(
            f"{campaign.name}: {measured} cases measured now, {status.done} of {status.total} done, {failed} failed, "
            f"in {store.name}"
        )
    return 0


def _with_page(
    file: str, campaign: Campaign, store: Store, tell: Callable[[Progress], None]
) -> Callable[[Progress], None]:
    """Tells as before and, whenever a case has ended, writes the page anew."""
    from ..measure import Selection
    from .page import running_page

    shown = [-1]

    def told(progress: Progress) -> None:
        tell(progress)
        if progress.done != shown[0]:
            shown[0] = progress.done
            measured = list(store.measurements(Selection(campaign=campaign.name)))
            write_text(Path(file), running_page(campaign, progress, measured))

    return told


def _status(options: argparse.Namespace) -> int:
    from ...cli.terminal import terminal
    from ..measure import Outcome, Selection
    from .report import campaign_status_as_json, render_campaign_status

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
    from ...cli.terminal import terminal
    from .gap import fit_campaign, read_gap, write_gap
    from .report import gap_as_json, render_gap

    use_pythons(options)
    campaign = _read(options)
    path = Path(options.output) if options.output else gap_path(options.file)
    source = read_gap(options.source) if options.source else None
    before = None
    if path.exists():
        before = read_gap(path)
    with _store(options, must_exist=True) as store, static_estimates() as progress:
        gap = fit_campaign(campaign, store, features=options.features, before=before, source=source, progress=progress)
    write_gap(gap, path)
    if options.json:
        print(json.dumps({"path": str(path), **gap_as_json(gap)}, indent=2))
    else:
        terminal().print(render_gap(gap))
        print(f"wrote {path}; use it with: oomcast estimate … --estimator tbem --campaign {path}")
    return 0


def _read(options: argparse.Namespace) -> Campaign:
    from .campaign_file import read_campaign

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


def _render_sources(folder: Path, cases: Sequence[CaseSpec]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot make the folder {folder}: {error.strerror}.") from None
    first = [case for case in cases if case.repetition == 0]
    for number, case in enumerate(first, 1):
        write_text(folder / f"{case.role}_{number:03d}.py", case.source)
    print(f"wrote {len(first)} files into {folder}")
