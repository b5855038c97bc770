"""A campaign as a person writes it: a TOML file that names a template, its factors and how to run them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ..devices import find_gpu
from ..errors import BadInput, OomcastError, UnknownName, UnreadableFile
from ..units import parse_bytes
from ._factors import Factor, Value
from ._plans import METHODS, Method, make_plan
from ._template import Parameter, Template
from .templates import FRAMEWORKS, TEMPLATES

__all__ = ["Campaign", "CampaignLimits", "read_campaign"]

_LEAST_SECONDS = 1.0
_MOST_SEED = 2**63


@dataclass(frozen=True)
class CampaignLimits:
    """What one case may take, and what the whole campaign may."""

    seconds: float = 600.0
    bytes: int | None = None
    """Of one case; None where the file sets none."""
    total_seconds: float | None = None


@dataclass(frozen=True)
class Campaign:
    """All that decides a campaign's cases, checked."""

    name: str
    template: str
    framework: str
    device: str
    factors: tuple[Factor, ...]
    layer_factors: tuple[Factor, ...] = ()
    """Those that deform the template's layers, where `factors` set its hyperparameters.

    The method uses orthogonality for both. One mixed array serves: its layer columns are an orthogonal array of
    deformations, the others one of hyperparameters, and every deformation meets every hyperparameter level equally
    often. Crossing two arrays would give the product of their runs; this needs no more than the larger one has, where
    its columns have room.
    """
    fixed: Mapping[str, Value] = field(default_factory=dict, hash=False)
    """Parameters that all cases share and that are not the template's own defaults."""
    method: Method = "orthogonal"
    strength: int = 2
    runs: int = 0
    """For random and adaptive plans."""
    blocks: tuple[tuple[Factor, ...], ...] = ()
    """For plans of blocks."""
    repetitions: int = 1
    held_out: int = 0
    """Random other configurations, measured to check what was learned from the rest."""
    held_out_factors: tuple[Factor, ...] = ()
    """Levels from which those are drawn, where they are not the campaign's own."""
    steps: int = 3
    seed: int = 0
    limits: CampaignLimits = field(default_factory=CampaignLimits)

    @property
    def all_factors(self) -> tuple[Factor, ...]:
        return self.factors + self.layer_factors


def read_campaign(path: str | Path, templates: Mapping[str, Template] = TEMPLATES) -> Campaign:
    """Read and check a campaign file; whatever is wrong is told with the file and the key."""
    table = _Table(str(path), "", _toml(Path(path)))
    try:
        return _campaign(table, templates, Path(path).stem)
    except UnreadableFile:
        raise
    except OomcastError as error:
        # What other rooms say of a value names no file.
        raise BadInput(f"{path}: {error}") from None


class _Table:
    """One table of the file: values by key and type, each key used once."""

    def __init__(self, file: str, name: str, values: Mapping[str, Any]) -> None:
        self._file, self._name, self._values = file, name, values
        self._known: list[str] = []

    def error(self, key: str, text: str) -> UnreadableFile:
        return UnreadableFile(f"{self._file}: {self.full(key)}: {text}")

    def full(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key

    def text(self, key: str, default: str | None = None) -> str:
        value = self._take(key, default)
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, f"must be a text, not {value!r}.")
        return value

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(key, f"must be a whole number from {least} to {most}, not {value!r}.")
        return value

    def seconds(self, key: str, default: float | None) -> float | None:
        value = self._take(key, default, may_miss=True)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(key, f"must be a number of seconds, not {value!r}.")
        if not value >= _LEAST_SECONDS:
            raise self.error(key, f"{value:g} seconds are below one case: a fresh process takes longer to start.")
        return float(value)

    def size(self, key: str) -> int | None:
        value = self._take(key, None, may_miss=True)
        if value is None:
            return None
        if isinstance(value, str):
            try:
                value = parse_bytes(value)
            except BadInput as error:
                raise self.error(key, str(error)) from None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(key, f"must be a size such as '8GiB' or a number of bytes, not {value!r}.")
        return value

    def one_of(self, key: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(key, default)
        if value not in choices:
            raise self.error(key, str(UnknownName("value", value, choices, f"It is one of {', '.join(choices)}.")))
        return value

    def table(self, key: str, *, required: bool = False) -> _Table:
        value = self._take(key, None if required else {})
        if not isinstance(value, dict):
            raise self.error(key, f"must be a table, [{self.full(key)}], not {value!r}.")
        return _Table(self._file, self.full(key), value)

    def tables(self, key: str) -> list[_Table]:
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise self.error(key, f"must be tables, [[{self.full(key)}]], not {value!r}.")
        return [_Table(self._file, self.full(key), entry) for entry in value]

    def items(self) -> list[tuple[str, Any]]:
        """Every entry: for tables whose keys are the user's."""
        return list(self._values.items())

    def finish(self) -> None:
        """Refuse what no one asked for: a mistyped key must not be ignored."""
        for key in self._values:
            if key not in self._known:
                known = f"Known here: {', '.join(self._known)}."
                raise self.error(key, str(UnknownName("key", key, self._known, known)))

    def _take(self, key: str, default: object, *, may_miss: bool = False) -> Any:
        self._known.append(key)
        if key in self._values:
            return self._values[key]
        if default is None and not may_miss:
            raise self.error(key, "is missing; add it.")
        return default


def _toml(path: Path) -> dict[str, Any]:
    # The standard library has it from 3.11 on; the same code under another name serves 3.10.
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        values: dict[str, Any] = toml.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} is not a TOML file: {error}.") from None
    return values


def _campaign(table: _Table, templates: Mapping[str, Template], stem: str) -> Campaign:
    name = table.text("template")
    if name not in templates:
        known = f"There are {', '.join(templates)}."
        raise table.error("template", str(UnknownName("template", name, templates, known)))
    parameters = {parameter.name: parameter for parameter in templates[name].parameters}
    factors = _factors(table.table("factors", required=True), name, parameters)
    layer_factors = _factors(table.table("layer_factors"), name, parameters)
    fixed_table = table.table("fixed")
    fixed = {key: _level(fixed_table, key, value, name, parameters) for key, value in fixed_table.items()}
    if not factors + layer_factors:
        raise table.error("factors", "has no factor; give at least one, such as batch_size = [4, 8, 16, 32].")
    _refuse_twice(table, {"factors": factors, "layer_factors": layer_factors}, fixed)
    plan = table.table("plan")
    campaign = Campaign(
        name=table.text("name", stem),
        template=name,
        framework=table.one_of("framework", FRAMEWORKS, "torch"),
        device=_device(table),
        factors=factors,
        layer_factors=layer_factors,
        fixed=fixed,
        method=cast(Method, plan.one_of("method", METHODS, "orthogonal")),
        strength=plan.whole("strength", 2, 2, 16),
        runs=plan.whole("runs", 0, 0, 50_000),
        blocks=tuple(_factors(block, name, parameters) for block in plan.tables("blocks")),
        repetitions=table.whole("repetitions", 1, 1, 1000),
        held_out=table.whole("held_out", 0, 0, 50_000),
        held_out_factors=_factors(table.table("held_out_factors"), name, parameters),
        steps=table.whole("steps", 3, 1, 100_000),
        seed=table.whole("seed", 0, 0, _MOST_SEED),
        limits=_limits(table.table("limits")),
    )
    plan.finish()
    table.finish()
    _check(table, plan, campaign)
    return campaign


def _factors(table: _Table, template: str, parameters: Mapping[str, Parameter]) -> tuple[Factor, ...]:
    factors = []
    for name, levels in table.items():
        if not isinstance(levels, list) or not levels:
            raise table.error(name, f"must be a list of levels, such as [4, 8, 16, 32], not {levels!r}.")
        checked = tuple(_level(table, name, level, template, parameters) for level in levels)
        try:
            factors.append(Factor(name, checked))
        except BadInput as error:
            raise table.error(name, str(error)) from None
    return tuple(factors)


def _level(table: _Table, name: str, value: Any, template: str, parameters: Mapping[str, Parameter]) -> Value:
    if name not in parameters:
        known = f"It has {', '.join(parameters)}."
        raise table.error(name, str(UnknownName(f"parameter of template {template!r}", name, parameters, known)))
    if not isinstance(value, (int, float, str, bool)) or not parameters[name].accepts(value):
        takes = parameters[name].takes()
        raise table.error(name, f"template {template!r} does not take {value!r} here; it takes {takes}.")
    return value


def _refuse_twice(table: _Table, tables: Mapping[str, tuple[Factor, ...]], fixed: Mapping[str, Value]) -> None:
    seen = dict.fromkeys(fixed, "fixed")
    for place, factors in tables.items():
        for factor in factors:
            if factor.name in seen:
                raise table.error(f"{place}.{factor.name}", f"is also under [{seen[factor.name]}]; keep one of them.")
            seen[factor.name] = place


def _device(table: _Table) -> str:
    device = table.text("device", "cpu")
    if device in ("cpu", "cuda"):
        return device
    try:
        return find_gpu(device).name
    except BadInput as error:
        raise table.error("device", f"{error} Or write cpu, or cuda for any GPU.") from None


def _limits(table: _Table) -> CampaignLimits:
    seconds = table.seconds("seconds", 600.0)
    assert seconds is not None
    size = table.size("bytes")
    total = table.seconds("total_seconds", None)
    table.finish()
    if total is not None and total < seconds:
        raise table.error("total_seconds", f"{total:g} is below one case, which may take {seconds:g} seconds.")
    return CampaignLimits(seconds, size, total)


def _check(table: _Table, plan: _Table, campaign: Campaign) -> None:
    """That the plan can be made, and the held-out cases drawn from what it leaves."""
    if campaign.blocks and campaign.method != "blocks":
        raise plan.error("blocks", f"counts for plans of method 'blocks', not {campaign.method!r}.")
    if campaign.runs and campaign.method in ("orthogonal", "full", "blocks"):
        raise plan.error(
            "runs", f"counts for random and adaptive plans; a plan of method {campaign.method!r} has its own."
        )
    try:
        make_plan(
            campaign.method,
            campaign.all_factors,
            strength=campaign.strength,
            runs=campaign.runs,
            seed=campaign.seed,
            blocks=campaign.blocks,
        )
    except BadInput as error:
        key = {"random": "runs", "adaptive": "runs", "blocks": "blocks"}.get(campaign.method, "method")
        raise plan.error(key, str(error)) from None
    names = {factor.name for factor in campaign.all_factors}
    for factor in campaign.held_out_factors:
        if factor.name not in names:
            raise table.error(
                f"held_out_factors.{factor.name}", "is not a factor of the campaign; its cases do not vary it."
            )
