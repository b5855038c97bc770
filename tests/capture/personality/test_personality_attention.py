"""`scaled_dot_product_attention`: the kernel CUDA chooses, and what it allocates."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from oomcast.capture.torch.errors import RaisedAsOnGpu
from oomcast.capture.torch.personality import AttentionCall, Backend, Mask, Switches, choose_backend, current_switches

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16


def call(shape=(2, 4, 128, 64), dtype=FP16, **changes) -> AttentionCall:
    facts = {"query": shape, "key": shape, "value": shape, "dtype": dtype, **changes}
    return AttentionCall(**facts)


CASES = [
    ("half on Ampere is flash", "a100", call(), Backend.FLASH),
    ("bf16 on Ampere is flash", "a100", call(dtype=BF16), Backend.FLASH),
    ("flash has no fp32", "a100", call(dtype=FP32), Backend.EFFICIENT),
    ("flash begins with sm80", "v100", call(), Backend.EFFICIENT),
    ("no fused kernel for bf16 before Ampere", "t4", call(dtype=BF16), Backend.MATH),
    ("fp64 has no fused kernel", "a100", call(dtype=torch.float64), Backend.MATH),
    ("a mask excludes flash", "a100", call(mask=Mask((128, 128))), Backend.EFFICIENT),
    ("a mask with strides excludes the fused ones", "a100", call(mask=Mask((128, 128), False)), Backend.MATH),
    ("flash stops at heads of 256", "a100", call((2, 4, 128, 264)), Backend.EFFICIENT),
    ("heads that are not multiples of 8 are padded for flash", "a100", call((2, 4, 128, 60)), Backend.FLASH),
    ("the efficient one needs fp32 heads in multiples of 4", "a100", call((2, 4, 128, 30), FP32), Backend.MATH),
    ("on Volta fp32 heads are free", "v100", call((2, 4, 128, 30), FP32), Backend.EFFICIENT),
    ("on Volta half heads come in multiples of 8", "v100", call((2, 4, 128, 60)), Backend.MATH),
    ("wide heads cannot train by flash on sm86", "rtx3090", call((2, 4, 128, 224)), Backend.EFFICIENT),
    ("heads of 256 can, without dropout", "rtx3090", call((2, 4, 128, 256)), Backend.FLASH),
    ("but not with it", "rtx3090", call((2, 4, 128, 256), dropout=0.1), Backend.EFFICIENT),
    ("without gradients they can", "rtx3090", call((2, 4, 128, 224), needs_grad=False), Backend.FLASH),
    ("sm120 is like sm86", "rtx5090", call((2, 4, 128, 224)), Backend.EFFICIENT),
    ("causal and not square", "a100",
     call(key=(2, 4, 64, 64), value=(2, 4, 64, 64), is_causal=True), Backend.EFFICIENT),
    ("other value heads exclude flash", "a100", call(value=(2, 4, 128, 32)), Backend.EFFICIENT),
    ("grouped queries are flash's", "a100",
     call(key=(2, 2, 128, 64), value=(2, 2, 128, 64), enable_gqa=True), Backend.FLASH),
    ("grouped queries in fp32 are nobody's", "a100",
     call(dtype=FP32, key=(2, 2, 128, 64), value=(2, 2, 128, 64), enable_gqa=True), Backend.MATH),
    ("unequal heads without the flag", "a100", call(key=(2, 2, 128, 64), value=(2, 2, 128, 64)), Backend.MATH),
    ("three dimensions", "a100", call((4, 128, 64)), Backend.MATH),
    ("strided heads", "a100", call(unit_strides=False), Backend.MATH),
    ("a batch that broadcasts", "a100", call(key=(1, 4, 128, 64), value=(1, 4, 128, 64)), Backend.MATH),
    ("cuDNN comes first on Hopper from 9.15.1 on", "h100", call(), Backend.CUDNN),
    ("not before", "old-h100", call(), Backend.FLASH),
    ("cuDNN takes masks", "h100", call(mask=Mask((2, 1, 128, 128))), Backend.CUDNN),
    ("but none that is learned", "h100", call(mask=Mask((2, 1, 128, 128), requires_grad=True)), Backend.EFFICIENT),
    ("cuDNN stops at heads of 128", "h100", call((2, 4, 128, 192)), Backend.FLASH),
    ("dropout in sixteenths is cuDNN's", "h100", call(dropout=0.125), Backend.CUDNN),
    ("other dropout is not", "h100", call(dropout=0.1), Backend.FLASH),
    ("a consumer Blackwell prefers flash", "rtx5090", call(), Backend.FLASH),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "platform", "case", "expected"), CASES, ids=[case[0] for case in CASES])
def test_the_choice_follows_the_rules_of_cuda(platforms, reason, platform, case, expected):
    assert choose_backend(case, platforms[platform], Switches()) is expected


def test_the_users_switches_and_order_decide_first(platforms):
    a100 = platforms["a100"]
    assert choose_backend(call(), a100, Switches(flash=False)) is Backend.EFFICIENT
    assert choose_backend(call(), a100, Switches(flash=False, efficient=False)) is Backend.MATH
    assert choose_backend(call(), a100, Switches(flash=False, efficient=False, math=False)) is Backend.CUDNN
    assert choose_backend(call(), a100, Switches(order=(2, 1, 0, 3))) is Backend.EFFICIENT
    assert choose_backend(call(), platforms["h100"], Switches(deterministic=True)) is Backend.FLASH
    with pytest.raises(RuntimeError, match="no attention kernel"):
        choose_backend(call(dtype=FP32), a100, Switches(efficient=False, math=False))


def test_switches_are_torchs_own():
    assert current_switches() == Switches()
    with sdpa_kernel(SDPBackend.MATH):
        assert current_switches() == Switches(flash=False, efficient=False, cudnn=False)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert current_switches().order == (2, 1, 0, 3)


def test_flash_keeps_a_logsumexp_and_its_random_state(record, gpu):
    with record() as recorder:
        q, k, v = (gpu(2, 4, 100, 64, dtype=FP16) for _ in range(3))
        F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True).sum().backward()
    outputs = recorder.one("_scaled_dot_product_flash_attention").outputs
    assert outputs[0] == ((2, 4, 100, 64), FP16, "cpu:0")
    assert outputs[1] == ((2, 4, 100), FP32, "cpu:0")
    assert outputs[6:] == (((2,), torch.uint64, "cpu:0"), ((), torch.uint64, "cpu:0"), ((0,), FP16, "cpu:0"))
    backward = recorder.one("_scaled_dot_product_flash_attention_backward")
    rows = 2 * 4 * 128 * 4
    copies = 2 * 4 * 100 * 64 * 2
    assert sorted(backward.scratch) == sorted((copies, copies, rows, rows * 64))


def test_flash_pads_odd_heads_and_expands_grouped_gradients(record, gpu):
    with record() as recorder:
        q, k, v = gpu(2, 4, 128, 60, dtype=BF16), gpu(2, 2, 128, 60, dtype=BF16), gpu(2, 2, 128, 60, dtype=BF16)
        out = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        assert out.shape == (2, 4, 128, 60)
        out.sum().backward()
    assert recorder.operators.count("constant_pad_nd") == 6, "three heads padded, three gradients cut"
    assert recorder.one("_scaled_dot_product_flash_attention").outputs[0][0] == (2, 4, 128, 64)
    assert recorder.one("_scaled_dot_product_flash_attention_backward").scratch.count(2 * 128 * 4 * 64 * 2) >= 2


def test_the_efficient_kernel_pads_its_bias_and_its_logsumexp(record, gpu):
    with record() as recorder:
        q, k, v = gpu(2, 4, 10, 16), gpu(2, 4, 13, 16), gpu(2, 4, 13, 16)
        mask = torch.ones(10, 13, dtype=torch.bool, device="cpu:0")
        F.scaled_dot_product_attention(q, k, v, mask).sum().backward()
    assert recorder.one("where.self").outputs[0] == ((10, 13), FP32, "cpu:0")
    assert recorder.one("constant_pad_nd").outputs[0][0] == (10, 16)
    outputs = recorder.one("_scaled_dot_product_efficient_attention").outputs
    assert outputs[1] == ((2, 4, 32), FP32, "cpu:0")
    assert outputs[2:] == (((), torch.int64, "cpu"), ((), torch.int64, "cpu"))
    backward = recorder.one("_scaled_dot_product_efficient_attention_backward")
    assert [out[0] for out in backward.outputs[:3]] == [(2, 4, 10, 16), (2, 4, 13, 16), (2, 4, 13, 16)]
    assert 2 * 4 * (64 * 64 + 4) * 4 in backward.scratch


def test_no_logsumexp_without_gradients(record, gpu):
    with record() as recorder, torch.no_grad():
        q = gpu(2, 4, 10, 16)
        F.scaled_dot_product_attention(q, q, q)
    assert recorder.one("_scaled_dot_product_efficient_attention").outputs[1][0] == (2, 4, 0)


def test_cudnn_on_hopper(record, gpu):
    with record("h100") as recorder:
        q, k, v = (gpu(2, 4, 128, 64, dtype=BF16) for _ in range(3))
        F.scaled_dot_product_attention(q, k, v).sum().backward()
    outputs = recorder.one("_scaled_dot_product_cudnn_attention").outputs
    assert outputs[1] == ((2, 4, 128, 1), FP32, "cpu:0")
    assert recorder.one("_scaled_dot_product_cudnn_attention_backward").scratch == (
        2 * 4 * 128 * 4,
        2 * 4 * 128 * 64 * 4,
    )


def test_math_adds_the_mask_in_place_and_works_in_fp32(record, gpu):
    with record() as recorder, sdpa_kernel(SDPBackend.MATH):
        q, k, v = gpu(2, 4, 8, 16, dtype=FP16), gpu(2, 2, 8, 16, dtype=FP16), gpu(2, 2, 8, 16, dtype=FP16)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.5, enable_gqa=True)
        assert out.dtype == FP16
        out.sum().backward()
    assert "add_.Tensor" in recorder.operators
    softmax = recorder.one("_safe_softmax")
    assert softmax.outputs[0] == ((2, 4, 8, 8), FP32, "cpu:0")
    assert softmax.scratch == (2 * 4 * 8 * 8, 2 * 4 * 8)
    assert recorder.one("native_dropout").outputs[1] == ((2, 4, 8, 8), torch.bool, "cpu:0")


def test_wrong_calls_fail_as_on_cuda(record, gpu):
    with record():
        q = gpu(2, 4, 8, 16)
        with pytest.raises(RuntimeError, match="dtype"):
            F.scaled_dot_product_attention(q, q, gpu(2, 4, 8, 16, dtype=FP16))
        with pytest.raises(RuntimeError, match="attn_mask must be bool"):
            F.scaled_dot_product_attention(q, q, q, torch.zeros(8, 8, dtype=FP16, device="cpu:0"))
        with pytest.raises(RaisedAsOnGpu, match="4 heads and the key 3"):
            F.scaled_dot_product_attention(q, gpu(2, 3, 8, 16), gpu(2, 3, 8, 16))


def test_transformer_layers_train(record, gpu):
    with record() as recorder:
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, device="cpu:0")
        padding = torch.zeros(2, 10, dtype=torch.bool, device="cpu:0")
        layer(gpu(2, 10, 64), src_key_padding_mask=padding).sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())
    assert "_scaled_dot_product_efficient_attention_backward" in recorder.operators
    assert not any("native_multi_head" in name or "_transformer_encoder" in name for name in recorder.operators)
