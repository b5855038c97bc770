from __future__ import annotations

import pytest
from trace_builder import CONVOLUTION, MATMUL

from oomcast.simulate import CUBLAS_RULES, NOTHING, DeviceFacts, Persistent, WorkspaceTable, cublas_workspace_size
from oomcast.trace import Phase
from oomcast.units import MiB


@pytest.mark.parametrize(
    ("capability", "torch_version", "nbytes"),
    [
        ((7, 5), (2, 13), 8_519_680),
        ((8, 0), (2, 13), 8_519_680),
        ((8, 9), (2, 1), 8_519_680),
        ((9, 0), (2, 1), 32 * MiB),
        ((10, 0), (2, 13), 32 * MiB),
        ((12, 0), (2, 12), 32 * MiB),
        ((10, 0), (2, 8), 8_519_680),
    ],
)
def test_cublas_workspace_by_architecture(
    capability: tuple[int, int], torch_version: tuple[int, int], nbytes: int
) -> None:
    assert cublas_workspace_size(DeviceFacts(capability, torch_version)) == nbytes


@pytest.mark.parametrize(
    ("setting", "nbytes"),
    [(":4096:8", 32 * MiB), (":16:8", 128 * 1024), (":0:0", 0), (":4096:2:16:8", 8_519_680), ("none", 8_519_680)],
)
def test_what_the_process_is_told_goes_before_the_default(setting: str, nbytes: int) -> None:
    assert cublas_workspace_size(DeviceFacts((8, 0), cublas_workspace=setting)) == nbytes


def test_backward_has_a_handle_of_its_own() -> None:
    table = WorkspaceTable(DeviceFacts((9, 0)))
    forward, backward = table(MATMUL, Phase.FORWARD), table(MATMUL, Phase.BACKWARD)
    assert isinstance(forward, Persistent)
    assert isinstance(backward, Persistent)
    assert forward.key != backward.key
    assert forward.nbytes == backward.nbytes == 32 * MiB
    assert table(MATMUL, Phase.OPTIMIZER) == forward


def test_an_operator_without_a_rule_answers_none() -> None:
    assert WorkspaceTable()(CONVOLUTION, Phase.FORWARD) is None


def test_rules_can_be_added_and_the_rest_stays() -> None:
    table = WorkspaceTable().with_rules({"conv_fprop": lambda call, phase, device: NOTHING})
    assert table(CONVOLUTION, Phase.FORWARD) == NOTHING
    assert table(MATMUL, Phase.FORWARD) is not None
    assert set(table.rules) == {*CUBLAS_RULES, "conv_fprop"}
