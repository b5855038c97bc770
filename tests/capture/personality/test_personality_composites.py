"""Dropout, losses and the composites that must not take CPU's branches."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16


def test_dropout_keeps_one_byte_an_element(record, gpu):
    with record() as recorder:
        F.dropout(gpu(4, 8, dtype=BF16), 0.1).sum().backward()
    assert recorder.one("native_dropout").outputs == (((4, 8), BF16, "cpu:0"), ((4, 8), torch.bool, "cpu:0"))
    assert "native_dropout_backward" in recorder.operators


def test_dropout_that_drops_nothing_or_everything_has_no_mask(record, gpu):
    with record() as recorder:
        x = gpu(4, 8)
        assert F.dropout(x, 0.0) is x
        assert F.dropout(x, 0.5, training=False) is x
        F.dropout(x, 1.0)
        F.dropout(gpu(0, 8), 0.5)
    assert "native_dropout" not in recorder.operators


def test_feature_dropout_keeps_noise_of_channels(record, gpu):
    with record() as recorder:
        F.dropout2d(gpu(2, 3, 4, 4), 0.5).sum().backward()
    assert recorder.one("bernoulli_.float").outputs[0][0] == (2, 3, 1, 1)


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
def test_no_onednn(record, gpu, dtype):
    with record() as recorder:
        x = F.gelu(F.conv2d(gpu(2, 3, 8, 8, dtype=dtype), gpu(4, 3, 3, 3, dtype=dtype), gpu(4, dtype=dtype)))
        x = F.conv_transpose2d(x, gpu(4, 5, 3, 3, dtype=dtype)).flatten(2)
        x = F.silu(F.linear(x, gpu(6, 64, dtype=dtype), gpu(6, dtype=dtype)))
        x = torch.matmul(x, gpu(2, 6, 7, dtype=dtype)).sum().backward()
    assert not [name for name in recorder.operators if "mkldnn" in name or "onednn" in name]


def test_linear_folds_contiguous_inputs_and_adds_the_bias_in_place_to_others(record, gpu):
    with record() as recorder:
        F.linear(gpu(2, 3, 8), gpu(6, 8), gpu(6))
    assert recorder.operators[-4:] == ["view", "t", "addmm", "view"]
    with record() as recorder:
        F.linear(gpu(2, 3, 8).transpose(0, 1), gpu(6, 8), gpu(6)).sum().backward()
    assert "add_.Tensor" in recorder.operators
    assert "addmm" not in recorder.operators


def test_matmul_folds_rather_than_expands_a_weight(record, gpu):
    with record() as recorder:
        torch.matmul(gpu(2, 3, 8), gpu(8, 5)).sum().backward()
    assert "bmm" not in recorder.operators


def test_log_sigmoid_keeps_no_buffer(record, gpu):
    with record() as recorder:
        F.logsigmoid(gpu(4, 8)).sum().backward()
    assert recorder.one("log_sigmoid_forward").outputs[1][0] == (0,)


def test_embedding_bag_answers_as_cuda(record, gpu):
    with record() as recorder:
        zeros = torch.zeros(6, dtype=torch.int64, device="cpu:0")
        F.embedding_bag(zeros, gpu(10, 4), zeros[:2]).sum().backward()
    assert [out[0] for out in recorder.one("_embedding_bag").outputs] == [(2, 4), (6,), (2,), (0,)]


def test_embedding_backward_sorts_many_indices(record, gpu):
    with record() as recorder:
        for count in (3072, 4000):
            F.embedding(torch.zeros(count, dtype=torch.int64, device="cpu:0"), gpu(100, 16)).sum().backward()
    few, many = (call for call in recorder.calls if call.operator == "embedding_dense_backward")
    assert 4000 * 8 not in few.scratch
    assert many.scratch[-1] == (400 + 100) * 16 * 4
    assert many.scratch[1:3] == (4000 * 8, 4000 * 8)


def test_binary_cross_entropy_holds_its_intermediates(record, gpu):
    with record() as recorder:
        F.binary_cross_entropy_with_logits(gpu(4, 8), torch.zeros(4, 8, device="cpu:0")).backward()
    assert recorder.one("binary_cross_entropy_with_logits").scratch == (128, 128)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc_loss(record, gpu, reduction):
    with record() as recorder:
        log_probs = gpu(20, 2, 5).log_softmax(-1)
        targets = torch.zeros(2, 7, dtype=torch.int64, device="cpu:0")
        loss = F.ctc_loss(log_probs, targets, (20, 20), (7, 5), reduction=reduction, zero_infinity=True)
        assert loss.shape == ((2,) if reduction == "none" else ())
        loss.sum().backward()
    assert recorder.one("_ctc_loss").outputs == (((2,), FP32, "cpu:0"), ((2, 20, 15), FP32, "cpu:0"))
    assert recorder.one("_ctc_loss_backward").scratch == (2 * 20 * 15 * 4,)


def test_ctc_loss_with_lengths_on_the_device_takes_the_longest(record, gpu):
    with record() as recorder:
        lengths = torch.zeros(2, dtype=torch.int64, device="cpu:0")
        targets = torch.zeros(2, 7, dtype=torch.int64, device="cpu:0")
        nn.CTCLoss()(gpu(20, 2, 5), targets, lengths, lengths)
    assert recorder.one("_ctc_loss").outputs[1][0] == (2, 20, 15)


def test_reflection_padding_is_contiguous(record, gpu):
    with record():
        x = gpu(2, 4, 8, 8).to(memory_format=torch.channels_last)
        assert F.pad(x, (1, 1, 1, 1), mode="reflect").is_contiguous()
