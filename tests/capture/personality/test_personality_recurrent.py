"""LSTM, GRU and RNN by cuDNN: one call, its reserve, one flat gradient. Without cuDNN: fused cells."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import oomcast

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16
KEPT = {nn.LSTM: 6, nn.GRU: 5, nn.RNN: 2}


@pytest.mark.parametrize("kind", KEPT, ids=lambda kind: kind.__name__)
def test_one_cudnn_call_forward_and_backward(record, gpu, kind):
    with record() as recorder:
        layers = kind(8, 16, num_layers=2, bidirectional=True, device="cpu:0")
        layers(gpu(5, 3, 8))[0].sum().backward()
        storages = {parameter.grad.untyped_storage()._cdata for parameter in layers.parameters()}
        assert len(storages) == 1, "all gradients are views of one buffer"
    forward = recorder.one("_cudnn_rnn")
    output, hy, cy, reserve, _ = forward.outputs
    assert output[0] == (5, 3, 32)
    assert hy[0] == (4, 3, 16)
    assert cy[0] == ((4, 3, 16) if kind is nn.LSTM else (0,))
    assert reserve == ((2 * 2 * 5 * 3 * 16 * KEPT[kind] * 4,), torch.uint8, "cpu:0")
    backward = recorder.one("_cudnn_rnn_backward")
    assert backward.outputs[0][0] == (5, 3, 8)
    assert len(backward.outputs[3]) == 16
    assert not any("mkldnn" in name for name in recorder.operators)


def test_the_weights_come_into_one_buffer_on_every_build_of_torch():
    """When a layer is moved to the GPU, there are two copies of its weights for a moment."""
    with oomcast.virtual_gpu("a100-40gb"):
        layers = nn.LSTM(512, 512, num_layers=2).to("cuda")
        weights = torch.cuda.memory_allocated()
        most = torch.cuda.max_memory_allocated()
        layers(torch.zeros(5, 3, 512, device="cuda"))
    assert weights == sum(parameter.numel() for parameter in layers.parameters()) * 4
    assert most == 2 * weights


def test_batch_first_makes_copies_with_time_steps_first(record, gpu):
    with record() as recorder:
        output = nn.LSTM(8, 16, batch_first=True, device="cpu:0")(gpu(3, 5, 8))[0]
        assert output.shape == (3, 5, 16)
        assert output.stride() == (16, 48, 1)
        output.sum().backward()
    assert 3 * 5 * 8 * 4 in recorder.one("_cudnn_rnn").scratch
    assert 3 * 5 * 8 * 4 in recorder.one("_cudnn_rnn_backward").scratch


def test_dropout_state_is_made_once(record, gpu):
    with record() as recorder:
        first, second = (nn.GRU(8, 8, 2, dropout=0.5, device="cpu:0") for _ in range(2))
        second(first(gpu(5, 3, 8))[0])[0].sum().backward()
    states = [call for call in recorder.calls if call.outputs[0][1:2] == (torch.uint8,)]
    assert len([call for call in states if call.operator == "empty.memory_format"]) == 1


def test_projections(record, gpu):
    with record() as recorder:
        nn.LSTM(8, 16, proj_size=4, device="cpu:0")(gpu(5, 3, 8))[0].sum().backward()
    output, hy, cy = recorder.one("_cudnn_rnn").outputs[:3]
    assert (output[0], hy[0], cy[0]) == ((5, 3, 4), (1, 3, 4), (1, 3, 16))


def test_packed_sequences(record, gpu):
    with record() as recorder:
        layer = nn.LSTM(8, 16, device="cpu:0")
        state = gpu(1, 3, 16)
        sizes = torch.tensor([3, 2, 1])
        output, _, _ = torch.lstm(gpu(6, 8), sizes, (state, state), layer._flat_weights, True, 1, 0.0, True, False)
        assert output.shape == (6, 16)
        output.sum().backward()
    assert recorder.one("_cudnn_rnn").outputs[3][0] == (6 * 16 * 6 * 4,)


@pytest.mark.parametrize("low", [FP16, BF16])
def test_autocast_flattens_cast_weights_at_each_call(record, gpu, low):
    with record() as recorder:
        layer = nn.GRU(8, 16, device="cpu:0")
        with torch.autocast("cpu", dtype=low):
            output = layer(gpu(5, 3, 8))[0]
        assert output.dtype == low
        output.float().sum().backward()
        assert all(parameter.grad.dtype == FP32 for parameter in layer.parameters())
        total = sum(parameter.numel() for parameter in layer.parameters())
    flat = [call for call in recorder.calls if call.operator == "zeros" and call.outputs[0][:2] == ((total,), low)]
    assert len(flat) == 1


def test_bf16_takes_cudnn_too(record, gpu):
    with record() as recorder:
        nn.LSTM(8, 16, dtype=BF16, device="cpu:0")(gpu(5, 3, 8, dtype=BF16))[0].sum().backward()
    assert recorder.one("_cudnn_rnn").outputs[0] == ((5, 3, 16), BF16, "cpu:0")


def test_fused_cells_where_cudnn_is_switched_off(record, gpu):
    with record() as recorder, torch.backends.cudnn.flags(enabled=False):
        layer = nn.LSTM(8, 16, 2, bidirectional=True, batch_first=True, dtype=BF16, device="cpu:0")
        output, (h, _) = layer(gpu(3, 5, 8, dtype=BF16))
        assert (output.shape, h.shape) == ((3, 5, 32), (4, 3, 16))
        output.sum().backward()
        nn.GRU(8, 16, dtype=BF16, device="cpu:0")(gpu(5, 3, 8, dtype=BF16))[0].sum().backward()
    assert recorder.operators.count("_thnn_fused_lstm_cell") == 20
    assert "_cudnn_rnn" not in recorder.operators
    assert not any("mkldnn" in name for name in recorder.operators)


@pytest.mark.parametrize("bias", [True, False])
def test_cells(record, gpu, bias):
    with record() as recorder:
        nn.LSTMCell(8, 16, bias, device="cpu:0")(gpu(3, 8))[0].sum().backward()
        nn.GRUCell(8, 16, bias, device="cpu:0")(gpu(3, 8)).sum().backward()
    assert recorder.one("_thnn_fused_lstm_cell").outputs[2][0] == (3, 64)
    assert recorder.one("_thnn_fused_gru_cell").outputs[1][0] == (3, 80)


def test_flatten_parameters_gives_one_buffer(record, gpu):
    with record() as recorder:
        weights = [gpu(64, 8), gpu(64, 16), gpu(64), gpu(64)]
        torch.ops.aten._cudnn_rnn_flatten_weight(weights, 4, 8, 2, 16, 0, 1, False, False)
    assert recorder.one("_cudnn_rnn_flatten_weight").outputs[0] == ((64 * 26,), FP32, "cpu:0")
