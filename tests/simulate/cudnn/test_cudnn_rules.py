from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from convolutions import RESNET_50, convolution

from oomcast.devices import find_gpu
from oomcast.simulate import NOTHING, DeviceFacts, Transient, WorkspaceTable, simulate
from oomcast.simulate.cudnn import convolution_rules, with_benchmark
from oomcast.simulate.cudnn.query import query_of
from oomcast.simulate.cudnn.rules import converted_gradient, runs_in_place
from oomcast.simulate.cudnn.table import shipped_table, tree_key
from oomcast.trace import Allocation, Category, Event, EventKind, KernelCall, Mark, Phase, Trace
from oomcast.units import GiB, MiB

A100 = find_gpu("a100-40gb")


def ask(call: KernelCall, **how: object) -> object:
    rules = convolution_rules(A100, (9, 20), **{"source": "table", **how})  # type: ignore[arg-type]
    return WorkspaceTable(DeviceFacts()).with_rules(rules)(call, Phase.FORWARD)


def trace_of(*calls: KernelCall, repeats: int = 1) -> Trace:
    held = Allocation(64 * MiB, Category.ACTIVATION, Phase.FORWARD, 0, "aten.empty", "", "")
    events = [Event(EventKind.ALLOCATE, 0)]
    for _ in range(repeats):
        events += [Event(EventKind.KERNEL, i) for i in range(len(calls))]
    return Trace((held,), tuple(events), calls, (Mark(0, Phase.FORWARD, 0),))


@pytest.mark.parametrize("operator", ["conv_fprop", "conv_dgrad", "conv_wgrad"])
def test_resnet_50_gets_transients_of_sane_size(operator: str) -> None:
    for layer in RESNET_50:
        need = ask(convolution(operator, 32, *layer))
        assert isinstance(need, Transient)
        assert list(need.alternatives) == sorted(set(need.alternatives), reverse=True)
        assert all(0 <= size < GiB for size in need.alternatives)


def test_what_torch_runs_itself_takes_nothing() -> None:
    assert ask(convolution("conv_fprop", 32, 64, 56, 64, 3, groups=64)) == NOTHING


def test_small_pointwise_convolutions_take_nothing() -> None:
    assert ask(convolution("conv_fprop", 32, 64, 56, 256, 1)) == NOTHING
    assert ask(convolution("conv_fprop", 32, 1024, 14, 512, 1)) != NOTHING
    assert ask(convolution("conv_fprop", 0, 64, 56, 64, 3)) == NOTHING


@pytest.mark.parametrize(
    ("channels", "outputs", "window", "in_place"),
    [(64, 64, 1, True), (2048, 256, 1, True), (512, 512, 1, False), (64, 64, 3, False)],
)
def test_the_measured_rule_is_for_pointwise_convolutions(
    channels: int, outputs: int, window: int, in_place: bool
) -> None:
    query = query_of(convolution("conv_wgrad", 8, channels, 14, outputs, window))
    assert query is not None
    assert runs_in_place(query) is in_place


def test_without_tf32_the_operands_stay_as_they_are() -> None:
    call = convolution("conv_dgrad", 64, 128, 112, 128, 3)
    with_tf32, without = ask(call), ask(call, allow_tf32=False)
    assert isinstance(with_tf32, Transient)
    if tree_key(80, "float32", False, False, "dgrad") not in shipped_table().head["trees"]:
        assert without is None  # counted as a kernel without a rule, and shown
        return
    assert isinstance(without, Transient)
    assert without.alternatives[0] < with_tf32.alternatives[0] / 10


def test_no_source_means_no_rule() -> None:
    rules = convolution_rules(A100, (9, 20), source="none")
    assert dict(rules) == {}
    assert rules.source_in_use() == "none"
    assert simulate(
        trace_of(convolution("conv_fprop", 8, 64, 28, 64, 3)), workspace=WorkspaceTable().with_rules(rules)
    ).kernels_without_rule == {"conv_fprop": 1}


def test_the_source_in_use_is_told() -> None:
    rules = convolution_rules(A100, (9, 20), source="table")
    assert rules.source_in_use() == "table (cudnn 9.20)"
    WorkspaceTable().with_rules(rules)(convolution("conv_fprop", 8, 64, 28, 64, 3), Phase.FORWARD)
    assert rules.answered() == {"table (cudnn 9.20)": 1}


def test_a_gpu_that_nobody_knows() -> None:
    gpu = find_gpu("24GiB")
    rules = convolution_rules(replace(gpu, compute_capability=(13, 7)), (9, 20), source="table")
    need = WorkspaceTable().with_rules(rules)(convolution("conv_fprop", 32, 64, 56, 64, 3), Phase.FORWARD)
    assert isinstance(need, Transient)


def test_a_full_device_falls_through_to_a_plan_without_workspace() -> None:
    trace = trace_of(convolution("conv_dgrad", 64, 128, 112, 128, 3))
    table = WorkspaceTable().with_rules(convolution_rules(A100, (9, 20), source="table"))
    assert simulate(trace, workspace=table).peak_reserved > 500 * MiB
    tight = simulate(trace, workspace=table, capacity=100 * MiB)
    assert tight.ran
    assert tight.peak_reserved <= 100 * MiB


def test_benchmark_tries_the_largest_once_and_empties_the_cache() -> None:
    call = convolution("conv_fprop", 64, 128, 112, 128, 3)
    trace = with_benchmark(trace_of(call, repeats=3))
    kinds = [event.kind for event in trace.events]
    assert kinds.count(EventKind.EMPTY_CACHE) == 1
    assert kinds.count(EventKind.KERNEL) == 4
    table = WorkspaceTable().with_rules(convolution_rules(A100, (9, 20), benchmark=True, source="table"))
    plain, tried = simulate(trace_of(call), workspace=table), simulate(trace, workspace=table)
    assert tried.peak_reserved > plain.peak_reserved
    assert tried.end_reserved == plain.end_reserved
    assert simulate(trace, workspace=table, capacity=100 * MiB).ran


def test_benchmark_keeps_the_marks_where_they_were() -> None:
    call = convolution("conv_fprop", 8, 64, 28, 64, 3)
    before = replace(trace_of(call, repeats=4), marks=(Mark(0, Phase.FORWARD, 0), Mark(3, Phase.BACKWARD, 0)))
    after = with_benchmark(before)
    first, second = after.marks
    assert (first.position, first.phase) == (0, Phase.FORWARD)
    # Two events more before it; the backward thread then tries for itself.
    assert (second.position, second.phase) == (5, Phase.BACKWARD)
    assert len(after.events) == len(before.events) + 4


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import oomcast.simulate.cudnn, sys; "
        "sys.exit(any(n in sys.modules for n in ('torch', 'numpy', 'sklearn', 'cudnn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("batch", "channels", "image", "outputs", "measured"),
    # GPUMemNet's runs 190, 301, 225, 164: how much more nvidia-smi shows than tensors and the context explain
    [(52, 3, 156, 123, 620), (60, 1, 100, 214, 496), (40, 3, 124, 154, 376), (16, 3, 142, 172, 218)],
)
def test_cudnn_of_2024_converts_the_gradient_of_a_wide_first_layer(
    batch: int, channels: int, image: int, outputs: int, measured: int
) -> None:
    call = convolution("conv_wgrad", batch, channels, image, outputs, 3)
    query = query_of(call)
    assert query is not None
    assert converted_gradient(query, (9, 1), 4) == pytest.approx(measured * MiB, abs=3 * MiB)
    rules = convolution_rules(A100, (9, 1), source="table")
    need = WorkspaceTable(DeviceFacts()).with_rules(rules)(call, Phase.BACKWARD)
    assert isinstance(need, Transient)
    assert need.alternatives == (converted_gradient(query, (9, 1), 4), 0)


@pytest.mark.parametrize(
    ("operator", "channels", "image", "outputs", "version"),
    [
        ("conv_wgrad", 3, 156, 123, (9, 10)),
        ("conv_wgrad", 3, 156, 123, (8, 3)),
        ("conv_fprop", 3, 156, 123, (9, 1)),
        ("conv_wgrad", 64, 156, 123, (9, 1)),
        ("conv_wgrad", 3, 60, 123, (9, 1)),
        ("conv_wgrad", 3, 156, 112, (9, 1)),
    ],
)
def test_other_layers_and_versions_do_not(
    operator: str, channels: int, image: int, outputs: int, version: tuple[int, int]
) -> None:
    query = query_of(convolution(operator, 16, channels, image, outputs, 3))
    assert query is not None
    assert converted_gradient(query, version, 4) == 0


@pytest.mark.parametrize(
    ("device", "version", "takes"),
    [("rtx-4060", (9, 1), False), ("rtx-4060", (9, 20), True), ("rtx-3060", (9, 1), True)],
)
def test_early_cudnn_gives_grouped_convolutions_nothing_on_ada(
    device: str, version: tuple[int, int], takes: bool
) -> None:
    rules = convolution_rules(find_gpu(device), version, source="table")
    grouped = convolution("conv_wgrad", 478, 160, 11, 160, 3, groups=10)  # a layer of RegNetX-400MF
    need = WorkspaceTable(DeviceFacts()).with_rules(rules)(grouped, Phase.BACKWARD)
    assert isinstance(need, Transient)
    assert (need != NOTHING and need.alternatives[0] > MiB) is takes
