"""From a job to the answer: the invariants of every Estimate, and what the options do to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.errors import BadInput, CaptureFailed, JobFailed, UnknownName
from oomcast.estimation import Estimate, Verdict
from oomcast.units import MiB

WIDTH = 1024


def model() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(4)), nn.Linear(WIDTH, 10))


def batch(batch_size: int, input_shape: tuple[int, ...] = (WIDTH,)) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch_size, *input_shape), torch.randint(0, 10, (batch_size,))


JOB = SimpleNamespace(model=model, batch=batch)
PARAMETERS = 4 * (4 * (WIDTH * WIDTH + WIDTH) + WIDTH * 10 + 10)


def ask(**options: Any) -> Estimate:
    return oomcast.estimate(JOB, **{"batch_size": 256, "device": "rtx-3090", "optimizer": "adam", **options})


@pytest.fixture(scope="module")
def plain() -> Estimate:
    return ask()


def holds(answer: Estimate) -> None:
    assert sum(answer.breakdown.values()) == answer.device_total
    assert answer.breakdown["allocator_cache"] == answer.peak_reserved - answer.peak_allocated >= 0
    assert answer.device_total == answer.peak_reserved + answer.breakdown["context"]
    assert answer.low <= answer.device_total <= answer.high
    assert answer.least_capacity <= answer.device_total
    assert len(answer.top_tensors) <= 10
    sizes = [tensor.nbytes for tensor in answer.top_tensors]
    assert sizes == sorted(sizes, reverse=True)
    assert answer.headroom == answer.device_usable - answer.device_total


def test_the_invariants_of_an_answer(plain: Estimate) -> None:
    holds(plain)
    assert plain.verdict is Verdict.FITS
    assert plain.fits
    # Rounding to blocks of 512 B, and large blocks that are not split, cost a little.
    assert 0 <= plain.breakdown["parameter"] - PARAMETERS < 2 * MiB
    assert plain.breakdown["optimizer_state"] >= 2 * PARAMETERS
    assert plain.breakdown["workspace"] == 2 * 8519680  # cuBLAS, for the main and the autograd thread


def test_the_same_job_gives_the_same_bytes_twice(plain: Estimate) -> None:
    again = ask()
    for field in ("peak_allocated", "peak_reserved", "device_total", "breakdown", "top_tensors", "phase_peaks"):
        assert getattr(again, field) == getattr(plain, field)


def test_a_job_file_and_the_object_agree(plain: Estimate, tmp_path: Any) -> None:
    path = tmp_path / "job.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        f"def model():\n    return nn.Sequential(*(nn.Sequential(nn.Linear({WIDTH}, {WIDTH}), nn.GELU())"
        f" for _ in range(4)), nn.Linear({WIDTH}, 10))\n"
        f"def batch(n):\n    return torch.randn(n, {WIDTH}), torch.randint(0, 10, (n,))\n"
    )
    answer = oomcast.estimate(str(path), batch_size=256, device="rtx-3090", optimizer="adam")
    assert answer.breakdown == plain.breakdown
    assert answer.peak_reserved == plain.peak_reserved


def test_more_samples_take_more(plain: Estimate) -> None:
    assert ask(batch_size=4096).breakdown["activation"] > 8 * plain.breakdown["activation"]


@pytest.mark.parametrize("optimizer", ["sgd", "sgd-momentum", "rmsprop", "adagrad", "adafactor", "adamw-fused"])
def test_every_optimizer_steps(optimizer: str) -> None:
    states = {"sgd": 0, "sgd-momentum": 1, "rmsprop": 1, "adagrad": 1, "adamw-fused": 2}
    answer = ask(optimizer=optimizer)
    holds(answer)
    if optimizer == "adafactor":
        assert 0 < answer.breakdown["optimizer_state"] < 0.2 * PARAMETERS
    else:
        expected = states[optimizer] * PARAMETERS
        assert expected <= answer.breakdown["optimizer_state"] <= expected + 4 * MiB


@pytest.mark.parametrize("precision", ["tf32", "amp-fp16", "amp-bf16", "bf16"])
def test_every_precision(precision: str, plain: Estimate) -> None:
    answer = ask(precision=precision, batch_size=4096)
    holds(answer)
    full = ask(batch_size=4096)
    if precision == "tf32":
        assert answer.breakdown == full.breakdown
    else:
        assert answer.breakdown["activation"] < full.breakdown["activation"]
    if precision == "bf16":
        assert answer.breakdown["parameter"] == pytest.approx(plain.breakdown["parameter"] / 2, rel=0.1)


def test_gradients_that_are_kept_stay_through_the_forward_pass(plain: Estimate) -> None:
    kept = ask(set_to_none=False, batch_size=16)
    dropped = ask(batch_size=16)
    forward = {True: 0, False: 0}
    for answer, keep in ((kept, True), (dropped, False)):
        forward[keep] = max(peak for step, phase, peak, _ in answer.phase_peaks if step == 2 and phase == "forward")
    assert forward[True] - forward[False] >= 0.95 * PARAMETERS


def test_zero_grad_may_stand_in_three_places() -> None:
    peaks = {}
    for place in ("before-forward", "before-backward", "after-step"):
        answer = ask(zero_grad=place, batch_size=16)
        holds(answer)
        peaks[place] = max(peak for step, phase, peak, _ in answer.phase_peaks if step == 2 and phase == "forward")
    assert peaks["before-backward"] > peaks["before-forward"]
    assert peaks["after-step"] == peaks["before-forward"]


def test_accumulation_costs_no_second_gradient(plain: Estimate) -> None:
    answer = ask(accumulation=4)
    holds(answer)
    assert answer.breakdown["gradient"] <= PARAMETERS + 2 * MiB


def test_checkpointing_saves_activations() -> None:
    without, answer = ask(batch_size=16384), ask(batch_size=16384, checkpointing=True)
    holds(answer)
    assert answer.breakdown["activation"] < without.breakdown["activation"]
    assert any("repeated blocks" in sentence for sentence in answer.assumptions)


def test_channels_last_is_followed() -> None:
    job = SimpleNamespace(
        model=lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2)),
        batch=lambda n: (torch.randn(n, 3, 8, 8), torch.zeros(n, dtype=torch.long)),
    )
    holds(oomcast.estimate(job, batch_size=4, device="a100", channels_last=True, precision="amp-fp16"))


def test_verdicts_follow_from_the_device() -> None:
    need = ask().least_capacity
    assert ask(device=f"{need // MiB + 4000}MiB").verdict is Verdict.FITS
    small = ask(device=f"{need // MiB - 20}MiB")
    assert small.verdict is Verdict.OOM
    assert not small.fits
    assert small.headroom < 0
    holds(small)
    close = ask(device=f"{need // MiB + 40}MiB")
    assert close.verdict is Verdict.TIGHT
    assert close.fits


def test_allocator_settings_change_reserved_bytes_only() -> None:
    plain = ask(batch_size=5000)
    expandable = ask(batch_size=5000, alloc_conf="expandable_segments:True")
    assert expandable.peak_allocated <= plain.peak_allocated
    assert expandable.peak_reserved < plain.peak_reserved


def test_input_shape_reaches_the_job() -> None:
    assert ask(input_shape=(WIDTH,)).peak_allocated == ask().peak_allocated
    with pytest.raises(JobFailed):
        ask(input_shape=(WIDTH + 1,))
    with pytest.raises(BadInput, match="takes no seq_len"):
        ask(seq_len=5)


def test_the_environment_brings_its_context(plain: Estimate) -> None:
    old = ask(environment="torch-1.12-cu113")
    assert old.breakdown["context"] > plain.breakdown["context"]
    assert old.peak_reserved == plain.peak_reserved


def test_objects_that_fail_are_told_as_the_users_fault() -> None:
    def wrong() -> nn.Module:
        raise ValueError("no such width")

    with pytest.raises(JobFailed, match="ValueError: no such width") as caught:
        oomcast.estimate(SimpleNamespace(model=wrong, batch=batch), batch_size=1, device="t4")
    assert "raise ValueError" in caught.value.traceback

    def abort() -> nn.Module:
        import os

        os.abort()

    with pytest.raises(CaptureFailed, match="SIGABRT"):
        oomcast.estimate(SimpleNamespace(model=abort, batch=batch), batch_size=1, device="t4")

    def hang(n: int) -> None:
        import time

        time.sleep(600)

    with pytest.raises(JobFailed, match="did not finish within 2 s"):
        oomcast.estimate(SimpleNamespace(model=model, batch=hang), batch_size=1, device="t4", time_limit=2)


def test_unknown_names() -> None:
    for options in ({"device": "a1"}, {"environment": "x"}, {"estimator": "x"}, {"optimizer": "x"}, {"precision": "x"}):
        with pytest.raises(UnknownName):
            ask(**options)
    with pytest.raises(BadInput, match="time limit"):
        ask(time_limit=0)
