"""`oomcast equation fit|show|predict|samples|compare`: memory as an equation, learnt from real runs."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import BadInput
from ..command_parts import Action, Tell, add_actions, needing, progress_bars

if TYPE_CHECKING:
    from ..measure import Selection, Store
    from .memory_equation import EquationRow, MemoryEquation, RunsOrigin
    from .symbolic import OnGeneration, SearchConfig, SearchState

__all__ = ["SUMMARY", "add_to", "watched_search"]

_LINES = 15
"""Of progress in the log of a batch job."""

SUMMARY = "learn memory as an equation of a workload's parameters, from real runs"
_EXAMPLES = """examples:
  oomcast campaign run unet3d.toml --steady-malloc
  oomcast equation fit unet3d.db --output unet3d.equation.json
  oomcast equation fit unet3d.db --keep-out 0.3 --engine deap --output published.json
  oomcast equation show unet3d.equation.json
  oomcast equation predict unet3d.equation.json edge=96 batch_size=3
  oomcast equation fit vgg.db unet.db --features timeline --output any.json
  oomcast equation fit runs.csv --target peak_bytes --variables edge,batch_size --output mine.json
  oomcast equation predict mine.json --table sizes.csv --output predicted.parquet
  oomcast equation samples unet3d.db --output runs.parquet
  oomcast equation compare unet3d.db --splits 20

exit codes: 0 done, 2 bad input, 1 failure"""


def add_to(commands: Any) -> None:
    description = "Symbolic regression over the runs that campaigns have measured."
    actions = add_actions(commands, "equation", SUMMARY, description, _EXAMPLES)
    _add_fit(actions)
    _add_show(actions)
    _add_predict(actions)
    _add_samples(actions)
    _add_compare(actions)


def _add_fit(actions: Any) -> None:
    parser = actions.add_parser("fit", help="search for the equation of the runs in stores or tables")
    _add_sources(parser)
    parser.add_argument("--output", required=True, metavar="FILE", help="where to write the equation, as JSON")
    _add_features(parser)
    parser.add_argument(
        "--keep-out",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="the share of runs, drawn at random, that judges the equation and is not learnt from (default: 0)",
    )
    parser.add_argument("--config", metavar="FILE", help="settings of the search, as TOML; see docs/howto/equations.md")
    parser.add_argument(
        "--engine",
        metavar="NAME",
        help="how forms are searched: operon (default), or deap, the published search, which is slow: Ctrl-C ends it "
        "with what it has found",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="the same seed finds the same equation (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_learns(_fit))


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="stores of campaigns (SQLite files, postgresql:// URLs), or one table (.csv, .parquet)",
    )
    parser.add_argument(
        "--target", metavar="NAME", help="the column of a table that was measured, in bytes (default: peak_bytes)"
    )
    parser.add_argument("--template", metavar="NAME", help="only runs of this template")
    parser.add_argument("--campaign", metavar="NAME", help="only runs of this campaign")
    parser.add_argument("--framework", metavar="NAME", help="only runs under this framework")
    parser.add_argument(
        "--where", action="append", default=[], metavar="NAME=VALUE", help="only runs with this parameter"
    )
    parser.add_argument(
        "--variables",
        metavar="NAMES",
        help="variables that the equation may use, like edge,batch_size (default: all that vary)",
    )


def _add_features(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--features",
        default="parameters",
        metavar="NAME",
        help="what the variables are: parameters of the runs (default), timeline for figures of their simulated "
        "timeline, or both",
    )


def _add_show(actions: Any) -> None:
    parser = actions.add_parser("show", help="print an equation as text, LaTeX and Python, and its Pareto front")
    parser.add_argument("file", metavar="FILE", help="an equation, written by oomcast equation fit")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_learns(_show))


def _add_predict(actions: Any) -> None:
    parser = actions.add_parser("predict", help="memory at given parameters")
    parser.add_argument("file", metavar="FILE", help="an equation, written by oomcast equation fit")
    parser.add_argument("values", nargs="*", metavar="NAME=VALUE", help="a value for every variable of the equation")
    parser.add_argument("--table", type=Path, metavar="FILE", help="points in the rows of a table: .csv or .parquet")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write that table with the predictions")
    parser.add_argument("--coverage", type=float, default=0.95, metavar="SHARE", help="of the interval (default: 0.95)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_learns(_predict))


def _add_samples(actions: Any) -> None:
    parser = actions.add_parser("samples", help="write the runs of stores as a table, CSV or Parquet")
    _add_sources(parser)
    _add_features(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="what to write: .csv or .parquet")
    parser.set_defaults(run=_learns(_samples))


def _add_compare(actions: Any) -> None:
    parser = actions.add_parser(
        "compare", help="the equation beside XGBoost, forests, networks and hand-made models, on random splits"
    )
    _add_sources(parser)
    parser.add_argument("--splits", type=int, default=20, metavar="N", help="random 70/30 splits (default: 20)")
    parser.add_argument(
        "--published-splits",
        type=int,
        default=0,
        metavar="N",
        help="of which the slow published search gets (default: 0)",
    )
    parser.add_argument(
        "--methods", metavar="NAMES", help="only these, separated by semicolons (default: all that apply)"
    )
    parser.add_argument("--kept", type=Path, metavar="FILE", help="results so far, as JSON: stopped, it goes on there")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=needing("campaign,equations,baselines", _compare))


def _learns(action: Action) -> Action:
    return needing("campaign,equations", action)


def _fit(options: argparse.Namespace) -> int:
    from ...cli.terminal import terminal
    from .equation_file import read_equation, write_equation
    from .memory_equation import fit_equation_to
    from .report import equation_as_json, render_equation

    path = Path(options.output)
    before = read_equation(path) if path.exists() and options.features != "parameters" else None
    config = _config(options)
    with contextlib.ExitStack() as stack:
        tell = stack.enter_context(progress_bars())
        samples = _read(options, stack, tell, before)
        watch = stack.enter_context(watched_search(config.generations, tell)) if config.engine == "deap" else None
        fitted = fit_equation_to(
            samples.rows,
            samples.origin,
            stores=samples.stores,
            features=options.features,
            variables=_names(options),
            config=config,
            keep_out=options.keep_out,
            on_generation=watch,
        )
    write_equation(fitted, path)
    if options.json:
        print(json.dumps({"path": str(path), **equation_as_json(fitted)}, indent=2))
    else:
        terminal().print(render_equation(fitted))
        print(f"wrote {path}; use it with: {_use(fitted, path)}")
    return 0


def _use(fitted: MemoryEquation, path: Path) -> str:
    """An estimator must know the template and the device of the runs; a plain table tells neither."""
    from .memory_equation import UNKNOWN

    if UNKNOWN in (fitted.framework, fitted.device):
        return f"oomcast equation predict {path} {' '.join(f'{name}=…' for name in fitted.names)}"
    return f"oomcast estimate … --estimator equation --equation {path}"


@contextlib.contextmanager
def watched_search(generations: int, tell: Tell) -> Iterator[OnGeneration]:
    """Says how far the published search is: a bar on a terminal, some lines elsewhere. The first Ctrl-C ends the search
    with the best that it has found, a second one ends the command."""
    stopped = False

    def stop(signum: int, frame: Any) -> None:
        nonlocal stopped
        stopped = True
        signal.signal(signal.SIGINT, before)
        print("oomcast: ending the search with the best equation so far; Ctrl-C again ends at once.", file=sys.stderr)

    def watch(state: SearchState) -> bool:
        words = f"best error {state.error:.3g}, size {state.size}"
        tell("published search", state.generation, state.generations, words)
        if not sys.stderr.isatty() and state.generation % max(generations // _LINES, 1) == 0:
            print(f"generation {state.generation} of {state.generations}: {words}", file=sys.stderr, flush=True)
        return not stopped

    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():
        yield watch
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield watch
    finally:
        signal.signal(signal.SIGINT, before)


def _samples(options: argparse.Namespace) -> int:
    from .tables import write_samples

    with contextlib.ExitStack() as stack:
        found = _read(options, stack, stack.enter_context(progress_bars()), None)
    write_samples(found.rows, found.origin, options.output)
    print(f"{len(found.rows):,} runs in {options.output}")
    return 0


def _compare(options: argparse.Namespace) -> int:
    from ...cli.terminal import terminal
    from .comparison import PUBLISHED, compare, methods_for
    from .report import comparison_as_json, render_comparison

    options.features = "parameters"
    with contextlib.ExitStack() as stack:
        tell = stack.enter_context(progress_bars())
        rows = _read(options, stack, tell, None).rows
        wanted = [name.strip() for name in options.methods.split(";")] if options.methods else None
        chosen = [n for n in methods_for(rows, wanted) if n != PUBLISHED or options.published_splits or wanted]
        found = compare(
            rows,
            methods=chosen,
            variables=_names(options),
            splits=options.splits,
            published_splits=options.published_splits or options.splits,
            kept=options.kept,
            tell=lambda words, done, total: tell("comparing", done, total, words),
        )
    if options.json:
        print(json.dumps(comparison_as_json(found), indent=2))
    else:
        terminal().print(render_comparison(found, len(rows)))
    return 0


class _Samples(NamedTuple):
    rows: Sequence[EquationRow]
    origin: RunsOrigin
    stores: Sequence[str]


def _read(
    options: argparse.Namespace, stack: contextlib.ExitStack, tell: Tell, before: MemoryEquation | None
) -> _Samples:
    """The runs of stores, or of one table."""
    from .memory_equation import RunsOrigin, equation_rows, measured_runs
    from .tables import is_table, read_samples

    tables = [source for source in options.sources if is_table(source)]
    if tables:
        if len(options.sources) > 1:
            raise BadInput("give one table alone, or stores alone: what runs of two tables share is not known.")
        rows, origin = read_samples(Path(tables[0]), options.target)
        where = {**dict(map(_setting, options.where)), **({"template": options.template} if options.template else {})}
        kept = [
            row
            for row in rows
            if all({"template": row.template, **row.parameters}.get(n) == v for n, v in where.items())
        ]
        if not kept:
            raise BadInput(f"no row of {tables[0]} is what was asked for.")
        return _Samples(kept, origin, tables)
    if options.target is not None:
        raise BadInput("--target names a column of a table; a store knows what was measured.")
    stores = [stack.enter_context(_store(place)) for place in options.sources]
    measured = measured_runs(stores, _selection(options))
    traced = equation_rows(measured, options.features, before, lambda done, total: tell("timelines", done, total))
    return _Samples(traced, RunsOrigin.of(measured), [store.name for store in stores])


def _names(options: argparse.Namespace) -> list[str] | None:
    return options.variables.split(",") if options.variables else None


def _show(options: argparse.Namespace) -> int:
    from ...cli.terminal import terminal
    from .equation_file import read_equation
    from .report import equation_as_json, render_equation, render_equation_forms

    fitted = read_equation(options.file)
    if options.json:
        print(json.dumps(equation_as_json(fitted), indent=2))
    else:
        terminal().print(render_equation(fitted))
        terminal().print(render_equation_forms(fitted))
    return 0


def _predict(options: argparse.Namespace) -> int:
    from ...cli.terminal import terminal
    from .equation_file import read_equation
    from .report import prediction_as_json, render_prediction

    fitted = read_equation(options.file)
    if options.table is not None:
        return _predict_table(fitted, options)
    if options.output is not None:
        raise BadInput("--output goes with --table: one prediction is printed.")
    values = dict(map(_setting, options.values))
    for name, value in values.items():
        if name in fitted.names:
            continue
        if name not in fitted.fixed:
            raise BadInput(f"the equation has no parameter {name!r}; it takes {', '.join(fitted.names)}.")
        if value != fitted.fixed[name]:
            raise BadInput(f"{name} was {fitted.fixed[name]!r} in every run; the equation tells nothing of {value!r}.")
    predicted = fitted.predict(values, options.coverage)
    if options.json:
        print(json.dumps(prediction_as_json(predicted), indent=2))
    else:
        terminal().print(render_prediction(predicted))
    return 0


def _predict_table(fitted: MemoryEquation, options: argparse.Namespace) -> int:
    from .report import prediction_as_json
    from .tables import read_table, write_table

    if options.values:
        raise BadInput("give NAME=VALUE or --table, not both.")
    points = read_table(options.table)
    rows = [{**row, **prediction_as_json(fitted.predict(row, options.coverage))} for row in points]
    if options.output is not None:
        write_table(rows, options.output)
    if options.json or options.output is None:
        print(json.dumps(rows, indent=2))
    else:
        print(f"{len(rows):,} predictions in {options.output}")
    return 0


def _selection(options: argparse.Namespace) -> Selection:
    from ..measure import Selection

    return Selection(
        campaign=options.campaign,
        template=options.template,
        framework=options.framework,
        parameters=dict(map(_setting, options.where)),
    )


def _config(options: argparse.Namespace) -> SearchConfig:
    import dataclasses

    from .symbolic import SearchConfig

    overrides = {name: getattr(options, name) for name in ("engine", "seed") if getattr(options, name) is not None}
    try:
        config = SearchConfig.read(options.config) if options.config else SearchConfig()
        return dataclasses.replace(config, **overrides)
    except ValueError as error:
        raise BadInput(f"{str(error).rstrip('.')}.") from None


def _setting(text: str) -> tuple[str, Any]:
    name, equals, written = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise BadInput(f"cannot read {text!r}; write NAME=VALUE.")
    try:
        value = json.loads(written.lower(), parse_constant=float)
    except ValueError:
        return name, written
    return name, value if isinstance(value, (int, float)) else written


@contextlib.contextmanager
def _store(place: str) -> Iterator[Store]:
    from ..measure import Store

    if "://" not in place and not Path(place).exists():
        raise BadInput(
            f"there is no store {place}; oomcast campaign run makes one, and a table ends in .csv or .parquet."
        )
    with Store.open(place) as store:
        yield store
