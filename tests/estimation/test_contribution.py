"""A measured run that is given away: what it tells, what it does not, and every way in which a file can be wrong."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import oomcast
from oomcast.capture import capture
from oomcast.errors import BadInput, UnreadableFile
from oomcast.estimation import Contribution, Target, estimate_trace, read_contribution
from oomcast.spec import Place, Spec
from oomcast.trace import family_of, without_names
from oomcast.units import MiB

ENVIRONMENT = "torch-2.8-cu128"
SECRET = """
import torch
from torch import nn


class SecretSauce(nn.Module):
    def __init__(self):
        super().__init__()
        self.unpublished_conv = nn.Conv2d(3, 8, 3)
        self.unpublished_norm = nn.BatchNorm2d(8)
        self.unpublished_head = nn.Linear(8, 10)

    def forward(self, x):
        return self.unpublished_head(self.unpublished_norm(self.unpublished_conv(x)).mean((2, 3)))


def model():
    return SecretSauce()


def batch(batch_size):
    return torch.randn(batch_size, 3, 32, 32), torch.randint(0, 10, (batch_size,))
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "merger_with_acme.py"
    path.write_text(SECRET)
    return path


def contribute(job: Any, path: Path, **options: Any) -> Contribution:
    asked = {"batch_size": 64, "device": "rtx-3090", "environment": ENVIRONMENT, **options}
    return oomcast.contribute(job, output=path, **asked)


def test_the_file_gives_the_same_bytes_without_a_name_in_it(job: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    told = contribute(job, path, nvidia_smi="700MiB", optimizer="sgd-momentum")
    kept = read_contribution(path)
    assert kept == told
    assert (kept.device_total, kept.reserved, kept.source, kept.ran) == (700 * MiB, None, "nvidia-smi", True)
    assert (kept.model, kept.options) == ("", {"batch_size": 64, "optimizer": "sgd-momentum"})
    asked = oomcast.estimate(
        str(job), batch_size=64, device="rtx-3090", environment=ENVIRONMENT, optimizer="sgd-momentum",
        use_calibration=False,
    )  # fmt: skip
    again = estimate_trace(kept.trace, Target.of(Place.create("rtx-3090", ENVIRONMENT)))
    assert kept.estimated_total == again.device_total == asked.device_total
    assert again.peak_reserved == kept.estimated_reserved == asked.peak_reserved
    content = json.loads(path.read_text())
    everything = path.read_text() + gzip.decompress(base64.b64decode(content["trace"])).decode()
    for word in ("Secret", "unpublished", "acme", "merger", str(tmp_path), ".py"):
        assert word not in everything


def test_networks_are_known_again_by_their_weights_alone(job: Path, tmp_path: Path) -> None:
    one = contribute(job, tmp_path / "one.json", nvidia_smi="700MiB")
    larger = contribute(job, tmp_path / "larger.json", nvidia_smi="900MiB", batch_size=128, optimizer="adam")
    other = contribute("zoo:resnet18", tmp_path / "other.json", nvidia_smi="1800MiB")
    assert one.family == larger.family != other.family
    assert other.model == "zoo:resnet18"  # everybody has it


def test_a_run_that_was_out_of_memory_has_no_figure(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    told = contribute("zoo:resnet18", path, batch_size=4096, out_of_memory=True)
    assert not told.ran
    assert read_contribution(path).device_total is None
    with pytest.raises(BadInput, match=r"exactly one of .* and --out-of-memory, not --nvidia-smi and --out-of-memory"):
        contribute("zoo:resnet18", tmp_path / "two.json", nvidia_smi=700, out_of_memory=True)


def test_a_snapshot_with_other_settings_is_refused_and_nothing_written(job: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot.json"
    block = {"size": 2 << 20, "requested_size": 512, "address": 1 << 32, "state": "active_allocated"}
    segment = {"address": 1 << 32, "total_size": 2 << 20, "allocated_size": 512, "active_size": 512, "stream": 0,
               "segment_type": "small", "is_expandable": False, "blocks": [block]}  # fmt: skip
    settings = {"expandable_segments": True}
    snapshot.write_text(json.dumps({"segments": [segment], "device_traces": [[]], "allocator_settings": settings}))
    with pytest.raises(BadInput, match="other settings of the allocator; give them by --alloc-conf"):
        contribute(job, tmp_path / "run.json", snapshot=snapshot)
    assert not (tmp_path / "run.json").exists()


def test_a_file_that_is_there_is_not_written_over(job: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("mine")
    with pytest.raises(BadInput, match=r"run\.json exists already"):
        contribute(job, path, nvidia_smi="700MiB")
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "song"}, "oomcast contribute did not write it"),
        ({"schema": 99}, "another version of oomcast"),
        ({"device": 5}, "'device' is not what it should be"),
        ({"device_total": True}, "'device_total' is not what it should be"),
        ({"device_total": -1}, "'device_total' is out of bounds"),
        ({"device_total": None}, "a run that ended well has a figure"),
        ({"trace": "no base64 !"}, "damaged"),
        ({"trace": base64.b64encode(b"no trace").decode()}, "damaged"),
    ],
)
def test_damaged_files_are_told(job: Path, tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "run.json"
    contribute(job, path, nvidia_smi="700MiB")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UnreadableFile, match=said):
        read_contribution(path)


def test_what_is_of_the_users_own_code_has_no_name_in_a_nameless_trace() -> None:
    trace = capture(Spec.read("zoo:resnet18", batch_size=2, device="rtx-3090"))
    nameless = without_names(trace)
    assert {made.module for made in nameless.allocations} == {made.source for made in nameless.allocations} == {""}
    assert (nameless.assumptions, dict(nameless.workload)) == ((), {})
    assert [made.nbytes for made in nameless.allocations] == [made.nbytes for made in trace.allocations]
    assert nameless.events == trace.events
    assert family_of(nameless) == family_of(trace)
