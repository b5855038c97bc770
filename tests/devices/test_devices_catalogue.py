"""The GPU catalogue: every record holds together, and the names people write find the right one."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from oomcast.devices import IDLE_RESERVE, Gpu, all_gpus, find_gpu, other_variants
from oomcast.devices.gpus import _key, _parse
from oomcast.devices.records import Record
from oomcast.errors import OomcastError, UnknownName
from oomcast.units import GiB, MiB

GPUS = all_gpus()
every_gpu = pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)

ARCHITECTURES = {3: "Kepler", 5: "Maxwell", 6: "Pascal", 9: "Hopper", 10: "Blackwell", 12: "Blackwell"}
BY_MINOR = {(7, 0): "Volta", (7, 5): "Turing", (8, 0): "Ampere", (8, 6): "Ampere", (8, 9): "Ada Lovelace"}

CUDNN_KEYS = {
    "deviceVer",
    "multiProcessorCount",
    "warpSize",
    "maxSharedMemoryPerBlock",
    "maxSharedMemoryPerBlockOptin",
    "reservedSharedMemoryPerBlock",
    "maxRegistersPerSM",
    "maxCtasPerSM",
    "maxThreadsPerBlock",
    "maxThreadsPerSM",
    "regsPerBlock",
    "totalGlobalMem",
    "smClockRateKHz",
    "l2CacheSize",
    "maxBlockSize",
    "memClockRateKHz",
    "maxGridSize",
    "supportCoopLaunch",
    "pciDeviceId",
    "isTccDriver",
    "cudaDeviceId",
    "driverVer",
    "deviceName",
}


def test_the_range_is_covered() -> None:
    names = {gpu.name for gpu in GPUS}

    assert len(GPUS) >= 60
    assert len(names) == len(GPUS)
    assert names >= {"k80", "p100-16gb", "v100-32gb", "t4", "a100-40gb", "rtx-3090", "rtx-4090", "h100-80gb", "b200"}
    assert sum(gpu.total_memory_source == "reported" for gpu in GPUS) >= 30


def test_the_order_is_generation_then_memory() -> None:
    order = [(gpu.compute_capability, gpu.memory_gib) for gpu in GPUS]

    assert order == sorted(order)
    assert GPUS[0].name == "k80"


@every_gpu
def test_memory_is_less_than_the_box_and_not_absurdly_so(gpu: Gpu) -> None:
    assert gpu.total_memory <= gpu.memory_gib * GiB
    assert gpu.usable_memory == gpu.total_memory - IDLE_RESERVE
    assert 0.85 * gpu.memory_gib * GiB < gpu.usable_memory


@every_gpu
def test_the_architecture_goes_with_the_compute_capability(gpu: Gpu) -> None:
    major, minor = gpu.compute_capability

    assert gpu.architecture == (BY_MINOR.get((major, minor)) or ARCHITECTURES[major])
    assert gpu.sm == f"sm_{major}{minor}"


@every_gpu
def test_chip_figures_are_plausible(gpu: Gpu) -> None:
    assert 5 <= gpu.multiprocessors <= 200
    assert 1 * MiB <= gpu.l2_cache <= 256 * MiB
    assert 500_000 <= gpu.sm_clock_khz <= 3_500_000
    assert 700_000 <= gpu.memory_clock_khz <= 16_000_000
    assert 80e9 < gpu.memory_bandwidth < 9e12
    assert gpu.shared_memory_per_block_optin >= 48 * 1024
    assert gpu.max_threads_per_multiprocessor in {1024, 1536, 2048}
    assert gpu.max_blocks_per_multiprocessor in {16, 24, 32}


@every_gpu
def test_every_figure_says_where_it_is_from(gpu: Gpu) -> None:
    assert gpu.total_memory_source in {"reported", "derived"}
    assert len(gpu.source) > 10


@every_gpu
def test_its_own_names_find_it(gpu: Gpu) -> None:
    for spelling in (gpu.name, gpu.name.upper(), gpu.name.replace("-", " "), gpu.name.replace("-", "_"), *gpu.aliases):
        assert find_gpu(spelling) is gpu
        assert other_variants(spelling) == ()


@every_gpu
def test_the_drivers_name_finds_it_or_its_smaller_variant(gpu: Gpu) -> None:
    found = find_gpu(gpu.driver_name)

    assert found.driver_name == gpu.driver_name
    assert found.memory_gib <= gpu.memory_gib
    assert gpu is found or gpu in other_variants(gpu.driver_name)


def test_no_spelling_belongs_to_two() -> None:
    spellings = Counter(_key(spelling) for gpu in GPUS for spelling in (gpu.name, *gpu.aliases))

    assert [spelling for spelling, count in spellings.items() if count > 1] == []


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("a100", "a100-40gb"),
        ("A100", "a100-40gb"),
        ("A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("a100_80gb", "a100-80gb"),
        ("a100-80g", "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("RTX 4090", "rtx-4090"),
        ("GeForce RTX 4090", "rtx-4090"),
        ("nvidia geforce rtx 4090", "rtx-4090"),
        ("rtx-4090-24gb", "rtx-4090"),
        ("4090 laptop", "rtx-4090-laptop"),
        ("2080ti", "rtx-2080-ti"),
        ("RTX2080Ti", "rtx-2080-ti"),
        ("v100", "v100-16gb"),
        ("v100-32gb", "v100-32gb"),
        ("Tesla V100-SXM2-32GB", "v100-32gb"),
        ("h100", "h100-80gb"),
        ("h100 sxm", "h100-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("T4", "t4"),
        ("Tesla T4", "t4"),
        ("NVIDIA Tesla T4", "t4"),
        ("t4-16gb", "t4"),
        ("a10", "a10"),
        ("a10g", "a10g"),
        ("3080", "rtx-3080-10gb"),
        ("rtx 3080 12gb", "rtx-3080-12gb"),
        ("3080-12g", "rtx-3080-12gb"),
        ("4060ti 16GiB", "rtx-4060-ti-16gb"),
        ("RTX A6000", "rtx-a6000"),
        ("a6000", "rtx-a6000"),
        ("RTX 6000 Ada", "rtx-6000-ada"),
        ("Quadro RTX 6000", "quadro-rtx-6000"),
        ("TITAN Xp", "titan-xp"),
        ("titan x", "titan-x-pascal"),
        ("1080 Ti", "gtx-1080-ti"),
        ("k80", "k80"),
        ("b200", "b200"),
        ("GH200", "gh200-96gb"),
        ("  l40s ", "l40s"),
    ],
)
def test_what_people_write(written: str, name: str) -> None:
    assert find_gpu(written).name == name


def test_an_ambiguous_name_means_the_smallest_and_the_others_can_be_shown() -> None:
    assert [gpu.name for gpu in other_variants("A100")] == ["a100-pcie-40gb", "a100-80gb", "a100-pcie-80gb"]
    assert [gpu.name for gpu in other_variants("NVIDIA GeForce RTX 3080")] == ["rtx-3080-12gb"]
    assert other_variants("a100-40gb") == ()
    assert other_variants("no such card") == ()


@pytest.mark.parametrize(
    ("typo", "near"),
    [("a1000", "a100"), ("rtx-409", "rtx-4090"), ("h10", "h100"), ("rtx 3099", "rtx-3090"), ("rtx-a600", "rtx-a6000")],
)
def test_a_typo_is_answered_with_near_matches(typo: str, near: str) -> None:
    with pytest.raises(UnknownName) as raised:
        find_gpu(typo)

    assert near in raised.value.near
    assert raised.value.kind == "device"
    assert raised.value.exit_code == 2
    assert "`oomcast devices` lists them all." in str(raised.value)


@pytest.mark.parametrize(
    "name",
    ["", "cpu", "12", "9999", "24", "mi999x", "0GiB", "10MiB", "-5GiB", "24GiBs", "a" * 10_000, "9" * 400 + "GiB"],
)
def test_what_is_no_gpu_is_refused(name: str) -> None:
    with pytest.raises(UnknownName):
        find_gpu(name)


@pytest.mark.parametrize(("name", "size"), [("24GiB", 24 * GiB), ("500 MiB", 500 * MiB), ("80gb", 80 * 10**9)])
def test_a_size_makes_an_unnamed_gpu(name: str, size: int) -> None:
    gpu = find_gpu(name)

    assert gpu.name == name
    assert gpu.total_memory == size
    assert gpu.total_memory_source == "given"
    assert gpu.usable_memory == size - IDLE_RESERVE
    assert gpu.sm == "sm_86"
    assert gpu.multiprocessors == find_gpu("rtx-3090").multiprocessors
    assert gpu not in all_gpus()


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("k80", 11.17),  # TensorFlow's device log
        ("t4", 14.56),  # Zheng-Chong/CatVTON#133
        ("a30", 23.53),  # google/RB-Modulation#5
        ("a100-40gb", 39.39),
        ("rtx-3090", 23.56),
        ("rtx-4090", 23.52),
        ("rtx-5090", 31.36),
        ("rtx-2080-ti", 10.75),
        ("l40s", 44.39),
        ("h200", 139.80),
        ("b200", 178.35),  # pytorch/ao#4002
        ("b300", 267.69),
    ],
)
def test_reported_figures(name: str, gib: float) -> None:
    gpu = find_gpu(name)

    assert round(gpu.total_memory / GiB, 2) == gib
    assert gpu.total_memory_source == "reported"


@every_gpu
def test_cudnn_gets_exactly_its_keys(gpu: Gpu) -> None:
    properties = gpu.cudnn_properties()

    assert set(properties) == CUDNN_KEYS
    assert json.loads(json.dumps(properties)) == properties
    assert properties["totalGlobalMem"] == gpu.total_memory
    assert properties["deviceName"] == gpu.driver_name


def test_cudnn_properties_of_an_a100() -> None:
    properties = find_gpu("a100-40gb").cudnn_properties()

    assert properties["deviceVer"] == 800
    assert properties["multiProcessorCount"] == 108
    assert properties["maxSharedMemoryPerBlockOptin"] == 166912
    assert properties["maxCtasPerSM"] == 32
    assert properties["maxThreadsPerSM"] == 2048
    assert properties["totalGlobalMem"] == 42297786368
    assert properties["smClockRateKHz"] == 1410000
    assert properties["l2CacheSize"] == 41943040
    assert properties["memClockRateKHz"] == 1215000
    assert properties["driverVer"] == 12080
    assert find_gpu("b300").cudnn_properties(driver_version=13000)["driverVer"] == 13000
    assert find_gpu("b300").cudnn_properties()["deviceVer"] == 1030


def _file() -> dict[str, object]:
    chip = {
        "architecture": "Ampere",
        "shared_memory_per_block_optin": 1,
        "reserved_shared_memory_per_block": 0,
        "registers_per_multiprocessor": 1,
        "max_threads_per_multiprocessor": 1,
        "max_blocks_per_multiprocessor": 1,
    }
    gpu = {
        "name": "one",
        "driver_name": "NVIDIA One",
        "aliases": ["uno"],
        "compute_capability": "8.6",
        "multiprocessors": 1,
        "memory_gib": 1,
        "total_memory": GiB,
        "total_memory_source": "reported",
        "source": "a log",
        "l2_cache": 1,
        "sm_clock_khz": 1,
        "memory_clock_khz": 1,
        "memory_bus_bits": 1,
    }
    return {"schema": 1, "compute_capabilities": {"8.6": chip}, "families": {}, "gpus": [gpu]}


def test_a_sound_file_is_read() -> None:
    assert [gpu.name for gpu in _parse(Record("gpus.json", "top level", _file())).gpus] == ["one"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"total_memory": 2 * GiB}, "does not go with"),
        ({"total_memory": "much"}, "'total_memory' must be a whole number"),
        ({"multiprocessors": 0}, "'multiprocessors' must be a whole number of at least 1"),
        ({"multiprocessors": True}, "'multiprocessors' must be a whole number"),
        ({"compute_capability": "86"}, "'compute_capability' must be like"),
        ({"compute_capability": "9.9"}, "an object is expected"),
        ({"total_memory_source": "guessed"}, "'total_memory_source' must be"),
        ({"source": ""}, "'source' is empty"),
        ({"aliases": "uno"}, "'aliases' must be a list of texts"),
        ({"aliases": ["O.N.E"]}, "is taken by 'one'"),
        ({"family": "many"}, "there is no family 'many'"),
        ({"ecc": "yes"}, "'ecc' must be true or false"),
        ({"colour": "green"}, "unknown field 'colour'"),
        ({"driver_name": None}, "'driver_name' must be a text"),
    ],
)
def test_a_broken_record_is_named(change: dict[str, object], complaint: str) -> None:
    file = _file()
    file["gpus"] = [{**file["gpus"][0], **change}]  # type: ignore[index]

    with pytest.raises(OomcastError, match=r"gpus\.json is broken") as raised:
        _parse(Record("gpus.json", "top level", file))

    assert complaint in str(raised.value)
    assert raised.value.exit_code == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"gpus": []}, "must be a list"),
        ({"families": {"lonely": []}}, "it needs two members"),
        ({"more": 1}, "unknown field"),
    ],
)
def test_a_broken_file_is_named(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(OomcastError, match=complaint):
        _parse(Record("gpus.json", "top level", {**_file(), **change}))
