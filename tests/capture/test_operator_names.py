"""Tables of operators hold what the installed torch has, so that an older one can import and use them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import oomcast
from oomcast.capture.torch.operator_names import by_operator, operator
from oomcast.capture.torch.operators import RULES
from oomcast.capture.torch.personality import autocast
from oomcast.capture.torch.personality.reductions import REDUCTIONS

WITHOUT_NEW_OPERATORS = """
import sys
import torch

MISSING = {"_grouped_mm", "_safe_softmax", "_fused_rms_norm", "_fused_rms_norm_backward",
           "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward"}

def lacking(usual):
    def get(namespace, name):
        # torch's own code is of one version and needs them.
        if name in MISSING and sys._getframe(1).f_globals["__name__"].startswith("oomcast."):
            raise AttributeError(name)
        return usual(namespace, name)

    return get

kind = type(torch.ops.aten)
kind.__getattribute__, kind.__getattr__ = lacking(kind.__getattribute__), lacking(kind.__getattr__)

import oomcast
from torch import nn
from oomcast.capture.torch.operator_names import operator

with oomcast.virtual_gpu("a100-40gb") as gpu:
    model = nn.TransformerEncoderLayer(32, 2, batch_first=True).cuda()
    model(torch.randn(2, 8, 32, device="cuda")).sum().backward()
    print(len(gpu.trace().allocations) > 50, operator("_grouped_mm"))
"""


def test_an_operator_is_found_by_its_name() -> None:
    assert operator("softmax.int") is torch.ops.aten.softmax.int
    assert operator("relu") is operator("aten::relu") is torch.ops.aten.relu.default
    assert operator("prims::sin") is torch.ops.prims.sin.default


def test_one_that_the_installed_torch_lacks_is_none() -> None:
    assert operator("made_up_by_a_test") is None
    assert operator("relu.made_up_by_a_test") is None
    assert operator("made_up_by_a_test::relu") is None


def test_a_table_holds_what_there_is() -> None:
    assert by_operator({"relu": 1, "made_up_by_a_test": 2, "sum.made_up": 3}) == {torch.ops.aten.relu.default: 1}
    assert None not in RULES
    assert None not in REDUCTIONS


def test_a_torch_without_the_newer_operators_is_good_enough() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT_NEW_OPERATORS], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout.strip()) == (0, "True None"), ran.stderr[-2000:]


def test_autocast_registers_each_operator_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch 2.4 to 2.6 has kernels of its own for operators that are on CUDA's lists, and refuses a second one."""
    added: list[str] = []

    class Overrides:
        def add(self, name: str, kernel: object, key: str) -> None:
            added.append(f"{name} {key}")

    usual = torch._C._dispatch_get_registrations_for_dispatch_key
    more = [f"aten::{name}" for name in (*autocast.SET_DTYPE, *autocast.PROMOTE)]
    monkeypatch.setattr(torch._C, "_dispatch_get_registrations_for_dispatch_key", lambda key: [*usual(key), *more])
    with oomcast.virtual_gpu("a100-40gb"):
        autocast.install(Overrides())  # type: ignore[arg-type]

    assert len(added) == len(set(added)) > 100
