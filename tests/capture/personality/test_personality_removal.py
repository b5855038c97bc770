"""Leaving gives torch back as it was, and host tensors never notice."""

from __future__ import annotations

import warnings
from types import ModuleType

import pytest
import torch
import torch._meta_registrations
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from oomcast.capture.torch import personality
from oomcast.capture.torch.personality import Personality, on_virtual_gpu


def tables() -> dict[str, str]:
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    return {name: torch._C._dispatch_dump(name) for name in names}


def test_the_dispatcher_is_as_before(platforms):
    before, hint = tables(), torch._meta_registrations.device_hint
    with Personality(platforms["a100"]):
        inside = tables()
        assert torch._meta_registrations.device_hint is not hint
    assert tables() == before
    assert torch._meta_registrations.device_hint is hint
    changed = {name for name in before if inside[name] != before[name]}
    assert {"aten::dropout", "aten::scaled_dot_product_attention", "aten::lstm.input", "aten::batch_norm"} <= changed


def test_it_may_be_entered_again_and_within_another(platforms):
    before = tables()
    one, other = Personality(platforms["a100"]), Personality(platforms["v100"])
    with one, other, one:
        pass
    with one:
        one.install()
        one.remove()
        one.remove()
        one.remove()
    assert tables() == before


def test_the_inner_platform_decides_until_it_is_left(platforms, record, gpu):
    with record("a100") as recorder:
        q = gpu(2, 4, 8, 16, dtype=torch.float16)
        with Personality(platforms["v100"]):
            F.scaled_dot_product_attention(q, q, q)
        assert "_scaled_dot_product_flash_attention" not in recorder.operators
        F.scaled_dot_product_attention(q, q, q)
    assert "_scaled_dot_product_efficient_attention" in recorder.operators
    assert "_scaled_dot_product_flash_attention" in recorder.operators


def test_it_is_removed_after_an_error(platforms):
    before = tables()
    with pytest.raises(ZeroDivisionError), Personality(platforms["a100"]):
        raise ZeroDivisionError
    assert tables() == before


def test_no_warning_escapes(platforms):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Personality(platforms["a100"]), Personality(platforms["h100"]):
            pass
    assert caught == []


def host_run() -> list[torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8, 8, requires_grad=True)
    layer = nn.Sequential(nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm(8), nn.RMSNorm(8), nn.Dropout(0.5))
    y = layer(x)
    y = F.scaled_dot_product_attention(y, y, y, dropout_p=0.1)
    y = nn.LSTM(8, 8)(y.flatten(0, 1))[0].transpose(0, 1)
    y = F.linear(y, torch.randn(5, 8), torch.randn(5)).log_softmax(-1)
    loss = F.ctc_loss(y, torch.ones(8, 3, dtype=torch.int64), (8,) * 8, (3,) * 8)
    loss = loss + nn.GRUCell(8, 8)(x[0, 0]).sum() + nn.LSTMCell(8, 8)(x[0, 0])[0].sum() + nn.PReLU()(x).sum()
    loss.backward()
    return [y.detach(), loss.detach(), x.grad]


def test_real_host_tensors_get_the_same_values(platforms):
    expected = host_run()
    with Personality(platforms["a100"]):
        found = host_run()
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


def test_fake_host_tensors_take_cpus_paths(record):
    with record() as recorder:
        x = torch.empty(2, 4, 8, 8, dtype=torch.float16, requires_grad=True)
        F.dropout(F.layer_norm(x, (8,)), 0.5)
        F.scaled_dot_product_attention(x, x, x)
        F.batch_norm(x, None, None, torch.ones(4), torch.ones(4), training=True)
    assert "native_dropout" not in recorder.operators
    assert recorder.one("native_layer_norm").outputs[1][1] == torch.float16
    assert "_scaled_dot_product_flash_attention_for_cpu" in recorder.operators
    assert "native_batch_norm" in recorder.operators
    assert not any(call.scratch for call in recorder.calls)


def test_host_tensors_are_not_cast_by_cudas_policies(platforms):
    with Personality(platforms["a100"]), torch.autocast("cpu", dtype=torch.float16):
        half = torch.ones(4, 4, dtype=torch.float16)
        assert half.sum().dtype == torch.float16
        assert half.exp().dtype == torch.float16
        assert torch.einsum("ij,jk->ik", torch.ones(4, 4).double(), torch.ones(4, 4).double()).dtype == torch.float64
        assert F.binary_cross_entropy(torch.full((4,), 0.5), torch.ones(4)).dtype == torch.float32


def test_inference_mode_takes_the_same_paths(record):
    with record() as recorder, torch.inference_mode():
        q = torch.empty(2, 4, 8, 16, dtype=torch.float16, device="cpu:0")
        F.dropout(F.scaled_dot_product_attention(q, q, q), 0.5)
        F.batch_norm(q.float(), None, None, q[0, :, 0, 0].float(), q[0, :, 0, 0].float(), training=True)
    assert {"_scaled_dot_product_flash_attention", "native_dropout", "cudnn_batch_norm"} <= set(recorder.operators)
    assert personality.COMPOSITES == {}


def test_the_virtual_gpu_is_told_from_the_host():
    with FakeTensorMode():
        assert on_virtual_gpu(torch.empty(2, device="cpu:0"))
        assert not on_virtual_gpu(torch.empty(2))
    assert not on_virtual_gpu(torch.empty(2))
    assert not on_virtual_gpu(torch.empty(2, device="meta"))


def test_public_names():
    assert sorted(personality.__all__) == sorted(
        name
        for name, value in vars(personality).items()
        # pytest rewrites the assertions of packages that have a plugin, and leaves names that begin with an @.
        if not name.startswith(("_", "@")) and name not in ("annotations", "Any", "Callable")
        if not isinstance(value, ModuleType)
    )
    for table in (
        personality.FAKE_KERNELS,
        personality.PLAIN_KERNELS,
        personality.OUTPUT_CORRECTIONS,
        personality.INTERNAL_SCRATCH,
    ):
        assert all(isinstance(op, torch._ops.OpOverload) for op in table)
