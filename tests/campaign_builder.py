"""A small campaign, and figures for its cases as a framework with a known Gap would give them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from oomcast.methods.measure import CaseSpec, Environment, Measurement, Outcome, Store
from oomcast.methods.tbem import Campaign, GapRow, StaticValue, plan_campaign, read_campaign

MIB = 2**20
SMALL = """
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
ENVIRONMENT = Environment("3.11", "torch", "2.13.0", "a machine", 2, 8 << 30, 1, "glibc 2.36")


def write_small(folder: Path, text: str = SMALL) -> Path:
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


def small_campaign(folder: Path) -> Campaign:
    return read_campaign(write_small(folder))


def made_up_rows(campaign: Campaign) -> tuple[GapRow, ...]:
    """GV = 300 MiB + 1.25 SGV, where SGV is no polynomial of few terms."""
    return tuple(_row(case) for case in plan_campaign(campaign).cases)


def _row(case: CaseSpec) -> GapRow:
    names = ("batch_size", "width", "depth")
    batch, width, depth = (int(case.parameters[name]) for name in names)
    parameters = 4 * depth * width**2
    activations = batch * width * (depth**2 + 3) * 4000
    static = StaticValue(3 * parameters + activations, parameters, activations // depth)
    varied = {name: case.parameters[name] for name in names}
    return GapRow(case.key, case.role, varied, static, round(300 * MIB + 1.25 * static.total), 2.0)


def fill_store(place: Path, cases: Iterable[CaseSpec], peaks: dict[str, int] | None = None) -> None:
    """Every case measured: 300 MiB and a part that grows with its batch and width."""
    with Store.open(place) as store:
        listed = list(cases)
        store.register(listed)
        for case in listed:
            grown = int(case.parameters["batch_size"]) * int(case.parameters["width"]) * 40
            peak = (peaks or {}).get(case.key, 300 * MIB + grown)
            store.finish(Measurement(case, Outcome.OK, peak, 2.0, ENVIRONMENT))
