"""What a job sets for itself and what is not followed is told, with what to do about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomcast.capture import capture
from oomcast.spec import Spec

JOB = """
import os
import torch

{settings}

def model():
    return torch.nn.Linear(8, 8)

def batch(batch_size):
    return torch.randn(batch_size, 8), torch.randn(batch_size, 8)
"""


def assumptions(job: object, **options: object) -> str:
    return "\n".join(capture(Spec.read(job, device="a100-40gb", batch_size=2, steps=1, **options)).assumptions)


@pytest.mark.parametrize(
    ("settings", "words", "options"),
    [
        ("torch.backends.cudnn.benchmark = True", "add --cudnn-benchmark", {"cudnn_benchmark": True}),
        (
            "os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'",
            "'expandable_segments:True' in the job's process and is not followed: say it by --alloc-conf",
            {"alloc_conf": "expandable_segments:True"},
        ),
    ],
)
def test_settings_of_a_job_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, words: str, options: dict[str, object]
) -> None:
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    job = tmp_path / "job.py"
    job.write_text(JOB.format(settings=settings))
    assert words in assumptions(job)
    assert words not in assumptions(job, **options)
    job.write_text(JOB.format(settings=""))
    assert words not in assumptions(job)


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
