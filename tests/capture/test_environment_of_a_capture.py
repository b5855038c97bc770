"""The environment that a job is meant for reaches its capture, and what cannot be followed is said in the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.capture import capture
from oomcast.devices import default_stack, find_gpu, find_stack
from oomcast.errors import UnknownName
from oomcast.estimation.target import Target
from oomcast.spec import Place, Spec
from oomcast.trace import Category, Phase, Trace, verify

HEADS, TOKENS, WIDTH = 4, 128, 256

ATTENTION = f"""
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear({WIDTH}, {3 * WIDTH}), nn.Linear({WIDTH}, {WIDTH})

    def forward(self, x):
        q, k, v = (t.unflatten(-1, ({HEADS}, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

def model():
    return Net()

def batch(batch_size):
    return torch.randn(batch_size, {TOKENS}, {WIDTH})

def loss(model, batch):
    return model(batch).float().pow(2).mean()
"""


@pytest.fixture
def attention(tmp_path: Path) -> str:
    path = tmp_path / "attention.py"
    path.write_text(ATTENTION)
    return str(path)


def record(job: Any, device: str = "h100-80gb", **options: Any) -> Trace:
    trace = capture(Spec.read(job, **{"batch_size": 2, "steps": 1, "device": device, **options}))
    verify(trace)
    return trace


def operators(trace: Trace) -> set[str]:
    return {made.operator.removeprefix("aten.") for made in trace.allocations}


def sizes_of(trace: Trace, operator: str, category: Category | None = None) -> list[int]:
    chosen = [made for made in trace.allocations if made.operator == f"aten.{operator}"]
    return [made.nbytes for made in chosen if category is None or made.category is category]


def test_attention_on_a_hopper_is_flash_until_cudnn_9_15_and_cudnn_after_it(attention: str) -> None:
    old = record(attention, environment="torch-2.8-cu128", precision="bf16")
    new = record(attention, environment="torch-2.13-cu130", precision="bf16")

    flash, cudnn = "_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention"
    assert {flash, f"{flash}_backward"} <= operators(old)
    assert {cudnn, f"{cudnn}_backward"} <= operators(new)
    assert not any("cudnn_attention" in name for name in operators(old))
    assert not any("flash_attention" in name for name in operators(new))
    # Output and log-sum-exp are alike; then flash keeps three 8-byte integers as its random state, cuDNN two.
    output, statistics = 2 * TOKENS * WIDTH * 2, 2 * HEADS * TOKENS * 4
    assert sizes_of(old, flash) == [output, statistics, 16, 8]
    assert sizes_of(new, cudnn) == [output, statistics, 8, 8]
    # In backward both hold the row sums and dq in fp32 (cuDNN's graph, flash's `softmax_d` and `dq_accum`).
    scratch = [2 * HEADS * TOKENS * 4, 2 * TOKENS * WIDTH * 4]
    assert sizes_of(new, f"{cudnn}_backward", Category.WORKSPACE) == scratch
    assert sizes_of(old, f"{flash}_backward", Category.WORKSPACE) == scratch
    assert sum(made.nbytes for made in old.allocations) != sum(made.nbytes for made in new.allocations)


def test_the_estimate_follows_it_too(attention: str) -> None:
    options = {"batch_size": 2, "device": "h100-80gb", "precision": "bf16", "optimizer": "adamw"}
    old = oomcast.estimate(attention, environment="torch-2.8-cu128", **options)
    own = oomcast.estimate(attention, **options)

    assert own.assumptions == ()
    assert old.assumptions == (
        f"torch 2.8 is followed, not the installed {installed()}, in: scaled_dot_product_attention; otherwise its "
        "modules, losses and optimizers are the installed ones",
    )


def installed() -> str:
    return ".".join(torch.__version__.split(".")[:2])


def test_the_installed_torchs_own_environment_changes_and_says_nothing(attention: str) -> None:
    options = {"precision": "amp-bf16", "optimizer": "adamw"}
    named = record(attention, environment=default_stack(torch.__version__).name, **options)
    unnamed = record(attention, **options)

    assert named.allocations == unnamed.allocations
    assert named.events == unnamed.events
    assert named.assumptions == unnamed.assumptions == ()


def test_nothing_is_said_where_another_version_runs_the_same(attention: str) -> None:
    old, new = (
        record("zoo:mlp", environment=name, optimizer="adamw") for name in ("torch-2.4-cu121", "torch-2.13-cu130")
    )

    assert old.allocations == new.allocations
    assert old.assumptions == new.assumptions == ()


def test_a_version_that_is_named_is_the_one_that_is_followed(attention: str) -> None:
    """2.9 and 2.8 are of one generation, and choose otherwise on a Hopper."""
    nine = record(attention, environment="torch-2.9", precision="bf16")
    eight = record(attention, environment="2.8", precision="bf16")

    assert "_scaled_dot_product_cudnn_attention" in operators(nine)
    assert "_scaled_dot_product_flash_attention" in operators(eight)
    target = Target.of(Place("h100-80gb", "torch-2.9", use_calibration=False))
    assert target.on(find_gpu("b200")).stack == target.stack == find_stack("2.9")


def test_before_torch_2_0_optimizers_loop(attention: str) -> None:
    old, new = (record("zoo:mlp", environment=name, optimizer="adam") for name in ("1.12", "2.0"))
    asked = record("zoo:mlp", environment="1.12", optimizer="adam-foreach")

    def stepping(trace: Trace) -> set[str]:
        return {made.operator for made in trace.allocations if made.phase is Phase.OPTIMIZER}

    assert any("foreach" in name for name in stepping(new))
    assert not any("foreach" in name for name in stepping(old))
    assert stepping(asked) == stepping(new)
    assert "optimizers' loops over parameters" in old.assumptions[0]
    assert new.assumptions == asked.assumptions == ()


def step_in_place(environment: str | None, **how: bool) -> bool:
    """Whether the gradients of the first step are those of the second."""
    with oomcast.virtual_gpu("a100-40gb", environment):
        model = nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(torch.ones(2, 8, device="cuda")).sum().backward()
        optimizer.zero_grad(**how)
        return model.weight.grad is not None


def test_zero_grad_frees_by_default_since_torch_2_0() -> None:
    assert step_in_place("torch-1.12-cu113")
    assert not step_in_place("torch-1.12-cu113", set_to_none=True)
    assert not step_in_place("2.0")
    assert not step_in_place(None)
    assert step_in_place(None, set_to_none=False)


def test_code_sees_the_libraries_of_the_environment() -> None:
    cuda, cudnn = torch.version.cuda, torch.backends.cudnn.version()
    with oomcast.virtual_gpu("a100-40gb", "torch-2.4-cu121"):
        assert torch.version.cuda == "12.1"
        assert torch.backends.cudnn.version() == 90100
    with oomcast.virtual_gpu("a100-40gb", "torch-1.12"):
        assert torch.version.cuda == "11.3"
        assert torch.backends.cudnn.version() == 8300
    assert (torch.version.cuda, torch.backends.cudnn.version()) == (cuda, cudnn)


def test_the_free_memory_is_what_the_environments_context_leaves() -> None:
    def free(environment: str) -> int:
        with oomcast.virtual_gpu("a100-40gb", environment):
            return torch.cuda.mem_get_info()[0]

    assert free("torch-2.4-cu121") - free("torch-2.4-cu121-eager") > 400 << 20


def test_an_unknown_environment_is_said() -> None:
    with pytest.raises(UnknownName, match="environment"), oomcast.virtual_gpu("a100-40gb", "torch-2.8-cu129"):
        pass


GPT2 = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 64,
    "n_layer": 1,
    "n_head": 2,
    "vocab_size": 500,
}


def test_the_loss_of_newer_transformers_is_said_under_an_older_torch(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    of_the_loss = "hold one more copy of the logits"

    old = record(f"hf:{tmp_path}", environment="torch-2.4-cu121", seq_len=16)
    new = record(f"hf:{tmp_path}", environment="torch-2.8-cu128", seq_len=16)
    bare = record("zoo:mlp", environment="torch-2.4-cu121")

    assert [sentence for sentence in old.assumptions if of_the_loss in sentence] == [
        f"the loss is that of transformers {old.versions['transformers']}; versions before 4.46, usual with torch 2.4, "
        "hold one more copy of the logits, shifted by one token"
    ]
    assert not any(of_the_loss in sentence for sentence in (*new.assumptions, *bare.assumptions))


def test_the_versions_of_the_libraries_in_use_are_recorded(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(GPT2))

    assert record("zoo:mlp").versions.keys() >= {"python", "torch"}
    assert record(f"hf:{tmp_path}", seq_len=16).versions["transformers"]
