"""The service whose captures are made on the machines of a Ray cluster."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

from service_process import running

from oomcast.cli import main
from servers import ray_cluster

__all__ = ["ray_cluster"]

CONFIG = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 500}
ASKED = {"job": "hf:config.json", "batch_size": 2, "seq_len": 16, "device": "rtx-3090"}


def captures_below(process: int) -> int:
    """How many processes that capture a service has, below its own."""
    parents, captures = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"oomcast.capture.worker" in (folder / "cmdline").read_bytes():
                captures.append(int(folder.name))

    def is_below(other: int) -> bool:
        return other == process or (other in parents and is_below(parents[other]))

    return sum(is_below(capture) for capture in captures)


def test_captures_are_made_on_the_cluster_from_files_that_it_does_not_have(ray_cluster: str, tmp_path: Path) -> None:
    asked = {**ASKED, "files": {"config.json": json.dumps(CONFIG)}}
    answers, captures = [], []
    for engine in ("local", ray_cluster):
        folder = tmp_path / str(len(answers))
        folder.mkdir()
        with running(folder, "--engine", engine) as service:
            answers.append(service.ask("estimate", **asked))
            captures.append(captures_below(service.process.pid))
    assert captures[0] > captures[1] == 0  # those of the cluster are not below the service
    here, there = answers
    for answer in answers:
        answer.pop("seconds")
    assert here == there
    assert there["peak_allocated"] > 0


def test_a_cluster_that_cannot_be_reached_is_told_before_anybody_asks(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    assert main(["serve", "--no-browser", "--port", "0", "--engine", "127.0.0.1:1"]) == 2
    assert "cannot reach the Ray cluster at '127.0.0.1:1'" in capsys.readouterr().err
    assert main(["serve", "--no-browser", "--port", "0", "--engine", "somewhere"]) == 2
    assert "the engine must be local, ray or the address" in capsys.readouterr().err
