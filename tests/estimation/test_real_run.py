"""The real run, as far as it can be tried without a GPU: the worker trains on the virtual one, which keeps count."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import oomcast
from oomcast.errors import BadInput, JobFailed
from oomcast.estimation import Target
from oomcast.estimation.real_run import memory_of_gpus, memory_of_process, reading_of, run_on_this_gpu
from oomcast.estimation.real_run_worker import answer
from oomcast.spec import Place, Spec
from oomcast.units import GiB, MiB

JOB = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 10))

def batch(batch_size):
    return torch.randn(batch_size, 512), torch.randint(0, 10, (batch_size,))
"""
CONTEXT = 421 * MiB
TARGET = Target.of(Place("rtx-3090", "torch-2.13"))


@pytest.fixture
def request_of_job(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return Spec.read(path, device="rtx-3090", environment="torch-2.13", batch_size=2000).as_dict()


def test_the_worker_reads_what_the_counters_say(request_of_job: dict[str, Any]) -> None:
    with oomcast.virtual_gpu("rtx-3090"):
        told = answer(request_of_job, lambda pid: torch.cuda.memory_reserved() + CONTEXT, dict)
    assert json.loads(json.dumps(told)) == told
    reading = reading_of(told, TARGET, {})
    expected = oomcast.estimate(
        request_of_job["workload"]["job"], batch_size=2000, device="rtx-3090", environment="torch-2.13"
    )
    assert reading.allocated == expected.peak_allocated
    assert reading.reserved == expected.peak_reserved
    assert reading.device_total == expected.peak_reserved + CONTEXT


def test_a_job_that_fails_is_told(request_of_job: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB.replace("nn.Linear(512", "nn.Linear(513"))
    with oomcast.virtual_gpu("rtx-3090"):
        told = answer(request_of_job, lambda pid: None, dict)
    with pytest.raises(JobFailed, match="the real run failed: RuntimeError"):
        reading_of(told, TARGET, {})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_one_sentence_says_what_to_give(request_of_job: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"no GPU was found .* --nvidia-smi, --snapshot or --memory-stats"):
        run_on_this_gpu(Spec.from_dict(request_of_job), TARGET, lambda query: None)


def test_objects_cannot_go_to_a_fresh_process() -> None:
    job = SimpleNamespace(model=lambda: None, batch=lambda n: None)
    with pytest.raises(BadInput, match="cannot go to a fresh process"):
        run_on_this_gpu(Spec.read(job, device="rtx-3090"), TARGET)


def test_what_the_job_prints_is_not_the_answer(request_of_job: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("print('hello')\n" + JOB)
    code = (
        "import sys, oomcast\nfrom oomcast.estimation import real_run_worker as w\n"
        "with oomcast.virtual_gpu('rtx-3090'):\n    sys.exit(w.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(request_of_job).encode(), capture_output=True, check=True
    )
    assert json.loads(done.stdout)["device_name"] == "NVIDIA GeForce RTX 3090"
    assert b"hello" in done.stderr


def told(**changes: Any) -> dict[str, Any]:
    return {
        "device_name": "NVIDIA GeForce RTX 3090",
        "total_memory": TARGET.gpu.total_memory,
        "uuid": "GPU-1",
        "torch": "2.13.0+cu130",
        "max_allocated": 900 * MiB,
        "max_reserved": 1000 * MiB,
        "reserved_at_end": 1000 * MiB,
        "process_memory": 1400 * MiB,
        "gpus": {},
        **changes,
    }


def test_a_cache_that_shrank_is_put_back() -> None:
    reading = reading_of(told(reserved_at_end=600 * MiB, process_memory=1000 * MiB), TARGET, {})
    assert reading.device_total == 1400 * MiB


def test_the_gpus_growth_serves_where_process_ids_do_not() -> None:
    after = {"GPU-0": 5 * GiB, "GPU-1": 3 * GiB}
    before = {"GPU-0": GiB, "GPU-1": GiB}
    assert reading_of(told(process_memory=None, gpus=after), TARGET, before).device_total == 2 * GiB
    single = told(process_memory=None, gpus={"GPU-9": 3 * GiB}, uuid="")
    assert reading_of(single, TARGET, {"GPU-9": GiB}).device_total == 2 * GiB
    with pytest.raises(BadInput, match="the driver does not tell"):
        reading_of(told(process_memory=None, gpus=after, uuid=""), TARGET, before)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"error": "no GPU"}, "no GPU was found"),
        ({"error": "no torch"}, "torch is not installed"),
        ({"error": "out of memory"}, "smaller batch"),
        ({"device_name": "Tesla T4"}, "not from a rtx-3090; give --device t4"),
        ({"torch": "2.1.0"}, r"the run had torch 2\.1\.0"),
    ],
)
def test_runs_that_cannot_be_used(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        reading_of(told(**changes), TARGET, {})


def test_nvidia_smis_lists() -> None:
    answers = {
        "--query-compute-apps=pid,used_memory": "12, 300\n77, 1433\n78, [N/A]\n\n",
        "--query-gpu=uuid,memory.used": "GPU-a, 512\nGPU-b, 3\n",
    }
    assert memory_of_process(77, answers.get) == 1433 * MiB
    assert memory_of_process(78, answers.get) is None
    assert memory_of_process(1, answers.get) is None
    assert memory_of_process(77, lambda query: None) is None
    assert memory_of_gpus(answers.get) == {"GPU-a": 512 * MiB, "GPU-b": 3 * MiB}


class Nvml:
    """As much of pynvml as is asked."""

    class NVMLError(Exception):
        pass

    def __init__(self, processes: dict[int, int | None], broken: bool = False) -> None:
        self.processes = processes
        self.broken = broken

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.NVMLError

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        return number

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes.items()]


def test_nvml_is_asked_first() -> None:
    smi = {"--query-compute-apps=pid,used_memory": "77, 10\n"}.get
    assert memory_of_process(77, smi, Nvml({77: GiB, 78: 2 * GiB})) == GiB
    assert memory_of_process(77, smi, Nvml({77: None})) == 10 * MiB
    assert memory_of_process(77, smi, Nvml({77: GiB}, broken=True)) == 10 * MiB
