"""Captures on a Ray cluster. Each test runs in a process of its own: Ray leaves threads and warnings behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomcast.capture.messages import Answer
from oomcast.capture.on_cluster import captured_there
from oomcast.errors import BadInput
from oomcast.provenance import TRACE_ROOMS, source_digest
from oomcast.spec import Spec

LAYOUT = ["--device", "4xa100-40gb", "--parallel", "pp=4", "--accumulation", "4", "--steps", "1", "--json"]
CONFIG = {"model_type": "gpt2", "n_layer": 4, "n_embd": 64, "n_head": 2, "vocab_size": 500}


def oomcast(*words: str, folder: Path, cluster: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({} if cluster is None else {"RAY_ADDRESS": cluster})}
    return subprocess.run(
        [sys.executable, "-m", "oomcast", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
        timeout=300,
    )


def test_the_stages_of_a_pipeline_on_a_cluster(ray_cluster: str, tmp_path: Path) -> None:
    """The same figures as here; a file is found by the folder of the caller, and the store is filled from there."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    words = ("estimate", "hf:config.json", "--batch-size", "2", "--seq-len", "16", *LAYOUT)
    here = oomcast(*words, folder=tmp_path)
    assert here.returncode == 0, here.stderr
    for engine, cluster in ((ray_cluster, None), ("ray", ray_cluster)):
        there = oomcast(*words, "--engine", engine, "--store", "answers.db", folder=tmp_path, cluster=cluster)
        assert there.returncode == 0, there.stderr
        assert json.loads(there.stdout)["ranks"] == json.loads(here.stdout)["ranks"]
    assert len(json.loads(here.stdout)["ranks"]) == 4


def test_errors_of_a_job_come_back_as_sentences(ray_cluster: str, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import torch\ndef model():\n    raise ValueError('no such thing')\ndef batch(n):\n    return torch.ones(n)\n"
    )
    words = ("estimate", "job.py", "--batch-size", "2", "--device", "a100-40gb", "--engine", ray_cluster)
    failed = oomcast(*words, folder=tmp_path)
    assert failed.returncode == 2
    assert "no such thing" in failed.stderr
    assert "Traceback" not in failed.stderr.split("no such thing")[0]


def test_a_cluster_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    words = ("estimate", "zoo:resnet50", "--batch-size", "2", "--device", "a100-40gb", "--engine", "127.0.0.1:1")
    failed = oomcast(*words, folder=tmp_path)
    assert failed.returncode == 2
    assert failed.stderr.startswith("oomcast: cannot reach the Ray cluster at '127.0.0.1:1'")
    assert failed.stderr.count("\n") == 1


def test_other_software_on_a_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Spec.read("zoo:resnet50", batch_size=1, device="a100-40gb").as_dict()
    digest = source_digest(*TRACE_ROOMS)
    for folder, known, versions, said in (
        (None, "another", {}, "another oomcast than this one"),
        (None, digest, {"torch": "1.0"}, "has torch .* and this one 1.0; install the same"),
        (str(tmp_path / "nowhere"), digest, {}, "has no folder .*nowhere; share it"),
    ):
        answer = Answer.from_bytes(captured_there(plain, folder, {}, known, versions))
        assert answer is not None
        assert answer.error == "BadInput"
        with pytest.raises(BadInput, match=said):
            raise BadInput(answer.message)
