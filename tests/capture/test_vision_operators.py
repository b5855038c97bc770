"""torchvision's operators on the virtual GPU, whether or not its compiled library loads beside the installed torch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from oomcast.capture import capture
from oomcast.spec import Spec
from oomcast.trace import Category, Trace, verify

pytestmark = pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")

OPERATORS = """
import torch
from torch import nn
from torchvision.ops import deform_conv2d, nms, ps_roi_align, roi_align, roi_pool

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 36, 3, padding=1)
        self.kernel = nn.Parameter(torch.zeros(24, 36, 3, 3))

    def forward(self, images):
        rows = images.shape[0]
        features = self.features(images)
        boxes = torch.rand(100, 4, device=images.device)
        kept = boxes[nms(boxes, boxes[:, 0], 0.5)]
        rois = torch.cat([torch.zeros(len(kept), 1, device=images.device), kept], dim=1)
        pooled = [pool(features, rois, (3, 3)) for pool in (roi_align, roi_pool, ps_roi_align)]
        offset = torch.zeros(rows, 18, 32, 32, device=images.device)
        moved = deform_conv2d(features, offset, self.kernel, padding=1)
        assert [list(part.shape) for part in (*pooled, moved)] == [
            [100, 36, 3, 3], [100, 36, 3, 3], [100, 4, 3, 3], [rows, 24, 32, 32]
        ]
        assert {part.dtype for part in (*pooled, moved)} == {features.dtype}
        return sum(part.float().sum() for part in (*pooled, moved))

def model():
    return Model()

def batch(batch_size):
    return torch.randn(batch_size, 3, 32, 32)

def loss(model, batch):
    return model(batch)
"""

DETECTION = """
import torch
from torchvision.models import detection

def model():
    return detection.NAME(weights=None, weights_backbone=None, num_classes=7, min_size=160, max_size=160)

def batch(batch_size):
    targets = [
        {"boxes": torch.tensor([[8.0, 8, 90, 90]]), "labels": torch.tensor([3]), "masks": torch.ones(1, 160, 160)}
        for _ in range(batch_size)
    ]
    return [torch.rand(3, 160, 160) for _ in range(batch_size)], targets

def loss(model, batch):
    return sum(model(*batch).values())
"""


def record(tmp_path: Path, source: str, **options: Any) -> Trace:
    job = tmp_path / "job.py"
    job.write_text(source)
    trace = capture(
        Spec.read(str(job), **{"device": "a100-40gb", "batch_size": 2, "steps": 1, "optimizer": "sgd", **options})
    )
    verify(trace)
    return trace


def shapes(trace: Trace, operator: str) -> list[tuple[int, ...]]:
    return [a.shape for a in trace.allocations if a.operator == operator and a.category is not Category.WORKSPACE]


def borrowed(trace: Trace, operator: str) -> list[int]:
    return [a.nbytes for a in trace.allocations if a.operator == operator and a.category is Category.WORKSPACE]


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", "float32"), ("amp-fp16", "float32")])
def test_outputs_gradients_and_buffers(tmp_path: Path, precision: str, dtype: str) -> None:
    """Autocast gives these operators fp32, whatever the features are in."""
    trace = record(tmp_path, OPERATORS, precision=precision)
    for name in ("_roi_align_backward", "_roi_pool_backward", "_ps_roi_align_backward"):
        assert shapes(trace, f"torchvision.{name}") == [(2, 36, 32, 32)], name
    pooled = [a for a in trace.allocations if a.operator == "torchvision.roi_align" and a.shape]
    assert [(a.shape, a.dtype) for a in pooled] == [((100, 36, 3, 3), dtype)]
    columns, output = 36 * 9 * 2 * 32 * 32 * 4, 2 * 24 * 32 * 32 * 4
    assert borrowed(trace, "torchvision.deform_conv2d") == [output, output, columns]
    assert borrowed(trace, "torchvision._deform_conv2d_backward")[-2:] == [output, columns]
    assert 100 * 2 * 8 in borrowed(trace, "torchvision.nms")  # a bit for each pair, in words of 64
    assert "nms depends on data: all boxes are kept" in trace.assumptions
    gradients = sum(a.nbytes for a in trace.allocations if a.category is Category.GRADIENT)
    assert gradients == sum(a.nbytes for a in trace.allocations if a.category is Category.PARAMETER)
    assert not trace.unsupported


def test_jobs_after_one_that_had_torchvision_loaded_for_all(tmp_path: Path) -> None:
    """A name loads its library once for every later job: its operators know autocast, too."""
    named = capture(
        Spec.read("torchvision:resnet18", device="a100-40gb", batch_size=2, steps=1, input_shape=(3, 64, 64))
    )
    verify(named)
    after = record(tmp_path, OPERATORS, precision="amp-fp16")
    assert shapes(after, "torchvision._roi_align_backward") == [(2, 36, 32, 32)]


def test_detection_models_train_on_as_many_boxes_as_their_sampler_takes(tmp_path: Path) -> None:
    """512 of a picture's boxes, of which 128 lie on objects and have a mask."""
    trace = record(tmp_path, DETECTION.replace("NAME", "maskrcnn_resnet50_fpn"))
    rows = {
        a.shape[0] for a in trace.allocations if a.module.endswith("box_predictor.cls_score") and a.shape[1:] == (7,)
    }
    assert rows == {2 * 512}
    assert (2 * 128, 256, 14, 14) in {a.shape for a in trace.allocations if "mask_head" in a.module}
    assert any("128 on objects and 384 beside them" in sentence for sentence in trace.assumptions)


def test_a_detector_of_one_stage(tmp_path: Path) -> None:
    trace = record(tmp_path, DETECTION.replace("NAME", "retinanet_resnet50_fpn"))
    assert any("nonzero depends on data" in sentence for sentence in trace.assumptions)
    gradients = sum(a.nbytes for a in trace.allocations if a.category is Category.GRADIENT)
    assert gradients == sum(a.nbytes for a in trace.allocations if a.category is Category.PARAMETER)
