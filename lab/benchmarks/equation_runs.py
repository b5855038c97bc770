"""The real runs of `python -m lab bench equations`: tables that ship, and how they are measured anew.

The machine is shared and the largest cases nearly fill it. So they go from small to large over all campaigns, each with
a memory limit of its own, foreseen from the smaller ones, and a case starts only when that much and a reserve are free.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from oomcast.methods.equations import EquationRow, RunsOrigin, equation_rows, measured_runs, traced_steps
from oomcast.methods.equations.comparison import Comparison, compare
from oomcast.methods.equations.tables import read_samples, write_samples
from oomcast.methods.measure import STEADY_MALLOC, CaseSpec, Conditions, Limits, Outcome, Selection, Store, run_campaign
from oomcast.methods.tbem import case_trace, plan_campaign, read_campaign, trace_features

from . import tbem

__all__ = ["CAMPAIGNS", "GIB", "Runs", "Study", "capture_again", "measure", "read_runs", "run_study", "table_of_runs"]

_FOLDER = Path(__file__).parent / "campaigns" / "equations"
CAMPAIGNS = {path.stem: path for path in sorted(_FOLDER.glob("*.toml"))}
GIB = 2**30
# The paper's TensorFlow had Intel's kernels (oneDNN); this switches them on where TensorFlow itself would not. With
# them comes an arena of TensorFlow's own, whose holes depend on the order of sizes as those of malloc's heap do.
VARIABLES = {
    "torch": STEADY_MALLOC,
    "keras": {**STEADY_MALLOC, "TF_ENABLE_ONEDNN_OPTS": "1", "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"},
}
_RESERVE = 3 * GIB // 2
_FIRST_PEAK = 2 * GIB
_LEAST_TO_FORESEE = 5
_LONGEST_WAIT = 900.0


@dataclass(frozen=True)
class Runs:
    """The runs of one campaign, and what they share."""

    rows: tuple[EquationRow, ...]
    origin: RunsOrigin


@dataclass(frozen=True, kw_only=True)
class Study(Comparison):
    """All methods on the runs of one framework."""

    runs: Runs


def table_of_runs(name: str) -> Path:
    """Where the runs of a campaign lie; oomcast equation reads the file, too."""
    return _FOLDER / f"{name}.csv"


def read_runs(name: str) -> Runs:
    return Runs(*read_samples(table_of_runs(name)))


def run_study(runs: Runs, kept: Path | None, tell: Callable[[str, int, int], None], published_splits: int) -> Study:
    names = ("edge", "batch_size")
    found = compare(runs.rows, variables=names, published_splits=published_splits, kept=kept, tell=tell)
    return Study(splits=found.splits, left_out=found.left_out, runs=runs)


def capture_again(name: str, tell: Callable[[str, int, int], None]) -> None:
    """The same measured peaks beside figures of today's Timelines; VGG's are those of its campaign."""
    runs = _runs_of_campaign(tbem.CAMPAIGNS / "vgg.toml") if name == "vgg" else read_runs(name)
    rows = []
    for number, row in enumerate(runs.rows):
        tell(f"timelines of {name}", number, len(runs.rows))
        trace = case_trace(row.template, row.parameters, traced_steps(runs.origin.steps), runs.origin.device)
        rows.append(replace(row, figures=trace_features(trace, runs.origin.device)))
    write_samples(rows, runs.origin, table_of_runs(name))


def _runs_of_campaign(file: Path) -> Runs:
    campaign = read_campaign(file)
    gap = tbem.fitted(campaign, file)
    rows = [
        EquationRow(row.key, campaign.template, campaign.parameters(row.parameters), {}, row.measured)
        for row in gap.rows
    ]
    origin = RunsOrigin((campaign.name,), campaign.framework, campaign.device, campaign.steps, gap.environment)
    return Runs(tuple(rows), origin)


def measure(
    folder: Path,
    interpreters: Mapping[str, str],
    tell: Callable[[str], None],
    names: Iterable[str],
    most: int | None = None,
) -> None:
    """Measure what the stores under `folder` do not hold yet, a run that was killed goes on; then write the tables.

    `most` bytes: cases that are foreseen to hold more are left out.
    """
    chosen = tuple(names)
    _measure_all(folder, interpreters, tell, chosen, most)
    for name in chosen:
        with Store.open(folder / f"{name}.db") as store:
            measured = sorted(measured_runs([store], Selection()), key=lambda run: (_cost(run.case), run.case.key))
        figures = "timeline" if measured[0].case.framework == "torch" else "parameters"
        write_samples(equation_rows(measured, figures), RunsOrigin.of(measured), table_of_runs(name))


def _measure_all(
    folder: Path, interpreters: Mapping[str, str], tell: Callable[[str], None], names: Iterable[str], most: int | None
) -> None:
    with ExitStack() as stack:
        waiting: list[_Waiting] = []
        for name in names:
            campaign = read_campaign(CAMPAIGNS[name])
            store = stack.enter_context(Store.open(folder / f"{name}.db"))
            cases = plan_campaign(campaign).cases
            states = store.states([case.key for case in cases])
            open_cases = [case for case in cases if states.get(case.key, "open") != "done"]
            waiting += [_Waiting(case, store, campaign.limits.seconds) for case in open_cases]
        waiting.sort(key=lambda one: _cost(one.case))
        total = len(waiting)
        since = time.monotonic()
        while waiting:
            too_large = [one for one in waiting if most is not None and _foreseen(one) > most]
            if len(too_large) == len(waiting):
                tell(f"{len(waiting)} cases left out: they would hold more than {(most or 0) / GIB:.1f} GiB")
                return
            chosen = _startable([one for one in waiting if one not in too_large])
            if chosen is None:
                if time.monotonic() - since > _LONGEST_WAIT:
                    tell(f"{len(waiting)} cases left out: their memory was not free for {_LONGEST_WAIT / 60:.0f} min")
                    return
                time.sleep(5)
                continue
            case, limit = chosen.case, _limit(chosen)
            told = f"{total - len(waiting) + 1} of {total}: {case.framework}, edge {case.parameters['edge']}, batch "
            tell(f"{told}{case.parameters['batch_size']}, at most {limit / GIB:.1f} GiB")
            variables = VARIABLES[case.framework]
            conditions = Conditions(Limits(chosen.seconds, limit), interpreters=interpreters, variables=variables)
            with _one_processor():
                run_campaign([case], chosen.store, conditions=conditions)
            waiting.remove(chosen)
            since = time.monotonic()


@contextmanager
def _one_processor() -> Iterator[None]:
    """For this process and what it starts: TensorFlow overlaps kernels, and so their memory, as the machine lets it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True)
class _Waiting:
    case: CaseSpec
    store: Store
    seconds: float
    """The time limit of the case."""


def _startable(waiting: list[_Waiting]) -> _Waiting | None:
    """The first whose memory is free."""
    free = _available() - _RESERVE
    return next((one for one in waiting if _foreseen(one) <= free), None)


def _limit(waiting: _Waiting) -> int:
    """A tenth and a quarter GiB above what is foreseen, but never what others need."""
    return min(int(1.1 * _foreseen(waiting)) + GIB // 4, _available() - _RESERVE // 2)


def _foreseen(waiting: _Waiting) -> int:
    """The peak that the smaller cases foretell."""
    case = waiting.case
    done = list(waiting.store.measurements(Selection(campaign=case.campaign, outcome=Outcome.OK)))
    if len(done) < _LEAST_TO_FORESEE:
        return _FIRST_PEAK
    rows = np.array([_terms(one.case) for one in done])
    peaks = np.array([float(one.peak_bytes) for one in done])
    coefficients = np.linalg.lstsq(rows / peaks[:, None], np.ones(len(peaks)), rcond=None)[0]
    return int(float(np.array(_terms(case)) @ np.maximum(coefficients, 0)))


def _terms(case: CaseSpec) -> tuple[float, float, float]:
    return 1.0, float(_voxels(case)), float(_whole(case, "edge") ** 3)


def _cost(case: CaseSpec) -> int:
    return _voxels(case)


def _voxels(case: CaseSpec) -> int:
    return _whole(case, "edge") ** 3 * _whole(case, "batch_size")


def _whole(case: CaseSpec, name: str) -> int:
    value = case.parameters[name]
    assert isinstance(value, int)
    return value


def _available() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo does not tell what memory is free")
