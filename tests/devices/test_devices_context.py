"""Software stacks: which one a torch version means, and what a process holds under it."""

from __future__ import annotations

import copy
import json
from importlib import resources

import pytest

from oomcast.devices import (
    Gpu,
    Stack,
    all_gpus,
    all_stacks,
    context_bytes,
    context_figure,
    default_stack,
    find_gpu,
    find_stack,
)
from oomcast.devices.records import Record, read_records
from oomcast.devices.stacks import _parse
from oomcast.errors import BadInput, OomcastError, UnknownName
from oomcast.units import MiB

STACKS = all_stacks()
every_stack = pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.name)


@every_stack
def test_every_gpu_has_a_context_that_leaves_room(stack: Stack) -> None:
    for gpu in all_gpus():
        figure = context_figure(gpu, stack)

        assert 0 < figure.low <= figure.typical <= figure.high < gpu.usable_memory
        assert context_bytes(gpu, stack) == figure.typical
        assert figure.basis in {"measured", "reported", "derived"}
        assert figure.source


@every_stack
def test_a_larger_chip_of_the_same_architecture_holds_more(stack: Stack) -> None:
    for small, large in [("t4", "rtx-2080-ti"), ("rtx-3060", "rtx-3090"), ("l4", "rtx-4090"), ("a30", "a100-40gb")]:
        assert context_bytes(find_gpu(small), stack) < context_bytes(find_gpu(large), stack)


@pytest.mark.parametrize(
    ("gpu", "stack", "low", "high"),
    [
        # What was seen outside of the allocator, MiB; sources in stacks.json.
        ("a100-40gb", "torch-2.4-cu121-eager", 1600, 1870),
        ("a100-40gb", "torch-2.4-cu121", 491, 676),
        ("a100-40gb", "torch-2.8-cu128", 500, 600),
        ("a100-40gb", "torch-2.13-cu130", 500, 600),
        ("v100-32gb", "torch-2.4-cu121", 379, 399),
        ("t4", "torch-2.8-cu128", 109, 164),
        ("rtx-2080-ti", "torch-2.13-cu130", 186, 266),
        ("rtx-3080-10gb", "torch-2.8-cu128", 212, 266),
        ("rtx-3090", "torch-2.8-cu128", 255, 351),
        ("rtx-4090", "torch-2.8-cu128", 379, 492),
        ("l40s", "torch-2.8-cu128", 490, 524),
        ("h100-80gb", "torch-2.8-cu128", 525, 768),
        ("b200", "torch-2.8-cu128", 700, 720),
        ("rtx-5090", "torch-2.8-cu128", 507, 640),
        ("rtx-3090", "torch-1.12-cu113", 999, 1960),
    ],
)
def test_the_figures_lie_where_they_were_seen(gpu: str, stack: str, low: int, high: int) -> None:
    assert low * MiB <= context_bytes(find_gpu(gpu), find_stack(stack)) <= high * MiB


def test_the_range_of_the_2024_campaign_covers_its_mlps() -> None:
    figure = context_figure(find_gpu("a100-40gb"), find_stack("torch-2.4-cu121-eager"))

    assert figure.low <= 1443 * MiB
    assert figure.high >= 1870 * MiB


def test_loading_all_kernels_costs_much_more_on_every_gpu() -> None:
    for gpu in all_gpus():
        lazy = context_bytes(gpu, find_stack("torch-2.4-cu121"))

        assert context_bytes(gpu, find_stack("torch-2.4-cu121-eager")) > lazy + 400 * MiB


@every_stack
def test_a_stack_is_found_by_its_name(stack: Stack) -> None:
    assert find_stack(stack.name) is stack
    assert find_stack(stack.name.upper().replace("-", " ")) is stack


@pytest.mark.parametrize(
    ("written", "name"),
    [("torch-2.6", "torch-2.8-cu128"), ("2.6.0", "torch-2.8-cu128"), ("torch 2.4", "torch-2.4-cu121")],
)
def test_a_stack_is_found_by_a_torch_version(written: str, name: str) -> None:
    assert find_stack(written).name == name


@pytest.mark.parametrize(
    ("written", "version", "environment", "cuda", "cudnn"),
    [
        ("torch-2.6", (2, 6), "torch-2.6", (12, 4), (9, 1)),
        ("2.6.1", (2, 6), "torch-2.6", (12, 4), (9, 1)),
        ("2.7", (2, 7), "torch-2.7", (12, 6), (9, 5)),
        ("torch-2.8-cu128", (2, 8), "torch-2.8-cu128", (12, 8), (9, 10)),
        ("2.8", (2, 8), "torch-2.8-cu128", (12, 8), (9, 10)),
        ("1.13", (1, 13), "torch-1.13", (11, 7), (8, 5)),
        ("1.9", (1, 9), "torch-1.9", (11, 3), (8, 3)),  # built with what its builder had: as its generation
        ("torch-2.4-cu121-eager", (2, 4), "torch-2.4-cu121-eager", (12, 1), (9, 1)),
    ],
)
def test_a_version_that_is_named_is_followed_with_its_libraries_and_the_contexts_of_its_generation(
    written: str, version: tuple[int, int], environment: str, cuda: tuple[int, int], cudnn: tuple[int, int]
) -> None:
    stack = find_stack(written)
    generation = find_stack(stack.name)

    assert (stack.version, stack.environment) == (version, environment)
    assert find_stack(environment) == stack
    assert (stack.cuda, stack.cudnn, stack.contexts) == (cuda, cudnn, generation.contexts)


@every_stack
def test_a_stack_follows_a_version_that_it_stands_for(stack: Stack) -> None:
    assert stack.version >= stack.first_version
    assert stack.environment == stack.name
    if stack.framework == "torch" and stack.default:
        assert default_stack("{}.{}".format(*stack.version)) is stack


@pytest.mark.parametrize("name", ["torch-2.8-cu129", "torch-2.8cu128", "torch-28-cu128"])
def test_an_unknown_stack_is_answered_with_near_matches(name: str) -> None:
    with pytest.raises(UnknownName) as raised:
        find_stack(name)

    assert raised.value.kind == "environment"
    assert "torch-2.8-cu128" in raised.value.near
    assert all(stack.name in str(raised.value) for stack in all_stacks())


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.4.1", "torch-1.12-cu113"),
        ("1.12.1+cu113", "torch-1.12-cu113"),
        ("1.13.1+cu117", "torch-2.4-cu121"),
        ("2.0.1", "torch-2.4-cu121"),
        ("2.4.1+cu121", "torch-2.4-cu121"),
        ("2.5.1+cu124", "torch-2.8-cu128"),
        ("2.8.0+cpu", "torch-2.8-cu128"),
        ("2.10.0", "torch-2.8-cu128"),
        ("2.11.0+cu130", "torch-2.13-cu130"),
        ("2.13.0+cpu", "torch-2.13-cu130"),
        ("2.14.0a0+gitabc", "torch-2.13-cu130"),
        ("3.0", "torch-2.13-cu130"),
        (None, "torch-2.13-cu130"),
    ],
)
def test_the_default_stack_of_a_torch_version(version: str | None, name: str) -> None:
    assert default_stack(version).name == name


@pytest.mark.parametrize("version", ["", "nightly", "2"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(BadInput, match="torch version"):
        default_stack(version)


def test_stacks_are_in_order_and_one_is_always_the_default() -> None:
    assert [stack.first_version for stack in STACKS] == sorted(stack.first_version for stack in STACKS)
    assert all(default_stack(f"{major}.{minor}").default for major in (1, 2, 3) for minor in range(20))
    assert not find_stack("torch-2.4-cu121-eager").default


def test_versions_compare() -> None:
    assert find_stack("torch-2.4-cu121").cudnn < (9, 8) <= find_stack("torch-2.8-cu128").cudnn
    assert find_stack("torch-2.13-cu130").cuda == (13, 0)


@pytest.mark.parametrize(
    ("stack", "gpu", "supported"),
    [
        ("torch-1.12-cu113", "k80", True),
        ("torch-1.12-cu113", "rtx-4090", False),
        ("torch-2.4-cu121", "h100", True),
        ("torch-2.4-cu121", "k80", False),
        ("torch-2.8-cu128", "rtx-5090", True),
        ("torch-2.13-cu130", "v100", False),
        ("torch-2.13-cu130", "t4", True),
    ],
)
def test_which_gpus_a_stack_has_code_for(stack: str, gpu: str, supported: bool) -> None:
    assert find_stack(stack).supports(find_gpu(gpu)) is supported


def test_an_unnamed_gpu_has_a_context_too() -> None:
    gpu: Gpu = find_gpu("24GiB")

    assert context_bytes(gpu, default_stack(None)) == context_bytes(find_gpu("rtx-3090"), default_stack(None))


def _file() -> dict[str, list[dict[str, object]]]:
    text = resources.files("oomcast.devices").joinpath("stacks.json").read_text(encoding="utf-8")
    file: dict[str, list[dict[str, object]]] = json.loads(text)
    return file


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"cudnn": "nine"}, "'cudnn' must be like"),
        ({"year": 24}, "'year' must be a whole number"),
        ({"contexts": {}}, "no context for sm_"),
        ({"name": "torch-2.8-cu128"}, "it is there twice"),
        ({"first_version": "2.5", "version": "2.8"}, "it begins with the same version"),
        ({"first_version": "2.5"}, "'version' must not be before 'first_version'"),
        ({"speed": 1}, "unknown field 'speed'"),
    ],
)
def test_a_broken_stack_is_named(change: dict[str, object], complaint: str) -> None:
    file = copy.deepcopy(_file())
    file["stacks"][0].update(change)

    with pytest.raises(OomcastError, match=r"stacks\.json is broken") as raised:
        _parse(Record("stacks.json", "top level", file))

    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"basis": "felt"}, "'basis' must be"),
        ({"low": 1.5}, "'low' must be at most 1"),
        ({"high": 0.5}, "'high' at least 1"),
        ({"fixed_mib": "some"}, "'fixed_mib' must be a number"),
        ({"fixed_mib": 0, "per_multiprocessor_mib": 0}, "a figure and its source are needed"),
    ],
)
def test_a_broken_rule_is_named(change: dict[str, object], complaint: str) -> None:
    file = copy.deepcopy(_file())
    contexts = file["stacks"][0]["contexts"]
    assert isinstance(contexts, dict)
    contexts["sm_80"].update(change)

    with pytest.raises(OomcastError, match="sm_80") as raised:
        _parse(Record("stacks.json", "top level", file))

    assert complaint in str(raised.value)


def test_a_file_without_a_default_is_refused() -> None:
    file = copy.deepcopy(_file())
    for stack in file["stacks"]:
        stack["default"] = False

    with pytest.raises(OomcastError, match="no stack is a default"):
        _parse(Record("stacks.json", "top level", file))


def test_a_file_of_another_version_or_a_missing_one_is_refused() -> None:
    with pytest.raises(OomcastError, match="schema 2 is expected"):
        read_records("stacks.json", schema=2)
    with pytest.raises(OomcastError, match="cannot be read"):
        read_records("nothing.json", schema=1)


def test_without_cudnn_or_its_batch_norm_less_is_loaded_where_loading_means_all() -> None:
    gpu, eager, lazy = find_gpu("a100-40gb"), find_stack("torch-2.4-cu121-eager"), find_stack("torch-2.13-cu130")
    whole = context_bytes(gpu, eager)
    assert whole - context_bytes(gpu, eager, batch_norm=False) == 40 * MiB
    assert whole - context_bytes(gpu, eager, convolutions=False) == 293 * MiB
    assert context_bytes(gpu, eager, convolutions=False, batch_norm=False) == whole - 293 * MiB
    assert context_bytes(gpu, lazy, convolutions=False, batch_norm=False) == context_bytes(gpu, lazy)
