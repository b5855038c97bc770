"""`oomcast equation fit|show|predict`: memory as an equation, learnt from the real runs of stores."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..errors import BadInput
from ._terminal import terminal

if TYPE_CHECKING:
    from ..learn import SearchConfig
    from ..measure import Selection, Store

__all__ = ["add_to"]

_EXAMPLES = """examples:
  oomcast campaign run unet3d.toml --steady-malloc
  oomcast equation fit unet3d.db --output unet3d.equation.json
  oomcast equation fit unet3d.db --keep-out 0.3 --engine deap --output published.json
  oomcast equation show unet3d.equation.json
  oomcast equation predict unet3d.equation.json edge=96 batch_size=3
  oomcast equation fit vgg.db unet.db --features timeline --output any.json

exit codes: 0 done, 2 bad input, 1 failure"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "equation",
        help="learn memory as an equation of a workload's parameters, from real runs",
        description="Symbolic regression over the runs that campaigns have measured.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=type(parser))
    _add_fit(actions)
    _add_show(actions)
    _add_predict(actions)


def _add_fit(actions: Any) -> None:
    parser = actions.add_parser("fit", help="search for the equation of the runs in one or more stores")
    parser.add_argument("stores", nargs="+", metavar="STORE", help="SQLite files or postgresql:// URLs")
    parser.add_argument("--output", required=True, metavar="FILE", help="where to write the equation, as JSON")
    parser.add_argument("--template", metavar="NAME", help="only runs of this template")
    parser.add_argument("--campaign", metavar="NAME", help="only runs of this campaign")
    parser.add_argument("--framework", metavar="NAME", help="only runs under this framework")
    parser.add_argument(
        "--where", action="append", default=[], metavar="NAME=VALUE", help="only runs with this parameter"
    )
    parser.add_argument("--variables", metavar="NAMES", help="what it may use, with commas (default: all that varies)")
    parser.add_argument(
        "--features",
        default="parameters",
        metavar="NAME",
        help="what the variables are: the runs' parameters, figures of their simulated timeline, or both",
    )
    parser.add_argument("--keep-out", type=float, default=0.0, metavar="SHARE", help="runs at random that only judge")
    parser.add_argument("--config", metavar="FILE", help="settings of the search, as TOML; see docs/equations.md")
    parser.add_argument("--engine", metavar="NAME", help="operon, or deap: the published search, slow")
    parser.add_argument("--seed", type=int, metavar="N", help="the same seed finds the same equation (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_guarded(_fit))


def _add_show(actions: Any) -> None:
    parser = actions.add_parser("show", help="print an equation as text, LaTeX and Python, and its Pareto front")
    parser.add_argument("file", metavar="FILE", help="what fit has written")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_guarded(_show))


def _add_predict(actions: Any) -> None:
    parser = actions.add_parser("predict", help="memory at given parameters")
    parser.add_argument("file", metavar="FILE", help="what fit has written")
    parser.add_argument("values", nargs="*", metavar="NAME=VALUE", help="every parameter of the equation")
    parser.add_argument("--coverage", type=float, default=0.95, metavar="SHARE", help="of the interval (default: 0.95)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_guarded(_predict))


def _guarded(action: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Equations need extra packages; which one is missing is told in a sentence."""

    def run(options: argparse.Namespace) -> int:
        try:
            return action(options)
        except ImportError as error:
            if error.name is None or error.name.startswith("oomcast"):
                raise
            raise BadInput(
                f"equations need the package {error.name}; install it with: pip install 'oomcast[campaign,equations]'"
            ) from None

    return run


def _fit(options: argparse.Namespace) -> int:
    from ..estimate import fit_equation, read_equation, write_equation
    from ..report import equation_as_json, render_equation

    path = Path(options.output)
    before = read_equation(path) if path.exists() and options.features != "parameters" else None
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(_store(place)) for place in options.stores]
        progress = stack.enter_context(_counting("timelines"))
        fitted = fit_equation(
            stores,
            _selection(options),
            features=options.features,
            variables=options.variables.split(",") if options.variables else None,
            config=_config(options),
            keep_out=options.keep_out,
            before=before,
            progress=progress,
        )
    write_equation(fitted, path)
    if options.json:
        print(json.dumps({"path": str(path), **equation_as_json(fitted)}, indent=2))
    else:
        terminal().print(render_equation(fitted))
        print(f"wrote {path}; use it with: oomcast estimate … --estimator equation --equation {path}")
    return 0


def _show(options: argparse.Namespace) -> int:
    from ..estimate import read_equation
    from ..report import equation_as_json, render_equation, render_equation_forms

    fitted = read_equation(options.file)
    if options.json:
        print(json.dumps(equation_as_json(fitted), indent=2))
    else:
        terminal().print(render_equation(fitted))
        terminal().print(render_equation_forms(fitted))
    return 0


def _predict(options: argparse.Namespace) -> int:
    from ..estimate import read_equation
    from ..report import prediction_as_json, render_prediction

    fitted = read_equation(options.file)
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


def _selection(options: argparse.Namespace) -> Selection:
    from ..measure import Selection

    return Selection(
        campaign=options.campaign,
        template=options.template,
        framework=options.framework,
        parameters=dict(map(_setting, options.where)),
    )


def _config(options: argparse.Namespace) -> SearchConfig:
    from ..learn import SearchConfig

    given = {name: getattr(options, name) for name in ("engine", "seed") if getattr(options, name) is not None}
    try:
        config = SearchConfig.read(options.config) if options.config else SearchConfig()
        return replace(config, **given)
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
        raise BadInput(f"there is no store {place}; oomcast campaign run makes one.")
    with Store.open(place) as store:
        yield store


@contextlib.contextmanager
def _counting(what: str) -> Iterator[Callable[[int, int], None]]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
