"""Autocast follows CUDA's lists ("CUDA Ops that can autocast to float16 / to float32 / that promote")."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from oomcast.capture.torch.operator_names import operator
from oomcast.capture.torch.personality.autocast import APPEND_DTYPE, BANNED, FP32, LOWER_PRECISION, PROMOTE, SET_DTYPE

LOW = pytest.mark.parametrize("low", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])

TO_LOWER = {
    "matmul": lambda x, w: x @ w,
    "mm": torch.mm,
    "addmm": lambda x, w: torch.addmm(w, x, w),
    "mv": lambda x, w: torch.mv(x, w[0]),
    "addmv": lambda x, w: torch.addmv(w[0], x, w[0]),
    "addr": lambda x, w: torch.addr(x, w[0], w[0]),
    "bmm": lambda x, w: torch.bmm(x[None], w[None]),
    "baddbmm": lambda x, w: torch.baddbmm(x[None], x[None], w[None]),
    "addbmm": lambda x, w: torch.addbmm(x, x[None], w[None]),
    "chain_matmul": lambda x, w: torch.linalg.multi_dot([x, w, w]),
    "einsum": lambda x, w: torch.einsum("ij,jk->ik", x, w),
    "linear": F.linear,
    "prelu": lambda x, w: F.prelu(x, w[0, :1]),
    "conv1d": lambda x, w: F.conv1d(x[None], w[:, :, None]),
    "conv2d": lambda x, w: F.conv2d(x[None, :, None], w[:, :, None, None]),
    "conv2d with named padding": lambda x, w: F.conv2d(x[None, :, None], w[:, :, None, None], padding="same"),
    "conv3d": lambda x, w: F.conv3d(x[None, :, None, None], w[:, :, None, None, None]),
    "conv_transpose1d": lambda x, w: F.conv_transpose1d(x[None], w[:, :, None]),
    "conv_transpose2d": lambda x, w: F.conv_transpose2d(x[None, :, None], w[:, :, None, None]),
    "conv_transpose3d": lambda x, w: F.conv_transpose3d(x[None, :, None, None], w[:, :, None, None, None]),
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None, None], w[None, None], w[None, None]),
    "gru_cell": lambda x, w: torch.gru_cell(x, x, torch.cat([w] * 3), torch.cat([w] * 3)),
    "lstm_cell": lambda x, w: torch.lstm_cell(x, (x, x), torch.cat([w] * 4), torch.cat([w] * 4))[0],
}

TO_FP32 = {
    "acos": torch.acos,
    "asin": torch.asin,
    "cosh": torch.cosh,
    "cumprod": lambda x: x.cumprod(0),
    "cumsum": lambda x: x.cumsum(0),
    "dist": lambda x: torch.dist(x, x),
    "cdist": lambda x: torch.cdist(x, x),
    "erfinv": torch.erfinv,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "group_norm": lambda x: F.group_norm(x, 2),
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "rms_norm": lambda x: F.rms_norm(x, (8,)),
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "log_softmax": lambda x: x.log_softmax(-1),
    "softmax": lambda x: x.softmax(-1),
    "softmin": lambda x: F.softmin(x, -1),
    "softplus": F.softplus,
    "mse_loss": lambda x: F.mse_loss(x, x),
    "l1_loss": lambda x: F.l1_loss(x, x),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x),
    "huber_loss": lambda x: F.huber_loss(x, x),
    "kl_div": lambda x: F.kl_div(x, x, reduction="sum"),
    "poisson_nll_loss": lambda x: F.poisson_nll_loss(x, x),
    "soft_margin_loss": lambda x: F.soft_margin_loss(x, x.detach()),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x),
    "bce with logits": lambda x: F.binary_cross_entropy_with_logits(x, x),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(8, dtype=torch.int64, device="cpu:0")),
    "norm": lambda x: x.norm(),
    "norm along a dimension": lambda x: x.norm(dim=0),
    "linalg_vector_norm": torch.linalg.vector_norm,
    "logsumexp": lambda x: x.logsumexp(0),
    "pow": lambda x: x**2,
    "rpow": lambda x: 2.0**x,
    "prod": lambda x: x.prod(),
    "reciprocal": torch.reciprocal,
    "renorm": lambda x: x.renorm(2, 0, 1.0),
    "rsqrt": torch.rsqrt,
    "sinh": torch.sinh,
    "sum": lambda x: x.sum(),
    "sum along a dimension": lambda x: x.sum(0),
    "tan": torch.tan,
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
}

UNTOUCHED = {
    "mean": lambda x: x.mean(),
    "relu": F.relu,
    "gelu": F.gelu,
    "avg_pool3d": lambda x: F.avg_pool3d(x[None, None, None], (1, 2, 2)),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x[None, None, None], 1),
    "reflection_pad1d": lambda x: F.pad(x, (1, 1), mode="reflect"),
    "var": lambda x: x.var(),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
}


@LOW
@pytest.mark.parametrize("name", TO_LOWER)
def test_to_lower_precision(record, gpu, name, low):
    with record(), torch.autocast("cpu", dtype=low):
        assert TO_LOWER[name](gpu(8, 8), gpu(8, 8)).dtype == low


@LOW
@pytest.mark.parametrize("name", TO_FP32)
def test_to_fp32(record, gpu, name, low):
    with record(), torch.autocast("cpu", dtype=low):
        assert TO_FP32[name](gpu(8, 8, dtype=low)).dtype == torch.float32


@LOW
@pytest.mark.parametrize("name", UNTOUCHED)
def test_what_cpu_casts_and_cuda_does_not(record, gpu, name, low):
    with record(), torch.autocast("cpu", dtype=low):
        assert UNTOUCHED[name](gpu(8, 8, dtype=low)).dtype == low
        assert UNTOUCHED[name](gpu(8, 8)).dtype == torch.float32


@LOW
def test_promotion_to_the_widest(record, gpu, low):
    with record(), torch.autocast("cpu", dtype=low):
        half, single = gpu(8, 8, dtype=low), gpu(8, 8)
        for run in (
            lambda a, b: torch.addcmul(a, a, b),
            lambda a, b: torch.addcdiv(a, a, b),
            torch.atan2,
            lambda a, b: torch.dot(a[0], b[0]),
            lambda a, b: torch.tensordot(a, b, 1),
            lambda a, b: torch.cat([a, b]),
            lambda a, b: torch.stack([a, b]),
            lambda a, b: a.scatter_add(0, torch.zeros(8, 8, dtype=torch.int64, device="cpu:0"), b),
        ):
            assert run(half, single).dtype == torch.float32
            assert run(half, half).dtype == low


@LOW
def test_a_parameter_is_cast_once_for_all_operators(record, gpu, low):
    with record() as recorder:
        weight, x = gpu(8, 8), gpu(4, 8, dtype=low)
        with torch.autocast("cpu", dtype=low):
            y = torch.einsum("ij,jk->ik", F.linear(x, weight), weight)
            y = torch.mv(F.linear(y, weight) @ weight, weight[0].detach())
        y.float().sum().backward()
        assert weight.grad.dtype == torch.float32
    casts = [call for call in recorder.calls if call.operator == "_to_copy" and call.outputs[0][:2] == ((8, 8), low)]
    assert len(casts) == 1


def test_the_cache_ends_with_autocast(record, gpu):
    with record() as recorder:
        weight = gpu(8, 8)
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.float16):
                torch.einsum("ij,jk->ik", weight, weight)
    assert recorder.operators.count("_to_copy") == 2


def test_softmax_of_fp16_converts_inside_its_kernel(record, gpu):
    for low, copies in ((torch.float16, 0), (torch.bfloat16, 1)):
        with record() as recorder, torch.autocast("cpu", dtype=low):
            gpu(8, 8, dtype=low).softmax(-1)
        assert recorder.operators.count("_to_copy") == copies
        assert recorder.one("_softmax").outputs[0][1] == torch.float32


def test_binary_cross_entropy_is_refused(record, gpu):
    with record(), torch.autocast("cpu", dtype=torch.float16), pytest.raises(RuntimeError, match="with_logits"):
        F.binary_cross_entropy(gpu(4, 8), gpu(4, 8))


def test_doubles_and_integers_are_left(record, gpu):
    with record(), torch.autocast("cpu", dtype=torch.float16):
        assert (gpu(8, 8, dtype=torch.float64) @ gpu(8, 8, dtype=torch.float64)).dtype == torch.float64
        assert torch.zeros(8, dtype=torch.int64, device="cpu:0").sum().dtype == torch.int64


def test_the_lists_name_operators_of_this_torch():
    names = [*LOWER_PRECISION, *FP32, *SET_DTYPE, *PROMOTE, *BANNED, *APPEND_DTYPE]
    assert len(names) == len(set(names))
    assert [name for name in names if operator(name) is None] == []
