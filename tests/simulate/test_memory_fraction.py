"""A process that may take a share of the device only, by its own setting."""

from __future__ import annotations

import pytest

import oomcast
from oomcast.estimation import Verdict


def test_what_does_not_fit_into_the_share_is_told_with_what_it_needs() -> None:
    """The search for the least memory that is enough ran into the share itself, and ended in a KeyError."""
    asked = {"batch_size": 8, "device": "a100-40gb", "steps": 1}
    free = oomcast.estimate("zoo:mlp", **asked)
    small = oomcast.estimate("zoo:mlp", **asked, alloc_conf="per_process_memory_fraction:0.00001")
    half = oomcast.estimate("zoo:mlp", **asked, alloc_conf="per_process_memory_fraction:0.5")
    assert small.verdict is Verdict.OOM
    assert small.p_oom == pytest.approx(1.0, abs=0.1)
    assert small.device_total == free.device_total == half.device_total
    assert half.verdict is Verdict.FITS
