"""GPUMemNet's networks rebuilt: torch counts the parameters that the plan promises and the rows print."""

from __future__ import annotations

import pytest
import torch

from lab.accuracy.gpumemnet_jobs import TransformerJob
from lab.accuracy.gpumemnet_transformer import TransformerClassifier
from oomcast.capture import capture
from oomcast.methods.gpumemnet.published_models import Cnn, mlp
from oomcast.methods.gpumemnet.published_plans import cnn_parameters, cnn_plans, mlp_parameters, mlp_widths
from oomcast.spec import Spec
from oomcast.trace import Category

ARCHITECTURES = ("pyramid", "uniform", "bottleneck", "gradual", "hourglass", "residual", "dense")


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("arch", ["pyramid", "uniform", "bottleneck", "gradual"])
def test_mlp_parameters(arch: str, batch_norm: bool) -> None:
    widths = mlp_widths(arch, 61, 7, 4)
    assert count(mlp(widths, "gelu", batch_norm, 0.1, softmax=True)) == mlp_parameters(widths, batch_norm)


def test_mlp_widths_of_published_rows() -> None:
    # gpumemnet_mlp_step1.csv, rows 2 to 4: parameters 1,083,897, 5,136,720 and 7,804,679.
    assert mlp_parameters(mlp_widths("pyramid", 1259, 79, 8), False) == 1_083_897
    assert mlp_parameters(mlp_widths("uniform", 2039, 479, 1), False) == 5_136_720
    assert mlp_parameters(mlp_widths("gradual", 1428, 311, 9), False) == 7_804_679


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_cnn_parameters(arch: str, batch_norm: bool) -> None:
    for plan in cnn_plans(arch, 3, 40, 9, 64):
        with torch.device("meta"):
            model = Cnn(plan, 11, "relu", batch_norm, None)
        assert count(model) == cnn_parameters(plan, 11, batch_norm)


def test_cnn_plans_of_published_rows() -> None:
    # gpumemnet_cnn.csv: what the rows print.
    def totals(arch: str, channels: int, filters: int, depth: int, size: int, classes: int, norm: bool) -> list[int]:
        return [cnn_parameters(plan, classes, norm) for plan in cnn_plans(arch, channels, filters, depth, size)]

    assert totals("uniform", 3, 98, 22, 174, 453, False) == [1_864_805]
    assert totals("residual", 3, 18, 27, 122, 685, True) == [247_238]
    assert totals("hourglass", 1, 122, 27, 188, 300, True) == [142_278_957]
    assert 2_556_300 in totals("dense", 1, 126, 25, 122, 524, True)


def test_a_cnn_gives_one_score_for_each_class() -> None:
    for arch in ("residual", "dense", "pyramid"):
        plan = next(cnn_plans(arch, 3, 200, 8, 33))
        with torch.device("meta"):
            assert Cnn(plan, 5, "mish", True, 0.2)(torch.empty(2, 3, 33, 33)).shape == (2, 5)


def test_the_transformer_job_runs_on_the_virtual_gpu() -> None:
    job = TransformerJob(classes=5, width=16, layers=2, heads=2, hidden=24, length=6, vocabulary=50, batch_size=3)
    trace = capture(Spec.read(job, device="a100-40gb", batch_size=3, optimizer="adam"))
    parameters = sum(a.nbytes for a in trace.allocations if a.category is Category.PARAMETER)
    assert parameters == 4 * count(TransformerClassifier(50, 16, 2, 2, 24, 6, 5))
