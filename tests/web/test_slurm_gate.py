"""The gate in Slurm's controller, as it stands in docs/recipes, between a real Slurm and a real service."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")
pytest.importorskip("torch")

from service_process import Service, running

from slurm_cluster import running_slurm, slurm_is_there

RECIPE = Path(__file__).parents[2] / "docs" / "recipes" / "slurm" / "job_submit.lua"
MLP = {"job": "zoo:mlp", "batch_size": 48, "steps": 1}
LARGE = {**MLP, "batch_size": 3_000_000}


def gate(service: Service) -> str:
    text = RECIPE.read_text()
    gpus = '{ { "tiny", "512MiB" }, { "rtx3090", "rtx-3090" } }'
    listed = text[text.index("local GPUS = ") :].split("\n", 1)[0]
    return text.replace(listed, f"local GPUS = {gpus}").replace("http://127.0.0.1:8642", service.address)


def submit(folder: Path, told: str, *words: str) -> subprocess.CompletedProcess[str]:
    script = folder / "train.sbatch"
    script.write_text(f"#!/bin/bash\n{told}\necho $SLURM_JOB_GPUS\n")
    return subprocess.run(
        ["sbatch", "--parsable", f"--output={folder}/said.txt", *words, str(script)],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip


def tres_of(job: str) -> str:
    told = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True, check=True).stdout
    return told.partition("TresPerNode=")[2].split("\n")[0].replace("gres:gpu", "gres/gpu")


@slurm_is_there
def test_the_controller_gives_the_smallest_gpu_and_refuses_what_fits_nowhere(tmp_path: Path) -> None:
    for name in ("service", "slurm"):
        (tmp_path / name).mkdir()
    with running(tmp_path / "service") as service, running_slurm(tmp_path / "slurm", gate(service)):
        for asked in (MLP, LARGE):  # answers that are there come at once
            for device in ("512MiB", "rtx-3090"):
                service.ask("estimate", **asked, device=device)
        fits = submit(tmp_path, f"#OOMCAST-JOB {json.dumps(MLP)}")
        assert fits.returncode == 0, fits.stderr
        assert "it fits on rtx3090" in fits.stderr
        assert tres_of(fits.stdout.strip()) == "gres/gpu:rtx3090:1"
        tiny = submit(tmp_path, f"#OOMCAST-JOB {json.dumps(MLP)}", "--gres=gpu:tiny:1")
        assert tiny.returncode != 0
        assert "on 512MiB it needs at least" in tiny.stderr
        evading = submit(tmp_path, f"#OOMCAST-JOB {json.dumps({**LARGE, 'device': 'h200'})}")
        assert evading.returncode != 0
        assert "refused, since the job does not fit: on 512MiB" in evading.stderr
        code = submit(tmp_path, '#OOMCAST-JOB {"job": "job.py", "batch_size": 2}')
        assert code.returncode != 0
        assert "code" in code.stderr
        harm = tmp_path / "harm"
        quoted = json.dumps({"job": f"zoo:mlp'; touch {harm}; '", "batch_size": 2})
        assert submit(tmp_path, f"#OOMCAST-JOB {quoted}").returncode != 0
        assert not harm.exists()
        many = {**LARGE, "parallel": "ddp"}  # what it takes is of each GPU
        service.ask("estimate", **many, device="12xrtx-3090")
        several = submit(tmp_path, f"#OOMCAST-JOB {json.dumps(many)}", "--gres=gpu:rtx3090:12")
        assert "on 12xrtx-3090 it needs at least" in several.stderr
        plain = submit(tmp_path, "# nothing is said")
        assert plain.returncode == 0
        assert "gpu" not in tres_of(plain.stdout.strip())


@slurm_is_there
def test_without_the_service_jobs_are_admitted_and_the_log_says_so(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    (folder := tmp_path / "slurm").mkdir()
    with running(tmp_path / "service") as service:
        text = gate(service)
    with running_slurm(folder, text):
        admitted = submit(tmp_path, f"#OOMCAST-JOB {json.dumps(LARGE)}")
        assert admitted.returncode == 0, admitted.stderr
    assert (
        "oomcast: the service cannot be reached; the job is admitted unasked" in (folder / "slurmctld.log").read_text()
    )
