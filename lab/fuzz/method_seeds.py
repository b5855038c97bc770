"""Valid content of what the four methods read and write. It needs their packages, which `seeds` does not."""

from __future__ import annotations

import tempfile
from functools import partial
from importlib.resources import files
from pathlib import Path

from oomcast.methods.equations import fit_equation, write_equation
from oomcast.methods.gpumemnet import Artifact, load_artifact, write_artifact
from oomcast.methods.measure import CaseSpec, Environment, Measurement, Outcome, Store
from oomcast.methods.tbem import (
    GapRow,
    StaticValue,
    fit_gap,
    plan_campaign,
    read_campaign,
    write_gap,
)
from oomcast.units import MiB

from .seeds import written

__all__ = ["artifacts", "campaigns", "equations", "gaps", "specifications"]

_CAMPAIGN = """
name = "small"
template = "mlp"
steps = 2
held_out = 2
[factors]
batch_size = [8, 64]
width = [32, 256]
depth = [2, 6]
[fixed]
features = 64
[limits]
seconds = 60
"""
_ENVIRONMENT = Environment("3.11", "torch", "2.13.0", "a machine", 2, 8 << 30, 1, "glibc 2.36")


def campaigns() -> tuple[bytes, ...]:
    """A small one, and those of the benchmarks."""
    others = files("lab.benchmarks").joinpath("campaigns").iterdir()
    return (_CAMPAIGN.encode(), *(path.read_bytes() for path in others if path.name.endswith(".toml")))


def gaps() -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.toml"
        path.write_text(_CAMPAIGN)
        campaign = read_campaign(path)
        rows = [_gap_row(case) for case in plan_campaign(campaign).cases]
        gap = fit_gap(campaign, rows, {"python": "3.11"})
    return (written(lambda path: write_gap(gap, path)),)


def _gap_row(case: CaseSpec) -> GapRow:
    varied = {name: case.parameters[name] for name in ("batch_size", "width", "depth")}
    batch, width, depth = (int(value) for value in varied.values())
    static = StaticValue(12 * depth * width**2 + 4000 * batch * width, 4 * depth * width**2, 4000 * batch * width)
    return GapRow(case.key, case.role, varied, static, round(300 * MiB + 1.25 * static.total), 2.0)


def equations() -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.toml"
        path.write_text(_CAMPAIGN.replace("[8, 64]", "[8, 16, 64, 256]").replace("[32, 256]", "[32, 64, 128, 256]"))
        with Store.open(Path(folder) / "runs.db") as store:
            cases = plan_campaign(read_campaign(path)).cases
            store.register(cases)
            for case in cases:
                peak = 300 * MiB + 4000 * int(case.parameters["batch_size"]) * int(case.parameters["width"])
                store.finish(Measurement(case, Outcome.OK, peak, 1.0, _ENVIRONMENT))
            fitted = fit_equation([store], None)
    return (written(lambda path: write_equation(fitted, path)),)


def specifications() -> tuple[bytes, ...]:
    folder = files("oomcast.methods.tbem.specification").joinpath("processes")
    return tuple(path.read_bytes() for path in folder.iterdir() if path.name.endswith(".sofl"))


def artifacts() -> tuple[bytes, ...]:
    """The one that ships, without most of its networks, so that each input is small."""
    whole = load_artifact()
    name, models = next(iter(whole.classes.items()))
    kind = min(models, key=lambda one: sum(array.nbytes for array in models[one].network.to_arrays().values()))
    small = Artifact({name: {kind: models[kind]}}, None, whole.trained)
    residual = Artifact({}, whole.residual, whole.trained)
    return tuple(written(partial(write_artifact, one)) for one in (small, residual))
