"""Batch, layer, group and RMS norm: CUDA's kernels and the dtypes of their statistics."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from oomcast.capture.torch.personality import PLAIN_KERNELS

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16


def batch_norm(x, dtype=FP32, **options):
    layer = nn.BatchNorm2d(x.shape[1], device="cpu:0", dtype=dtype, **options)
    return layer(x)


@pytest.mark.parametrize("dtype", [FP32, FP16])
def test_batch_norm_takes_cudnn(record, gpu, dtype):
    with record() as recorder:
        batch_norm(gpu(2, 4, 8, 8, dtype=dtype)).sum().backward()
    stats = ((4,), FP32, "cpu:0")
    image = ((2, 4, 8, 8), dtype, "cpu:0")
    assert recorder.one("cudnn_batch_norm").outputs == (image, stats, stats, ((0,), torch.uint8, "cpu:0"))
    assert recorder.one("cudnn_batch_norm_backward").outputs == (image, stats, stats)


@pytest.mark.parametrize(
    ("dtype", "options"),
    [(BF16, {}), (FP16, {"dtype": FP16}), (FP32, {"affine": False})],
    ids=["bf16", "half parameters", "no parameters"],
)
def test_batch_norm_without_cudnn_keeps_fp32_statistics(record, gpu, dtype, options):
    with record() as recorder:
        batch_norm(gpu(2, 4, 8, 8, dtype=dtype), **options).sum().backward()
    assert recorder.one("native_batch_norm").outputs[1:] == (((4,), FP32, "cpu:0"),) * 2
    assert "cudnn_batch_norm" not in recorder.operators


def test_batch_norm_of_vectors_and_with_cudnn_switched_off_is_native(record, gpu):
    with record() as recorder:
        nn.BatchNorm1d(4, device="cpu:0")(gpu(8, 4))
        with torch.backends.cudnn.flags(enabled=False):
            batch_norm(gpu(2, 4, 8, 8))
    assert recorder.operators.count("native_batch_norm") == 2


def test_batch_norm_keeps_channels_last_and_copies_what_is_neither(record, gpu):
    with record() as recorder:
        x = gpu(2, 4, 8, 8).to(memory_format=torch.channels_last)
        before = len(recorder.calls)
        assert batch_norm(x).is_contiguous(memory_format=torch.channels_last)
        assert "clone" not in recorder.operators[before:]
        batch_norm(gpu(2, 4, 8, 8).transpose(2, 3))
    assert recorder.operators.count("clone") == 1


def test_evaluation(record, gpu):
    with record() as recorder:
        layer = nn.BatchNorm2d(4, device="cpu:0").eval()
        layer(gpu(2, 4, 8, 8)).sum().backward()
    assert recorder.operators.count("cudnn_batch_norm") == 1
    assert recorder.operators.count("native_batch_norm_backward") == 1


@pytest.mark.parametrize("dtype", [FP16, BF16])
def test_layer_norm_statistics_are_fp32(record, gpu, dtype):
    with record() as recorder:
        weight = gpu(8, dtype=dtype)
        F.layer_norm(gpu(2, 3, 8, dtype=dtype), (8,), weight, weight).sum().backward()
    stats = ((2, 3, 1), FP32, "cpu:0")
    assert recorder.one("native_layer_norm").outputs == (((2, 3, 8), dtype, "cpu:0"), stats, stats)


def test_group_norm_is_contiguous_with_statistics_of_the_input(record, gpu):
    with record() as recorder:
        weight = gpu(4, dtype=BF16)
        x = gpu(2, 4, 8, 8, dtype=BF16).to(memory_format=torch.channels_last)
        assert F.group_norm(x, 2, weight, weight).is_contiguous()
    assert recorder.one("native_group_norm").outputs[1] == ((2, 2), BF16, "cpu:0")


def test_rms_norm_is_fused_where_the_dtypes_agree(record, gpu):
    with record() as recorder:
        x, weight = gpu(2, 3, 8, dtype=BF16), gpu(8, dtype=BF16)
        F.rms_norm(x, (8,), weight).sum().backward()
        assert weight.grad is not None
    assert recorder.one("_fused_rms_norm").outputs == (((2, 3, 8), BF16, "cpu:0"), ((2, 3, 1), FP32, "cpu:0"))
    assert recorder.one("_fused_rms_norm_backward").outputs[0] == ((2, 3, 8), BF16, "cpu:0")
    with record() as recorder:
        F.rms_norm(gpu(2, 3, 8, dtype=BF16), (8,), gpu(8))
    assert "_fused_rms_norm" not in recorder.operators


def test_instance_norm_goes_through_batch_norm(record, gpu):
    with record() as recorder:
        F.instance_norm(gpu(2, 4, 8, 8), weight=gpu(4), bias=gpu(4)).sum().backward()
    assert recorder.one("cudnn_batch_norm").outputs[0][0] == (1, 8, 8, 8)


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("training", [True, False])
def test_plain_kernels_give_what_torch_decomposes_at_length(format, training):
    def forms(tensors):
        return [(tuple(tensor.shape), tensor.stride(), tensor.dtype) for tensor in tensors]

    with FakeTensorMode():
        image = torch.empty(2, 4, 8, 8).to(memory_format=format)
        weight, bias, mean, var = (torch.empty(4) for _ in range(4))
        forward, backward = torch.ops.aten.cudnn_batch_norm.default, torch.ops.aten.cudnn_batch_norm_backward.default
        arguments = (image, weight, bias, mean, var, training, 0.1, 1e-5)
        out = forward(*arguments)
        assert forms(PLAIN_KERNELS[forward](forward, arguments, {})) == forms(out)
        if training:
            arguments = (image, image, weight, mean, var, out[1], out[2], 1e-5, out[3])
            assert forms(PLAIN_KERNELS[backward](backward, arguments, {})) == forms(backward(*arguments))
