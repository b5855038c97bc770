"""The real runs of `python -m lab bench equations`: the 3D U-Net over image edge and batch size, one case at a time.

The machine is shared and the largest cases nearly fill it. So they go from small to large over all campaigns, each with
a memory limit of its own, foreseen from the smaller ones, and a case starts only when that much and a reserve are free.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oomcast.methods.equations import EquationRow
from oomcast.methods.equations.comparison import Comparison, compare
from oomcast.methods.measure import STEADY_MALLOC, CaseSpec, Conditions, Limits, Outcome, Selection, Store, run_campaign
from oomcast.methods.tbem import plan_campaign, read_campaign

__all__ = ["CAMPAIGNS", "Sample", "Study", "measure", "read_samples", "run_study"]

CAMPAIGNS = {path.stem: path for path in sorted((Path(__file__).parent / "campaigns" / "equations").glob("*.toml"))}
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
class Sample:
    """One run: what it was given, and its peak."""

    edge: int
    batch_size: int
    peak: int
    seconds: float


@dataclass(frozen=True)
class Study(Comparison):
    """All methods on the runs of one framework."""

    samples: Sequence[Sample]


def run_study(
    samples: Sequence[Sample], kept: Path, tell: Callable[[str, int, int], None], published_splits: int
) -> Study:
    rows = [
        EquationRow(str(number), "unet3d", {"edge": one.edge, "batch_size": one.batch_size}, {}, one.peak)
        for number, one in enumerate(samples)
    ]
    names = ("edge", "batch_size")
    found = compare(rows, variables=names, published_splits=published_splits, kept=kept, tell=tell)
    return Study(found.splits, samples)


def read_samples(store: Path) -> list[Sample]:
    with Store.open(store) as opened:
        found = opened.measurements(Selection(outcome=Outcome.OK))
        samples = [
            Sample(_whole(one.case, "edge"), _whole(one.case, "batch_size"), one.peak_bytes, one.seconds)
            for one in found
        ]
    return sorted(samples, key=lambda sample: (sample.edge, sample.batch_size))


def measure(
    folder: Path, interpreters: Mapping[str, str], tell: Callable[[str], None], only: Mapping[str, Path] = CAMPAIGNS
) -> None:
    """Measure what the stores under `folder` do not hold yet; a run that was killed goes on."""
    with ExitStack() as stack:
        waiting: list[_Waiting] = []
        for name, file in only.items():
            campaign = read_campaign(file)
            store = stack.enter_context(Store.open(folder / f"{name}.db"))
            cases = plan_campaign(campaign).cases
            states = store.states([case.key for case in cases])
            open_cases = [case for case in cases if states.get(case.key, "open") != "done"]
            waiting += [_Waiting(case, store, campaign.limits.seconds) for case in open_cases]
        waiting.sort(key=lambda one: _cost(one.case))
        total = len(waiting)
        since = time.monotonic()
        while waiting:
            one = _startable(waiting)
            if one is None:
                if time.monotonic() - since > _LONGEST_WAIT:
                    tell(f"{len(waiting)} cases left out: their memory was not free for {_LONGEST_WAIT / 60:.0f} min")
                    return
                time.sleep(5)
                continue
            case, limit = one.case, _limit(one)
            told = f"{total - len(waiting) + 1} of {total}: {case.framework}, edge {case.parameters['edge']}, batch "
            tell(f"{told}{case.parameters['batch_size']}, at most {limit / GIB:.1f} GiB")
            variables = VARIABLES[case.framework]
            conditions = Conditions(Limits(one.seconds, limit), interpreters=interpreters, variables=variables)
            with _one_processor():
                run_campaign([case], one.store, conditions=conditions)
            waiting.remove(one)
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
