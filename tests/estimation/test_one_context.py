"""What a process holds beside its tensors is computed in one place: everybody who needs it gets the same figure."""

from __future__ import annotations

import pytest

import oomcast
from oomcast.advise.confidence import ConfidentTarget
from oomcast.devices import context_bytes, find_gpu, find_stack
from oomcast.estimation import (
    Calibration,
    MeasuredRun,
    Simulation,
    constants_of,
    estimator_names,
    find_estimator,
    target_of,
)
from oomcast.spec import Spec
from oomcast.trace import Trace
from oomcast.units import MiB

DEVICE, EAGER = "a100-40gb", "torch-2.4-cu121-eager"
WITHOUT_BATCH_NORM = "zoo:vgg11"
KINDS = {WITHOUT_BATCH_NORM: {"batch_norm": False}, "zoo:resnet18": {}, "zoo:mlp": {"convolutions": False}}
"""Jobs by the parts of cuDNN that they load; under an eager stack each part is a part of the context."""

pytestmark = pytest.mark.parametrize("job", KINDS)


@pytest.fixture(scope="module")
def captured() -> dict[str, tuple[Spec, Trace]]:
    from oomcast.capture import capture

    specs = {
        job: Spec.read(job, device=DEVICE, environment=EAGER, batch_size=2, optimizer="adam", use_calibration=False)
        for job in KINDS
    }
    return {job: (spec, capture(spec)) for job, spec in specs.items()}


def of_the_catalogue(job: str) -> int:
    return context_bytes(find_gpu(DEVICE), find_stack(EAGER), **KINDS[job])


def test_every_estimator_that_takes_a_trace(job: str, captured: dict[str, tuple[Spec, Trace]]) -> None:
    spec, trace = captured[job]
    contexts = {}
    for name in estimator_names():
        estimator = find_estimator(name)
        if estimator.takes is None:
            contexts[name] = estimator.estimate_trace(trace, target_of(spec)).breakdown["context"]
    assert {"simulator", "gpumemnet-mlp", "gpumemnet-transformer", "learned"} <= set(contexts)
    assert set(contexts.values()) == {of_the_catalogue(job)}, contexts


def test_the_search_for_the_largest_value(job: str, captured: dict[str, tuple[Spec, Trace]]) -> None:
    spec, trace = captured[job]
    totals = ConfidentTarget(target_of(spec), 0.95).totals(trace)
    endless = Simulation(trace, target_of(spec)).run()
    assert totals.reserved - endless.peak_reserved == of_the_catalogue(job)
    assert totals.allocated - endless.peak_allocated == of_the_catalogue(job)


def test_a_calibration_by_a_job_of_another_kind(job: str, captured: dict[str, tuple[Spec, Trace]]) -> None:
    """A run with batch norm told the context; a job without it does not load that part of cuDNN."""
    spec, trace = captured[job]
    measured = of_the_catalogue("zoo:resnet18") + 10 * MiB
    run = MeasuredRun("nvidia-smi", measured + 100 * MiB, None, None, 100 * MiB, 100 * MiB, convolutions=True)
    calibrated = target_of(spec).calibrated_by(Calibration(DEVICE, EAGER, (run,)))
    assert constants_of(calibrated, trace).context == of_the_catalogue(job) + 10 * MiB


def test_calibrating_compares_with_the_estimate(
    job: str, tmp_path_factory: pytest.TempPathFactory, captured: dict[str, tuple[Spec, Trace]]
) -> None:
    del captured
    change = oomcast.calibrate(
        job,
        batch_size=2,
        device=DEVICE,
        environment=EAGER,
        optimizer="adam",
        nvidia_smi=f"{of_the_catalogue(job) // MiB + 3000}MiB" if job == WITHOUT_BATCH_NORM else "2500MiB",
        output=tmp_path_factory.mktemp("kept") / "one.json",
    )
    assert change.constants_before.context == change.before.breakdown["context"] == of_the_catalogue(job)
    assert change.constants_after.context == change.after.breakdown["context"]
