"""What a job sets for itself is followed, and told; what is not followed is told, with what to do about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import oomcast
from oomcast.capture import capture
from oomcast.estimation import Verdict
from oomcast.spec import Spec

JOB = """
import os
import torch

{settings}

def model():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.Conv2d(64, 64, 3, padding=1))

def batch(batch_size):
    return torch.randn(batch_size, 3, {side}, {side}), torch.randn(batch_size, 64, {side}, {side})

def loss(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()
"""


def assumptions(job: object, **options: object) -> str:
    return "\n".join(capture(Spec.read(job, device="a100-40gb", batch_size=2, steps=1, **options)).assumptions)


def bytes_of(job: object, **options: object) -> tuple[int, int, int]:
    answer = oomcast.estimate(job, batch_size=2, device="a100-40gb", environment="torch-2.8-cu128", steps=1, **options)
    return answer.peak_allocated, answer.peak_reserved, answer.device_total


@pytest.mark.parametrize(
    ("settings", "side", "says", "option"),
    [
        ("torch.backends.cudnn.benchmark = True", 64, "cudnn.benchmark: its trial runs", {"cudnn_benchmark": True}),
        (
            "os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'",
            90,
            "the allocator to 'expandable_segments:True'",
            {"alloc_conf": "expandable_segments:True"},
        ),
        (
            "torch.cuda.memory._set_allocator_settings('roundup_power2_divisions:1')\ntorch.cuda.memory."
            "_set_allocator_settings('large_segment_size_mb:40')",
            90,
            "the allocator to 'large_segment_size_mb:40'",
            {"alloc_conf": "large_segment_size_mb:40"},
        ),
    ],
)
def test_settings_of_a_job_file_are_followed_as_if_they_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, side: int, says: str, option: dict[str, object]
) -> None:
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    plain, job = tmp_path / "plain.py", tmp_path / "job.py"
    plain.write_text(JOB.format(settings="", side=side))
    job.write_text(JOB.format(settings=settings, side=side))
    assert says in assumptions(job)
    assert says not in assumptions(plain)
    assert bytes_of(job) == bytes_of(plain, **option) != bytes_of(plain)


@pytest.mark.parametrize(
    "settings",
    ["torch.backends.cudnn.deterministic = True", "torch.use_deterministic_algorithms(True, warn_only=True)"],
)
def test_a_job_that_wants_deterministic_algorithms_is_told_what_that_means_for_cudnn(
    tmp_path: Path, settings: str
) -> None:
    plain, job = tmp_path / "plain.py", tmp_path / "job.py"
    plain.write_text(JOB.format(settings="", side=64))
    job.write_text(JOB.format(settings=settings, side=64))
    traces = [capture(Spec.read(one, device="a100-40gb", batch_size=2, steps=1)) for one in (plain, job)]
    assert [trace.settings.cudnn_deterministic for trace in traces] == [False, True]
    told = [oomcast.estimate(one, batch_size=2, device="a100-40gb", steps=1).assumptions for one in (plain, job)]
    assert [any("deterministic algorithms" in sentence for sentence in those) for those in told] == [False, True]


def test_a_job_without_convolutions_is_told_nothing_of_them(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "import torch\ntorch.use_deterministic_algorithms(True)\ndef model():\n    return torch.nn.Linear(8, 8)\n"
        "def batch(batch_size):\n    return torch.randn(batch_size, 8), torch.zeros(batch_size, dtype=torch.long)\n"
    )
    answer = oomcast.estimate(job, batch_size=2, device="a100-40gb", steps=1)
    assert not any("deterministic" in sentence for sentence in answer.assumptions)


@pytest.mark.parametrize(
    "settings", ["torch.backends.cudnn.allow_tf32 = False", "torch.backends.cudnn.conv.fp32_precision = 'ieee'"]
)
def test_convolutions_without_tf32_take_the_workspaces_of_other_kernels(tmp_path: Path, settings: str) -> None:
    plain, job = tmp_path / "plain.py", tmp_path / "job.py"
    plain.write_text(JOB.format(settings="", side=200))
    job.write_text(JOB.format(settings=settings, side=200))
    assert "keeps convolutions from computing in TF32" in assumptions(job)
    assert "TF32" not in assumptions(plain)
    assert bytes_of(job)[1] < bytes_of(plain)[1]  # nothing is converted for the tensor cores


def test_a_share_of_the_gpu_that_a_job_takes_for_itself(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB.format(side=90, settings="torch.cuda.set_per_process_memory_fraction(0.0003)"))
    answer = oomcast.estimate(job, batch_size=2, device="a100-40gb", steps=1)
    assert answer.verdict is Verdict.OOM
    assert any("per_process_memory_fraction:0.0003" in sentence for sentence in answer.assumptions)


def test_what_is_asked_for_counts_more_than_what_the_job_sets(tmp_path: Path) -> None:
    plain, job = tmp_path / "plain.py", tmp_path / "job.py"
    plain.write_text(JOB.format(side=90, settings=""))
    job.write_text(JOB.format(side=90, settings="os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'large_segment_size_mb:40'"))
    assert bytes_of(job, alloc_conf="expandable_segments:True") == bytes_of(
        plain, alloc_conf="expandable_segments:True"
    )


def test_settings_of_the_process_that_an_object_was_made_in(monkeypatch: pytest.MonkeyPatch) -> None:
    class Job:
        @staticmethod
        def model() -> torch.nn.Module:
            return torch.nn.Linear(8, 8)

        @staticmethod
        def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.randn(batch_size, 8), torch.randn(batch_size, 8)

    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert "the allocator to 'expandable_segments:True'" in assumptions(Job)


def test_quantised_weights_of_a_configuration(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = {"model_type": "gpt2", "n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 99, "n_positions": 64}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    plain = assumptions(f"hf:{path}", seq_len=8)
    path.write_text(
        json.dumps({**config, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}})
    )
    told = assumptions(f"hf:{path}", seq_len=8)
    assert "quantised" not in plain
    assert "asks for quantised weights (bitsandbytes), which are not followed" in told
