"""Figures of GPUs, from fakes of the two sources: NVML's Python module and the program nvidia-smi."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from measure_cases import python_case

from oomcast.errors import BadInput
from oomcast.methods.measure import Conditions, Limits, Outcome, Store, engines, measure_case, run_campaign
from oomcast.methods.measure.gpu import Gpu, NvidiaSmi, Nvml, find_reader, gpu_for, visible_gpus
from oomcast.units import GiB, MiB

A100 = Gpu(0, "GPU-aaaa-1", "NVIDIA A100-SXM4-40GB", 40 * GiB)
RTX = Gpu(1, "GPU-bbbb-2", "NVIDIA GeForce RTX 3090", 24 * GiB)


class FakeNvml(types.ModuleType):
    """The functions of nvidia-ml-py that are used, with its way of answering."""

    class NVMLError(Exception):
        pass

    def __init__(self, processes=(), used=300 * MiB, gpus=(A100, RTX)):
        super().__init__("pynvml")
        self.processes, self.used, self.gpus = processes, used, gpus

    def nvmlInit(self):
        pass

    def nvmlSystemGetDriverVersion(self):
        return b"560.35"

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, handle):
        return handle.uuid

    def nvmlDeviceGetName(self, handle):
        return handle.name

    def nvmlDeviceGetMemoryInfo(self, handle):
        return types.SimpleNamespace(total=handle.memory, used=self.used)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        if self.processes is None:
            raise self.NVMLError("not supported")
        return [types.SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in self.processes]


@pytest.fixture
def smi(tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text(
        """#!/bin/sh
case "$1" in
  --query-gpu=driver_version) echo "560.35"; echo "560.35";;
  --query-gpu=index,uuid,name,memory.total)
    echo "0, GPU-aaaa-1, NVIDIA A100-SXM4-40GB, 40960"; echo "1, GPU-bbbb-2, NVIDIA GeForce RTX 3090, 24576";;
  --query-gpu=memory.used) echo "300";;
  --query-compute-apps=pid,used_memory) echo "11, 500"; echo "12, 250"; echo "13, [N/A]";;
  *) exit 1;;
esac
"""
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("source", ["nvml", "smi"])
def test_both_sources_tell_the_same(source, smi):
    processes = [(11, 500 * MiB), (12, 250 * MiB), (13, None)]
    reader = Nvml(FakeNvml(processes)) if source == "nvml" else NvidiaSmi(str(smi))
    assert reader.driver == "560.35"
    assert reader.gpus() == (A100, RTX)
    assert reader.used(A100) == 300 * MiB
    assert reader.held_by(A100, [11, 12, 99]) == 750 * MiB
    assert reader.held_by(A100, [13]) is None
    assert reader.held_by(A100, [99]) is None


def test_nvml_that_refuses_is_no_figure():
    assert Nvml(FakeNvml(None)).held_by(A100, [1]) is None


def test_the_better_source_is_found_first(smi, monkeypatch):
    monkeypatch.setenv("PATH", str(smi.parent) + os.pathsep + os.environ["PATH"])
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert isinstance(find_reader(), Nvml)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert isinstance(find_reader(), NvidiaSmi)
    smi.write_text("#!/bin/sh\nexit 9\n")
    assert find_reader() is None


@pytest.mark.parametrize(
    ("variable", "seen"),
    [(None, (A100, RTX)), ("", ()), ("1,0", (RTX, A100)), ("GPU-bbbb", (RTX,)), ("0,7,1", (A100,)), ("-1", ())],
)
def test_visible_devices_as_cuda_reads_them(variable, seen):
    variables = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    assert visible_gpus(Nvml(FakeNvml()), variables) == seen


@pytest.mark.parametrize(
    ("device", "fitting"),
    [("cuda", (A100, RTX)), ("a100-40gb", (A100,)), ("a100", (A100,)), ("rtx-3090", (RTX,)), ("RTX3090", (RTX,))],
)
def test_a_device_is_found_by_its_catalogue_name(device, fitting):
    assert gpu_for(device, (A100, RTX)) == fitting


def test_cards_of_one_name_are_told_apart_by_their_memory():
    small, large = (Gpu(n, f"GPU-{n}", "NVIDIA GeForce RTX 3080", size * GiB) for n, size in enumerate((10, 12)))
    assert gpu_for("rtx-3080-10gb", (small, large)) == (small,)
    assert gpu_for("rtx-3080-12gb", (small, large)) == (large,)


def test_a_card_that_the_catalogue_does_not_know_only_serves_any():
    unknown = Gpu(0, "GPU-0", "NVIDIA Something Else", GiB)
    assert gpu_for("cuda", (unknown,)) == (unknown,)
    with pytest.raises(BadInput, match="Something Else"):
        gpu_for("t4", (unknown,))
    with pytest.raises(BadInput, match="unknown device"):
        gpu_for("no-such-card", (unknown,))


@pytest.mark.parametrize("device", ["a100-80gb", "h100-80gb", "rtx-3090-ti", "40GiB"])
def test_a_device_that_is_not_here_is_bad_input(device):
    with pytest.raises(BadInput, match="this machine has NVIDIA A100"):
        gpu_for(device, (A100, RTX))


class GrowingGpu:
    """A device whose figures for a process come in a given order, the last one staying."""

    driver = "560.35"

    def __init__(self, *held, by_pid=True):
        self.held, self.by_pid = list(held), by_pid

    def gpus(self):
        return (A100,)

    def used(self, gpu):
        return 100 * MiB if self.by_pid else 100 * MiB + self._next()

    def held_by(self, gpu, pids):
        return self._next() if self.by_pid else None

    def _next(self):
        return self.held.pop(0) if len(self.held) > 1 else self.held[0]


FAKE_TORCH = """
import sys, types, time
cuda = types.SimpleNamespace(
    is_available=lambda: True, is_initialized=lambda: True, get_device_name=lambda: "fake",
    max_memory_allocated=lambda: {allocated}, max_memory_reserved=lambda: {reserved}, memory_reserved=lambda: {now},
)
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda, __version__="2.9.9", get_num_threads=lambda: 1)
import os
assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-aaaa-1"
time.sleep(0.2)
"""


def gpu_case(allocated=700 * MiB, reserved=1000 * MiB, now=800 * MiB):
    return python_case(FAKE_TORCH.format(allocated=allocated, reserved=reserved, now=now), device="a100-40gb")


PATIENT = Conditions(Limits(60, GiB))


def test_the_peak_on_a_gpu_is_the_reserved_peak_beside_the_context():
    # 1,300 MiB at the end, of which 800 are torch's: 500 MiB of context that also stood beside torch's peak of 1,000.
    result = measure_case(gpu_case(), PATIENT, reader=GrowingGpu(10 * MiB, 1300 * MiB))
    assert result.outcome is Outcome.OK, result.message
    assert result.peak_bytes == 1500 * MiB
    assert result.counters["cuda_peak_allocated"] == 700 * MiB
    assert result.counters["device_at_end"] == 1300 * MiB
    assert result.counters["host_peak"] > MiB
    assert (result.environment.gpu, result.environment.driver) == (A100.name, "560.35")
    assert max(held for _, held in result.timeline) == 1300 * MiB


def test_a_sample_above_torch_counts():
    result = measure_case(gpu_case(), PATIENT, reader=GrowingGpu(10 * MiB, 2000 * MiB, 1300 * MiB))
    assert result.peak_bytes == 2000 * MiB


def test_where_the_driver_does_not_know_the_process_the_device_tells():
    result = measure_case(gpu_case(), PATIENT, reader=GrowingGpu(0, 1300 * MiB, by_pid=False))
    assert result.counters["device_sampled_peak"] == 1300 * MiB
    assert result.peak_bytes == 1500 * MiB


def test_a_case_for_a_gpu_that_is_not_here_stops_the_campaign(tmp_path):
    with Store.open(tmp_path / "store.db") as store:
        case = python_case("", device="h100-80gb")
        with pytest.raises(BadInput, match="h100-80gb"):
            run_campaign([case], store, engines.LocalEngine(reader=GrowingGpu(0)), conditions=PATIENT)
        assert store.states([case.key]) == {case.key: "open"}


def test_one_case_at_a_time_on_each_gpu(tmp_path):
    together = tmp_path / "together"
    source = (
        f"import os, time\nopen({str(together)!r}, 'a').write('<')\ntime.sleep(0.2)\n"
        f"open({str(together)!r}, 'a').write('>')"
    )
    cases = [python_case(source, number, device="cuda") for number in range(3)]
    with Store.open(tmp_path / "store.db") as store:
        run_campaign(cases, store, engines.LocalEngine(workers=3, reader=GrowingGpu(5 * MiB)), conditions=PATIENT)
        assert {m.peak_bytes for m in store.measurements()} == {5 * MiB}
    assert Path(together).read_text() == "<><><>"


def test_the_fake_has_the_names_of_the_real_library():
    library = pytest.importorskip("pynvml")
    used = {name for name in vars(FakeNvml) if name.lower().startswith("nvml")}
    assert "NVMLError" in used
    assert not [name for name in used if not hasattr(library, name)]
