"""A campaign as a person writes it: a TOML file that names its seeds, their factors and how to run them.

`starter_campaign` writes one to begin with, `read_campaign` reads and checks it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ...devices import find_gpu
from ...errors import BadInput, OomcastError, UnknownName, UnreadableFile
from ...tables import Table, read_toml
from .factors import Factor, Value
from .plans import METHODS, Method, make_plan
from .script_seed import ScriptSeed
from .seeds import TEXT_ENDING, Seed, find_seed
from .specification import Rules, read_library
from .templates import TEMPLATES, Parameter, complete

__all__ = ["SEED_FACTOR", "Campaign", "CampaignLimits", "read_campaign", "starter_campaign", "starter_factors"]

_LEAST_SECONDS = 1.0
_MOST_SEED = 2**63
SEED_FACTOR = "template"
"""The factor whose levels are the seeds, where a campaign has several."""
_KEYS = (
    *(
        "name",
        "template",
        "job",
        "script",
        "specification",
        "framework",
        "device",
        "factors",
        "layer_factors",
        "fixed",
        "plan",
    ),
    *("repetitions", "held_out", "held_out_factors", "steps", "seed", "limits"),
)


@dataclass(frozen=True)
class CampaignLimits:
    """What one case may take, and what the whole campaign may."""

    seconds: float = 600.0
    bytes: int | None = None
    """Memory that one case may take; None where the file sets no limit."""
    total_seconds: float | None = None


@dataclass(frozen=True)
class Campaign:
    """All that decides a campaign's cases, checked."""

    name: str
    seeds: tuple[Seed, ...]
    """Templates and job files whose networks are varied, at least one: the set of seeds of the paper's algorithm 1.

    Several are one more factor: an array of all columns spreads the seeds as evenly as every other level.
    """
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
    """The number of cases, for random and adaptive plans."""
    blocks: tuple[tuple[Factor, ...], ...] = ()
    """The blocks, for plans of the method `blocks`."""
    repetitions: int = 1
    held_out: int = 0
    """Random other configurations, measured to check what was learned from the rest."""
    held_out_factors: tuple[Factor, ...] = ()
    """Levels from which those are drawn, where they are not the campaign's own."""
    steps: int = 3
    seed: int = 0
    limits: CampaignLimits = field(default_factory=CampaignLimits)
    rules: Rules | None = field(default=None, hash=False)
    """Specifications of the campaign's own, beside oomcast's."""

    @property
    def all_factors(self) -> tuple[Factor, ...]:
        own = self.factors + self.layer_factors
        if len(self.seeds) == 1:
            return own
        return (Factor(SEED_FACTOR, tuple(seed.name for seed in self.seeds)), *own)

    @property
    def template(self) -> str:
        """The seeds' names, for people."""
        return " + ".join(seed.name for seed in self.seeds)

    def seed_of(self, case: Mapping[str, Value]) -> Seed:
        """The seed of a case: its parameters name it where there are several."""
        named = case.get(SEED_FACTOR, self.seeds[0].name) if len(self.seeds) > 1 else self.seeds[0].name
        return next(seed for seed in self.seeds if seed.name == named)

    def parameters(self, case: Mapping[str, Value]) -> dict[str, Value]:
        """All parameters of a case: its own, those that all cases share, the seed's defaults."""
        seed = self.seed_of(case)
        known = {parameter.name for parameter in seed.parameters}
        fixed = {name: value for name, value in self.fixed.items() if name in known}
        own = {name: value for name, value in case.items() if name != SEED_FACTOR or len(self.seeds) == 1}
        named = {SEED_FACTOR: seed.name} if len(self.seeds) > 1 else {}
        return {**named, **complete(seed, {**fixed, **own})}


def read_campaign(path: str | Path) -> Campaign:
    """Read and check a campaign file; whatever is wrong is told with the file and the key."""
    table = Table(str(path), "", read_toml(Path(path)))
    try:
        return _campaign(table, Path(path))
    except UnreadableFile:
        raise
    except OomcastError as error:
        # What other rooms say of a value names no file.
        raise BadInput(f"{path}: {error}") from None


def _campaign(table: Table, path: Path) -> Campaign:
    table.only(*_KEYS)
    table.require("factors")
    seeds = _seeds(table, path.parent)
    factors = _factors(table.table("factors"), seeds)
    layer_factors = _factors(table.table("layer_factors"), seeds)
    fixed_table = table.table("fixed")
    fixed = {key: _level(fixed_table, key, value, seeds, every=False) for key, value in fixed_table.values.items()}
    if not factors + layer_factors:
        raise table.error_at("factors", "has no factor; give at least one, such as batch_size = [4, 8, 16, 32].")
    _refuse_twice(table, {"factors": factors, "layer_factors": layer_factors}, fixed)
    plan = table.table("plan")
    plan.only("method", "strength", "runs", "blocks")
    campaign = Campaign(
        name=table.text("name", path.stem),
        seeds=seeds,
        framework=_framework(table, seeds),
        device=_device(table),
        factors=factors,
        layer_factors=layer_factors,
        fixed=fixed,
        method=cast(Method, plan.one_of("method", METHODS, "orthogonal")),
        strength=plan.whole("strength", 2, least=2, most=16),
        runs=plan.whole("runs", 0, least=0, most=50_000),
        blocks=tuple(_factors(block, seeds) for block in plan.tables("blocks")),
        repetitions=table.whole("repetitions", 1, most=1000),
        held_out=table.whole("held_out", 0, least=0, most=50_000),
        held_out_factors=_factors(table.table("held_out_factors"), seeds),
        steps=table.whole("steps", 3, most=100_000),
        seed=table.whole("seed", 0, least=0, most=_MOST_SEED),
        limits=_limits(table.table("limits")),
        rules=_rules(table.table("specification"), path.parent),
    )
    _check(table, plan, campaign)
    return campaign


def _seeds(table: Table, folder: Path) -> tuple[Seed, ...]:
    """The templates, job files and scripts that are named, each alone or in a list."""
    seeds = []
    for key in ("template", "job", "script"):
        value = table.values.get(key, [])
        names = value if isinstance(value, list) else [value]
        for name in names:
            if not isinstance(name, str) or not name.strip():
                raise table.error_at(key, f"must be a name or a list of names, not {value!r}.")
            try:
                seeds.append(_seed(key, name, folder))
            except OomcastError as error:
                raise table.error_at(key, str(error)) from None
    if not seeds:
        raise table.error_at(
            "template", "is missing; add it, or job = the path of a job file, or script = the line that starts one."
        )
    if len({seed.name for seed in seeds}) < len(seeds):
        raise table.error_at("template", "names a seed twice; write each once.")
    return tuple(seeds)


def _seed(key: str, name: str, folder: Path) -> Seed:
    if key == "script":
        return ScriptSeed.read(name, folder)
    if name in TEMPLATES and key == "template":
        return find_seed(name)
    if key == "template" and not name.endswith(TEXT_ENDING):
        known = f"There are {', '.join(TEMPLATES)}; a job file is named as job = {name!r}."
        raise UnknownName("template", name, TEMPLATES, known)
    return find_seed(str(folder / name))


def _framework(table: Table, seeds: Sequence[Seed]) -> str:
    guessed = next((seed.framework for seed in seeds if seed.digest), "torch")
    offered = [name for name in seeds[0].frameworks if all(name in seed.frameworks for seed in seeds)]
    return table.one_of("framework", offered, guessed)


def _rules(table: Table, folder: Path) -> Rules | None:
    """`files` of processes; `case` names the one for parameters, a kind of layer the one for such layers."""
    if not table.values:
        return None
    table.require("files")
    named = table.values["files"]
    if not isinstance(named, list) or not named or not all(isinstance(name, str) for name in named):
        raise table.error_at("files", f"must be a list of .sofl files, not {named!r}.")
    library = read_library([folder / name for name in named])
    processes = {}
    for key in table.values:
        if key != "files":
            try:
                processes[key] = library.process(table.text(key, ""))
            except OomcastError as error:
                raise table.error_at(key, str(error)) from None
    if not processes:
        raise table.error("names files but no process; write case = NAME for parameters, or conv = NAME for layers.")
    case = processes.pop("case", None)
    try:
        return Rules(processes, case)
    except OomcastError as error:
        raise table.error(str(error)) from None


def _factors(table: Table, seeds: Sequence[Seed]) -> tuple[Factor, ...]:
    factors = []
    for name, levels in table.values.items():
        if not isinstance(levels, list) or not levels:
            raise table.error_at(name, f"must be a list of levels, such as [4, 8, 16, 32], not {levels!r}.")
        checked = tuple(_level(table, name, level, seeds) for level in levels)
        try:
            factors.append(Factor(name, checked))
        except BadInput as error:
            raise table.error_at(name, str(error)) from None
    return tuple(factors)


def _level(table: Table, name: str, value: Any, seeds: Sequence[Seed], *, every: bool = True) -> Value:
    """A value that all seeds take; without `every`, all of those that have such a parameter."""
    known = {seed.name: {one.name: one for one in seed.parameters} for seed in seeds}
    having = [seed for seed, parameters in known.items() if name in parameters]
    lacking = [seed for seed in known if seed not in having]
    if (lacking and every) or not having:
        parameters = known[lacking[0]]
        words = f"It has {', '.join(parameters)}."
        raise table.error_at(name, str(UnknownName(f"parameter of {_kind(lacking[0])}", name, parameters, words)))
    for seed in having:
        parameter = known[seed][name]
        if not isinstance(value, (int, float, str, bool)) or not parameter.accepts(value):
            raise table.error_at(name, f"{_kind(seed)} does not take {value!r} here; it takes {parameter.takes()}.")
    return cast(Value, value)


def _kind(seed: str) -> str:
    return f"template {seed!r}" if seed in TEMPLATES else f"job {seed!r}"


def _refuse_twice(table: Table, tables: Mapping[str, tuple[Factor, ...]], fixed: Mapping[str, Value]) -> None:
    seen = dict.fromkeys(fixed, "fixed")
    for place, factors in tables.items():
        for factor in factors:
            if factor.name in seen:
                raise table.error_at(
                    f"{place}.{factor.name}", f"is also under [{seen[factor.name]}]; keep one of them."
                )
            seen[factor.name] = place


def _device(table: Table) -> str:
    device = table.text("device", "cpu")
    if device in ("cpu", "cuda"):
        return device
    try:
        return find_gpu(device).name
    except BadInput as error:
        raise table.error_at("device", f"{error} Or write cpu, or cuda for any GPU.") from None


def _limits(table: Table) -> CampaignLimits:
    table.only("seconds", "bytes", "total_seconds")
    seconds, total = table.number("seconds", CampaignLimits.seconds), table.number("total_seconds", None)
    for key, value in (("seconds", seconds), ("total_seconds", total)):
        if value is not None and value < _LEAST_SECONDS:
            raise table.error_at(key, f"{value:g} seconds are below one case: a fresh process takes longer to start.")
    if total is not None and total < seconds:
        raise table.error_at("total_seconds", f"{total:g} is below one case, which may take {seconds:g} seconds.")
    return CampaignLimits(seconds, table.size("bytes"), total)


def _check(table: Table, plan: Table, campaign: Campaign) -> None:
    """That the plan can be made, and the held-out cases drawn from what it leaves."""
    if campaign.blocks and campaign.method != "blocks":
        raise plan.error_at("blocks", f"counts for plans of method 'blocks', not {campaign.method!r}.")
    if campaign.runs and campaign.method in ("orthogonal", "full", "blocks"):
        raise plan.error_at(
            "runs", f"counts for random, adaptive and bayesian plans; a plan of method {campaign.method!r} has its own."
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
        key = {"random": "runs", "adaptive": "runs", "bayesian": "runs", "blocks": "blocks"}.get(
            campaign.method, "method"
        )
        raise plan.error_at(key, str(error)) from None
    names = {factor.name for factor in campaign.all_factors}
    for factor in campaign.held_out_factors:
        if factor.name not in names:
            raise table.error_at(
                f"held_out_factors.{factor.name}", "is not a factor of the campaign; its cases do not vary it."
            )


_LEVELS = 4
_FACTORS = 4
_NOT_OFFERED = ("channels", "classes", "dropout")
"""Numbers that are facts of the data, or that memory hardly depends on."""


def starter_factors(seed: Seed) -> tuple[Factor, ...]:
    """A template's first sizes, each at four levels."""
    offered = [one for one in seed.parameters if one.name not in _NOT_OFFERED and _levels(one)][:_FACTORS]
    return tuple(Factor(one.name, tuple(_levels(one))) for one in offered)


def starter_campaign(
    seed: Seed,
    factors: Sequence[Factor],
    framework: str = "torch",
    device: str = "cpu",
    remarks: Mapping[str, str] | None = None,
) -> str:
    """The text of a TOML file: these factors, all that the seed takes besides as comments.

    `remarks` stand beside factors, by their names.
    """
    if framework not in seed.frameworks:
        known = f"There are {' and '.join(seed.frameworks)}."
        raise UnknownName("framework", framework, seed.frameworks, known)
    named = {factor.name for factor in factors}
    others = [one for one in seed.parameters if one.name not in named]
    key = "template" if seed.name in TEMPLATES else "script" if isinstance(seed, ScriptSeed) else "job"
    lines = [f"{factor.name} = [{', '.join(map(_written, factor.levels))}]" for factor in factors]
    told = [f"     # {remarks[factor.name]}" if remarks and factor.name in remarks else "" for factor in factors]
    return "\n".join(
        [
            f"# What {framework} adds to the static estimate of {seed.name}.",
            "#   oomcast campaign plan FILE, then run, fit and report",
            f"{key} = {_written(seed.name)}",
            f'framework = "{framework}"',
            f'device = "{device}"      # cpu, cuda or a GPU of oomcast devices',
            "steps = 2",
            "repetitions = 1",
            "held_out = 8        # random other configurations, to check what was learned",
            "seed = 0",
            "",
            "[plan]",
            'method = "orthogonal"     # or full; random, adaptive and bayesian take runs = N',
            "strength = 2",
            "",
            "[factors]",
            *(line + words for line, words in zip(lines, told, strict=True)),
            "",
            "[layer_factors]     # what deforms the layers; any of those below",
            "",
            "[fixed]             # what all cases share; any of those below",
            *(f"# {line}" for line in _described(others)),
            "",
            "[limits]            # of one case",
            # On a CPU cases are chosen so that they take seconds, most of them for loading the framework.
            f"seconds = {120 if device == 'cpu' else 600}",
            'bytes = "8GiB"',
            "",
        ]
    )


def _written(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def _levels(parameter: Parameter) -> list[float]:
    """Four from a quarter of the default, or the least that is taken, up to the default; two where four are too near.

    Factors of as many levels share a small array; others may need every combination.
    """
    if parameter.kind not in ("int", "float") or parameter.choices or isinstance(parameter.default, (str, bool)):
        return []
    default = parameter.default
    low = max(default / 4, parameter.minimum if parameter.minimum is not None else default / 4)
    wanted = [low + (default - low) * step / (_LEVELS - 1) for step in range(_LEVELS)]
    levels = sorted({round(value) if parameter.kind == "int" else value for value in wanted})
    levels = levels if len(levels) == _LEVELS else [levels[0], levels[-1]]
    return levels if len(set(levels)) > 1 and all(parameter.accepts(level) for level in levels) else []


def _described(parameters: Iterable[Parameter]) -> list[str]:
    return [f"{one.name}: {one.takes()}; {one.meaning} (default {one.default})" for one in parameters]
