"""Labels from real runs: each network trained for a few steps in a process of its own, by the campaign runner."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from oomcast.errors import BadInput, UnknownName

from ...measure import (
    CaseSpec,
    Conditions,
    Limits,
    Measurement,
    Outcome,
    Progress,
    Store,
    case_key,
    engines,
    run_campaign,
)
from .. import published_models as _gpumemnet_models
from .. import published_plans as _gpumemnet_plans
from . import modules as _modules
from . import network as _network
from .labelling import CPU
from .network import Network
from .rows import Label, row_id
from .settings import RUNS, Settings

__all__ = ["case_of", "measured_labels", "runs_path"]

_OPTIMIZERS = {
    "sgd": "torch.optim.SGD(model.parameters(), lr=1e-3)",
    "sgd-momentum": "torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)",
    "adam": "torch.optim.Adam(model.parameters(), lr=1e-3)",
    "adamw": "torch.optim.AdamW(model.parameters(), lr=1e-3)",
}
_TRAINING = """

network = Network(**{network!r})
model = build(network).to({device!r})
optimizer = {optimizer}
for _ in range({steps}):
    inputs, classes = example(network, network.batch_size)
    inputs, classes = inputs.to({device!r}), classes.to({device!r})
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), classes).backward()
    optimizer.step()
"""


def runs_path(path: Path) -> Path:
    """The store of a data set's runs."""
    return path.with_name(f"{path.name}.db")


def measured_labels(
    networks: Sequence[Network],
    settings: Settings,
    path: Path,
    workers: int,
    restart: bool,
    seconds: float,
    on_progress: Callable[[str, int, int], None],
) -> Mapping[str, Label | str]:
    """By row: its label, or why there is none. Runs that are in the store are not repeated."""
    _check(settings)
    if restart:
        for part in ("", "-wal", "-shm"):
            runs_path(path).with_name(f"{runs_path(path).name}{part}").unlink(missing_ok=True)
    cases = [case_of(network, settings, path.name) for network in networks]
    names = {case.key: row_id(network) for case, network in zip(cases, networks, strict=True)}
    by_row: dict[str, Label | str] = {}

    def tell(progress: Progress) -> None:
        on_progress("real runs", progress.done, progress.total)

    with Store.open(runs_path(path)) as store:
        run_campaign(
            cases,
            store,
            engines.LocalEngine(workers),
            conditions=Conditions(limits=Limits(seconds)),
            progress=tell,
        )
        for measurement in store.measurements():
            if measurement.case.key in names:
                by_row[names[measurement.case.key]] = _label(measurement, settings)
    return by_row


def _check(settings: Settings) -> None:
    if settings.optimizer not in _OPTIMIZERS:
        raise UnknownName("optimizer for real runs", settings.optimizer, _OPTIMIZERS)
    if settings.precision != "fp32":
        raise BadInput(f"real runs of data sets are made in fp32, not {settings.precision}.")


def _label(measurement: Measurement, settings: Settings) -> Label | str:
    outcome = {Outcome.OK: "fits", Outcome.OOM: "oom"}.get(measurement.outcome)
    if outcome is None:
        return f"its run ended by {measurement.outcome.value}: {measurement.message}"
    held = outcome == "fits"
    return Label(
        source=RUNS,
        device=settings.device,
        environment=settings.environment,
        optimizer=settings.optimizer,
        precision=settings.precision,
        peak_allocated=measurement.counters.get("cuda_peak_allocated") if held else None,
        peak_reserved=measurement.counters.get("cuda_peak_reserved") if held else None,
        device_total=measurement.peak_bytes if held else None,
        outcome=outcome,
    )


def case_of(network: Network, settings: Settings, campaign: str) -> CaseSpec:
    device = CPU if settings.device == CPU else "cuda"
    source = _definitions() + _TRAINING.format(
        network=asdict(network), device=device, optimizer=_OPTIMIZERS[settings.optimizer], steps=settings.steps
    )
    template, parameters = f"dataset-{network.kind}", {key: str(value) for key, value in asdict(network).items()}
    key = case_key(template, parameters, "torch", settings.device, 0, settings.steps, source)
    return CaseSpec(key, campaign, "array", template, parameters, "torch", settings.device, 0, settings.steps, source)


@functools.cache
def _definitions() -> str:
    """The networks' code in one file that needs torch alone: oomcast itself would be in the figure."""
    parts = [_without_own_imports(module) for module in (_gpumemnet_plans, _gpumemnet_models, _network, _modules)]
    return "\n\n".join(
        ['"""A network of a data set, trained for a few steps."""\nfrom __future__ import annotations', *parts]
    )


def _without_own_imports(module: ModuleType) -> str:
    tree = ast.parse(inspect.getsource(module))
    tree.body = [statement for statement in tree.body if not _is_own_import(statement)]
    return ast.unparse(tree)


def _is_own_import(statement: Any) -> bool:
    """Or the module's docstring, or its `__future__`, which stands on top already."""
    if isinstance(statement, ast.ImportFrom):
        return statement.level > 0 or statement.module == "__future__"
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
