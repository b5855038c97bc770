"""The recipes of docs/recipes, run as they stand. sbatch is a stand-in, which writes down how it was called, and a real
one where there is a Slurm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster import running_slurm, slurm_is_there

pytest.importorskip("torch")

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
JOB = """
import torch
from torch import nn

def model():
    return nn.Linear(4096, 8192)

def batch(batch_size):
    return torch.randn(batch_size, 4096), torch.randint(0, 10, (batch_size,))
"""
FITS, TOO_LARGE = "job.py --batch-size 8", "job.py --batch-size 2000000"


class Machine:
    """A folder with a job, and a PATH with oomcast and a stand-in for sbatch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        self.calls = folder / "sbatch.calls"
        self.command("oomcast", f'exec "{sys.executable}" -m oomcast "$@"')
        self.command("sbatch", f'printf "%s\\n" "$@" >"{self.calls}"; echo "Submitted batch job 7"')
        (folder / "job.py").write_text(JOB)

    def command(self, name: str, line: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def run(self, *command: object, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", **variables}
        return subprocess.run(
            [str(word) for word in command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def submitted(self) -> list[str]:
        return self.calls.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_ci_tells_what_does_not_fit(machine: Machine) -> None:
    listed = f"# jobs\n\n{FITS} --device rtx-3090\n{TOO_LARGE} --device rtx-3090"
    done = machine.run("bash", RECIPES / "ci.sh", machine.write("fits.txt", listed))
    assert done.returncode == 3, done.stderr
    first, second, last = done.stdout.splitlines()
    assert first.startswith("FITS  job.py on rtx-3090")
    assert second.startswith("OOM  job.py on rtx-3090")
    assert last == "2 checked, 1 do not fit"


@pytest.mark.parametrize(
    ("text", "told"),
    [(f"{FITS} --device a1000\n", "unknown device"), ("# nothing\n", "names no job"), (None, "cannot read")],
)
def test_ci_with_bad_input(machine: Machine, text: str | None, told: str) -> None:
    listed = machine.folder / "fits.txt" if text is None else machine.write("fits.txt", text)
    done = machine.run("bash", RECIPES / "ci.sh", listed)
    assert done.returncode == 2
    assert told in done.stderr


def workflow() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    content: dict[str, Any] = yaml.safe_load((RECIPES / "github-action.yml").read_text())
    return content


def test_the_workflow_is_one(machine: Machine) -> None:
    content = workflow()
    assert content[True] == ["pull_request"]  # YAML 1.1 reads `on` so, and GitHub knows
    (job,) = content["jobs"].values()
    assert job["runs-on"].startswith("ubuntu")
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])


@pytest.mark.parametrize(("listed", "code"), [(f"{FITS} --device rtx-3090\n", 0), (f"{FITS} --device a1000\n", 2)])
def test_the_workflows_step_runs(machine: Machine, listed: str, code: int) -> None:
    (step,) = (
        step for job in workflow()["jobs"].values() for step in job["steps"] if step.get("name") == "Does it fit?"
    )
    machine.write("ci.sh", (RECIPES / "ci.sh").read_text())
    machine.write("fits.txt", listed)
    summary = machine.folder / "summary.md"
    # As GitHub runs a step's script.
    done = machine.run("bash", "-e", machine.write("step.sh", step["run"]), GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == code, done.stderr
    assert summary.read_text().startswith("### GPU memory\n```\n")
    if code == 0:
        assert "FITS  job.py on rtx-3090" in summary.read_text()


def test_a_pull_request_is_told_how_it_moves_the_memory(machine: Machine) -> None:
    yaml = pytest.importorskip("yaml")
    (before := machine.folder / "before-the-change").mkdir()
    (before / "job.py").write_text(JOB.replace("8192", "4096"))
    machine.write("fits.txt", f"# jobs\n{FITS} --device rtx-3090 --steps 1\n")
    machine.write("memory-change.py", (RECIPES / "memory-change.py").read_text())
    machine.command("python", f'exec "{sys.executable}" "$@"')
    content = yaml.safe_load((RECIPES / "github-comment.yml").read_text())
    (job,) = content["jobs"].values()
    compare, comment = job["steps"][-2:]
    summary = machine.folder / "summary.md"
    done = machine.run("bash", "-e", machine.write("step.sh", compare["run"]), GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 0, done.stderr
    row = summary.read_text().splitlines()[-1]
    assert row.count("FITS") == 2
    assert "| +" in row
    assert row.endswith(" MiB |")
    assert "--body-file comment.md" in comment["run"]
    assert content["permissions"]["pull-requests"] == "write"


GPUS = "512MiB=tiny rtx-3090=rtx3090 a100-40gb=a100"


def sbatch(machine: Machine, *words: object, gpus: str = GPUS) -> subprocess.CompletedProcess[str]:
    return machine.run("bash", RECIPES / "slurm" / "oomcast-sbatch", *words, OOMCAST_GPUS=gpus)


def test_slurm_gets_the_smallest_gpu_that_fits(machine: Machine) -> None:
    script = machine.write("train.sbatch", f"#!/bin/bash\n#OOMCAST {FITS}\nsrun true\n")
    done = sbatch(machine, "--time=1:00", script, "--epochs", "3")
    assert done.returncode == 0, done.stderr
    assert "FITS  job.py on rtx-3090" in done.stderr
    assert done.stdout == "Submitted batch job 7\n"
    assert machine.submitted() == ["--gres=gpu:rtx3090:1", "--time=1:00", str(script), "--epochs", "3"]


@slurm_is_there
def test_a_real_slurm_gives_the_gpu_that_the_gate_asked_for(machine: Machine, tmp_path: Path) -> None:
    (machine.bin / "sbatch").unlink()
    script = machine.write("train.sbatch", f"#!/bin/bash\n#OOMCAST {FITS}\necho $SLURM_JOB_GPUS\n")
    (folder := tmp_path / "slurm").mkdir()
    with running_slurm(folder):
        refused = sbatch(machine, script, gpus="512MiB=tiny")
        assert refused.returncode == 3
        assert machine.run("squeue", "-h").stdout == ""
        done = sbatch(machine, "--parsable", "--wait", "--output=said.txt", script)
        assert done.returncode == 0, done.stderr
        number = done.stdout.strip()
        told = machine.run("scontrol", "show", "job", number).stdout
        unknown = sbatch(machine, "--gres=gpu:a100:1", script)
    assert "TresPerNode=gres/gpu:rtx3090:1" in told.replace("gres:gpu", "gres/gpu"), told
    assert "JobState=COMPLETED" in told
    # What fits, but is not in this cluster, is Slurm's own to refuse.
    assert unknown.returncode not in (0, 3)
    assert "Batch job submission failed" in unknown.stderr


def test_slurm_refuses_with_the_reason(machine: Machine) -> None:
    script = machine.write("train.sbatch", f"#!/bin/bash\n#OOMCAST {FITS}\nsrun true\n")
    done = sbatch(machine, script, gpus="512MiB=tiny")
    assert done.returncode == 3
    assert "refused, since the job does not fit" in done.stderr
    assert "  OOM  job.py on 512MiB" in done.stderr
    assert not machine.calls.exists()


def test_slurm_checks_the_type_that_is_asked_for(machine: Machine) -> None:
    text = f"#!/bin/bash\n#SBATCH --gres=gpu:tiny:1\n#OOMCAST {FITS}\n"
    script = machine.write("train.sbatch", text)
    done = sbatch(machine, script)
    assert done.returncode == 3
    assert "on 512MiB" in done.stderr
    assert "rtx-3090" not in done.stderr
    done = sbatch(machine, "--gres=gpu:rtx3090:1", script)
    assert done.returncode == 0, done.stderr
    assert machine.submitted() == ["--gres=gpu:rtx3090:1", str(script)]
    done = sbatch(machine, "--gres=gpu:h200:1", script)
    assert done.returncode == 2
    assert "h200 is not in OOMCAST_GPUS, which has tiny rtx3090 a100" in done.stderr


def test_slurm_passes_on_what_says_nothing(machine: Machine) -> None:
    script = machine.write("plain.sbatch", "#!/bin/bash\nsrun true\n")
    assert sbatch(machine, "-N1", script).returncode == 0
    assert machine.submitted() == ["-N1", str(script)]


def test_slurm_with_bad_input(machine: Machine) -> None:
    script = machine.write("train.sbatch", "#OOMCAST job.py --batch-size none\n")
    done = sbatch(machine, script)
    assert done.returncode == 2
    assert "batch-size" in done.stderr
    assert sbatch(machine, "nothing.sbatch").returncode == 2
    assert not machine.calls.exists()


def test_the_batch_script_of_the_recipe_has_its_line() -> None:
    lines = (RECIPES / "slurm" / "train.sbatch").read_text().splitlines()
    assert [line for line in lines if line.startswith("#OOMCAST ")] == [
        "#OOMCAST train/job.py --batch-size 32 --precision amp-bf16"
    ]


def fill(machine: Machine, gpus: str, *words: str, name: str = "bert-1") -> subprocess.CompletedProcess[str]:
    script = RECIPES / "kubernetes" / "fill-job.py"
    options = ("--name", name, "--image", "registry/train:1", "--gpus", gpus)
    return machine.run(sys.executable, script, *options, "--", *words)


def test_kubernetes_gets_the_smallest_gpu_that_fits(machine: Machine) -> None:
    yaml = pytest.importorskip("yaml")
    done = fill(machine, "512MiB=Tiny,rtx-3090=NVIDIA-GeForce-RTX-3090,a100=NVIDIA-A100-SXM4-40GB", *FITS.split())
    assert done.returncode == 0, done.stderr
    job = yaml.safe_load(done.stdout)
    assert (job["kind"], job["metadata"]["name"]) == ("Job", "bert-1")
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-3090"}
    assert pod["containers"][0]["image"] == "registry/train:1"
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert "GiB on rtx-3090" in job["metadata"]["annotations"]["oomcast/estimate"]
    assert "@" not in done.stdout


def test_kubernetes_refuses_with_the_reason(machine: Machine) -> None:
    done = fill(machine, "512MiB=Tiny", *FITS.split())
    assert (done.returncode, done.stdout) == (3, "")
    assert "bert-1 does not fit: it needs" in done.stderr
    assert "on 512MiB" in done.stderr


@pytest.mark.parametrize(
    ("gpus", "words", "name", "told"),
    [
        ("a1000=X", FITS, "bert", "unknown device"),
        ("rtx-3090", FITS, "bert", "no usable product label"),
        ("rtx-3090=X", FITS, "Bert!", "no name for Kubernetes"),
    ],
)
def test_kubernetes_with_bad_input(machine: Machine, gpus: str, words: str, name: str, told: str) -> None:
    done = fill(machine, gpus, *words.split(), name=name)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_the_manifests_are_what_kubernetes_takes() -> None:
    yaml = pytest.importorskip("yaml")
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate, with the API's schemas")
    kinds = []
    for document in yaml.safe_load_all((RECIPES / "kubernetes" / "admission.yaml").read_text()):
        validate.validate(document, "1.30", strict=True)
        kinds.append(document["kind"])
    assert kinds == ["Namespace", "ConfigMap", "Deployment", "Service", "ValidatingWebhookConfiguration"]
    job = yaml.safe_load((RECIPES / "kubernetes" / "job.yaml").read_text().replace("@NAME@", "a"))
    validate.validate(job, "1.30", strict=True)
