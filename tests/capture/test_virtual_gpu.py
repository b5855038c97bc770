"""Code written for CUDA runs as it is on the virtual GPU, and everything it takes is recorded."""

from __future__ import annotations

import copy
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.errors import BadInput
from oomcast.trace import Category, EventKind, Phase, Trace, verify
from oomcast.units import MiB

DEVICE = "a100-40gb"


def train(steps: int = 2, amp: bool = False) -> nn.Module:
    """A training loop as people write it for a GPU; nothing in it knows of oomcast."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 32 * 32, 10)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", enabled=amp)
    for _ in range(steps):
        x, y = torch.randn(64, 3, 32, 32).to(device), torch.randint(0, 10, (64,)).cuda()
        optimizer.zero_grad()
        with torch.autocast("cuda", enabled=amp):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        f"loss {loss.item():.3f} {loss:.3f}"
    return model


def bytes_by_category(trace: Trace) -> dict[Category, int]:
    totals: dict[Category, int] = {}
    for allocation in trace.allocations:
        totals[allocation.category] = totals.get(allocation.category, 0) + allocation.nbytes
    return totals


@pytest.mark.parametrize("amp", [False, True])
def test_a_cuda_training_loop_runs_unchanged(amp: bool) -> None:
    with oomcast.virtual_gpu(DEVICE) as gpu:
        model = train(amp=amp)
        parameter_bytes = sum(p.numel() * 4 for p in model.parameters())
        trace = gpu.trace()
    verify(trace)
    totals = bytes_by_category(trace)
    assert totals[Category.PARAMETER] == parameter_bytes
    assert totals[Category.GRADIENT] == 2 * parameter_bytes  # two steps
    assert totals[Category.OPTIMIZER_STATE] == 2 * parameter_bytes  # two moments, made once
    assert {mark.phase for mark in trace.marks} >= {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.ZERO_GRAD}
    assert not trace.unsupported


def test_tensors_say_that_they_are_on_the_gpu() -> None:
    with oomcast.virtual_gpu(DEVICE):
        x = torch.zeros(3, device="cuda")
        host = torch.zeros(3)
        assert x.device == torch.device("cuda:0")
        assert x.is_cuda
        assert not x.is_cpu
        assert x.get_device() == 0
        assert x.type() == "torch.cuda.FloatTensor"
        assert (x + 1).device.type == "cuda"
        assert torch.zeros_like(x).is_cuda
        assert x.cpu().device == torch.device("cpu")
        assert host.device == torch.device("cpu")
        assert host.cuda().is_cuda
        assert host.to(x.device).is_cuda
        assert torch.tensor([1.0, 2.0], device="cuda:0").is_cuda
        with torch.device("cuda"):
            assert torch.ones(2).is_cuda
        with pytest.raises(RuntimeError, match="same device"):
            x + host
        with pytest.raises(TypeError, match="cpu"):
            x.numpy()


def test_torch_is_as_before_afterwards() -> None:
    available, autocast = torch.cuda.is_available(), torch.get_autocast_dtype("cpu")
    with oomcast.virtual_gpu(DEVICE):
        assert torch.cuda.is_available()
        train(1)
    assert torch.cuda.is_available() == available
    assert torch.get_autocast_dtype("cpu") == autocast
    parameter = nn.Linear(2, 2).weight
    assert type(parameter) is nn.Parameter
    out = nn.functional.dropout(torch.ones(1000), 0.5)
    assert out.device.index is None
    assert 200 < (out == 0).sum().item() < 800
    assert not nn.modules.module._global_forward_pre_hooks


def test_an_exception_leaves_torch_as_before() -> None:
    with pytest.raises(ZeroDivisionError), oomcast.virtual_gpu(DEVICE):
        1 / 0  # noqa: B018
    assert type(nn.Linear(2, 2).weight) is nn.Parameter
    assert torch.ones(2).sum().item() == 2


def test_memory_counters_are_those_of_the_caching_allocator() -> None:
    with oomcast.virtual_gpu(DEVICE):
        assert torch.cuda.memory_allocated() == 0
        x = torch.empty(1024, 1024, device="cuda")  # 4 MiB, from a 20 MiB segment
        assert torch.cuda.memory_allocated() == 4 * MiB
        assert torch.cuda.memory_reserved() == 20 * MiB
        small = torch.empty(1, device="cuda")  # 512 B, from a 2 MiB segment
        assert torch.cuda.memory_allocated() == 4 * MiB + 512
        assert torch.cuda.memory_reserved() == 22 * MiB
        y = torch.empty(1024, 1024, device="cuda")
        del y
        assert torch.cuda.memory_allocated() == 4 * MiB + 512
        assert torch.cuda.max_memory_allocated() == 8 * MiB + 512
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == 4 * MiB + 512
        del x, small
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() == 0
        assert torch.cuda.memory_stats()["reserved_bytes.all.current"] == 0
        assert torch.cuda.max_memory_reserved() == 22 * MiB
        free, total = torch.cuda.mem_get_info()
        assert 0 < free < total == torch.cuda.get_device_properties(0).total_memory


def test_the_target_decides_what_the_device_says() -> None:
    with oomcast.virtual_gpu("rtx-2080-ti"):
        assert torch.cuda.get_device_capability() == (7, 5)
        assert "2080 Ti" in torch.cuda.get_device_name()
        assert not torch.cuda.is_bf16_supported()
    with oomcast.virtual_gpu("h100-sxm"):
        assert torch.cuda.get_device_capability() == (9, 0)
        assert torch.cuda.is_bf16_supported()


def test_frees_stand_in_true_order() -> None:
    with oomcast.virtual_gpu(DEVICE) as gpu:
        a = torch.empty(100, device="cuda")
        b = torch.empty(200, device="cuda")
        del a
        c = b.view(10, 20)
        del b  # c still holds the storage
        d = torch.empty(300, device="cuda")
        del c, d
        events = gpu.trace().events
    assert [(int(e.kind), e.index) for e in events] == [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (1, 2)]


def test_modules_and_lines_are_known_in_forward_and_backward() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.fc(x))  # the line

    with oomcast.virtual_gpu(DEVICE) as gpu:
        model = nn.ModuleDict({"first": Block(), "second": Block()}).cuda()

        class Whole(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.parts = model

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.parts["second"](self.parts["first"](x))

        model = Whole()  # held: of a model that is gone, no gradient has a name
        model(torch.randn(8, 64, device="cuda")).sum().backward()
        trace = gpu.trace()
    tanh = [a for a in trace.allocations if a.operator == "aten.tanh"]
    assert [a.module for a in tanh] == ["parts.first", "parts.second"]
    assert all(a.source.partition(":")[0].endswith("test_virtual_gpu.py") for a in tanh)
    backward = [a for a in trace.allocations if a.operator == "aten.tanh_backward"]
    assert [a.module for a in backward] == ["parts.second", "parts.first"]
    assert [a.source for a in backward] == [a.source for a in tanh]
    weights = [a for a in trace.allocations if a.phase is Phase.BACKWARD and a.shape == (64, 64)]
    assert {a.module for a in weights} == {"parts.first.fc.weight", "parts.second.fc.weight"}
    assert {a.category for a in weights} == {Category.GRADIENT}


def test_foreach_is_the_default_and_takes_a_temporary_as_large_as_the_parameters() -> None:
    size = 4 * 2048 * 2048
    with oomcast.virtual_gpu(DEVICE):
        model = nn.Linear(2048, 2048, bias=False).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.randn(1, 2048, device="cuda")).sum().backward()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        optimizer.step()
        # Two moments stay; foreach makes one temporary list.
        assert torch.cuda.memory_allocated() - before == 2 * size
        assert torch.cuda.max_memory_allocated() - before == 3 * size


def test_a_fused_optimizer_takes_no_temporary() -> None:
    size = 4 * 2048 * 2048
    with oomcast.virtual_gpu(DEVICE):
        model = nn.Linear(2048, 2048, bias=False).cuda()
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        model(torch.randn(1, 2048, device="cuda")).sum().backward()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        optimizer.step()
        assert torch.cuda.max_memory_allocated() - before == pytest.approx(2 * size, abs=4096)


def test_the_engine_adds_gradients_in_place() -> None:
    with oomcast.virtual_gpu(DEVICE) as gpu:
        weight = nn.Parameter(torch.empty(512, 512, device="cuda"))
        x = torch.randn(512, 512, device="cuda")
        hidden = torch.tanh(x @ weight)
        out = hidden * torch.relu(hidden @ weight)  # two paths meet at `hidden`, two at `weight`
        loss = out.sum()
        start = gpu.ledger.event_count
        loss.backward()
        trace = gpu.trace()
    made = [trace.allocations[e.index].operator for e in trace.events[start:] if e.kind is EventKind.ALLOCATE]
    assert not [name for name in made if name.startswith("aten.add")]


def test_accumulated_gradients_are_added_in_place() -> None:
    with oomcast.virtual_gpu(DEVICE):
        model = nn.Linear(1024, 1024, bias=False).cuda()
        model(torch.randn(4, 1024, device="cuda")).sum().backward()
        held = torch.cuda.memory_allocated()
        model(torch.randn(4, 1024, device="cuda")).sum().backward()
        assert torch.cuda.memory_allocated() == held


def test_parameters_are_never_materialised_and_keep_their_identity() -> None:
    with oomcast.virtual_gpu(DEVICE):
        model = nn.Linear(400_000, 400_000)  # 640 GB
        weight = model.weight
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.to(torch.bfloat16).cuda()
        assert model.weight is weight
        assert optimizer.param_groups[0]["params"][0] is weight
        assert weight.dtype == torch.bfloat16
        assert weight.is_cuda
        assert 0 <= torch.cuda.memory_allocated() - 2 * 400_000 * 400_001 < 2 * MiB


def test_constructors_that_read_values_work() -> None:
    with oomcast.virtual_gpu(DEVICE):
        rates = [rate.item() for rate in torch.linspace(0, 0.1, 5)]
        assert rates == pytest.approx([0, 0.025, 0.05, 0.075, 0.1])
        layer = nn.Linear(64, 64)
        nn.init.trunc_normal_(layer.weight, std=0.02)
        assert torch.arange(4).tolist() == [0, 1, 2, 3]
        assert int(torch.tensor([3, 5, 2]).max()) == 5


def test_small_values_are_known_on_the_gpu_too() -> None:
    with oomcast.virtual_gpu(DEVICE) as gpu:
        mask = torch.ones(2, 8, dtype=torch.long).cuda()
        assert bool((mask == 1).all())
        mask[0, 3] = 0
        assert not (mask == 1).all()
        assert mask.sum().item() == 15
        lengths = torch.tensor([3, 7], device="cuda")
        assert int(lengths.max()) == 7
        assert lengths.cpu().numpy().tolist() == [3, 7]
        assert torch.nonzero(mask[0] == 0).shape == (1, 1)
        assert not gpu.trace().assumptions


def test_an_unknown_value_is_stated() -> None:
    with oomcast.virtual_gpu(DEVICE) as gpu:
        x = torch.randn(4, 4, device="cuda")
        assert torch.isfinite(x).all()  # a run that goes well: no assumption is needed
        assert not torch.isnan(x).any()
        assert (x < 9).all()
        assert not (x > 0).any()
        assert isinstance(x.sum().item(), float)
        assumptions = gpu.trace().assumptions
    assert ["True" in sentence for sentence in assumptions] == [True, False]
    assert all("depends on data" in sentence for sentence in assumptions)


def test_work_that_waits_for_any_is_counted_and_checks_pass() -> None:
    """A mixture of experts skips those without tokens: which these are is not known, so none is skipped."""
    with oomcast.virtual_gpu("t4") as virtual:
        mask = torch.randn(64, device="cuda") > 0
        worked = []
        if mask.any():
            worked.append("expert")
        for expert in range(2):
            if not (mask == expert).any():
                continue
            worked.append(f"expert {expert}")
        if (mask != mask).any():
            raise AssertionError("a check does not pass")
        while mask.any():
            break
        else:
            worked.append("the loop was not entered")
    assert worked == ["expert", "expert 0", "expert 1", "the loop was not entered"]
    assert sum("a condition that depends on data was read" in told for told in virtual.trace().assumptions) == 4


def test_sizes_that_depend_on_data_get_their_upper_bound() -> None:
    with oomcast.virtual_gpu(DEVICE) as gpu:
        x = torch.randn(10, 10, device="cuda")
        assert x[x > 0].shape == (100,)
        assert torch.nonzero(x).shape == (100, 2)
        assert torch.unique(x).shape == (100,)
        assert torch.masked_select(x, x > 0).shape == (100,)
        stated = gpu.trace().assumptions
    assert any("nonzero" in sentence for sentence in stated)
    assert any("unique" in sentence for sentence in stated)


def test_autocast_casts_each_weight_once() -> None:
    with oomcast.virtual_gpu(DEVICE) as gpu:
        layer = nn.Linear(256, 256, bias=False).cuda()
        x = torch.randn(8, 256, device="cuda")
        with torch.autocast("cuda"):
            out = layer(layer(x))
            assert out.dtype == torch.float16
            assert nn.functional.layer_norm(out, (256,)).dtype == torch.float32
            assert nn.functional.softmax(out, -1).dtype == torch.float32
        casts = [a for a in gpu.trace().allocations if a.dtype == "float16" and a.shape == (256, 256)]
    assert len(casts) == 1


def test_autocast_state_can_be_asked() -> None:
    with oomcast.virtual_gpu(DEVICE):
        assert not torch.is_autocast_enabled()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert torch.is_autocast_enabled()
            assert torch.is_autocast_enabled("cuda")
            assert torch.get_autocast_dtype("cuda") == torch.bfloat16
            assert torch.get_autocast_gpu_dtype() == torch.bfloat16
        with torch.amp.autocast("cuda"):
            assert torch.get_autocast_dtype("cuda") == torch.float16


def test_checkpointing_keeps_less_and_computes_again() -> None:
    from torch.utils.checkpoint import checkpoint

    def peak(use: bool) -> int:
        with oomcast.virtual_gpu(DEVICE):
            layers = nn.ModuleList(
                nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(6)
            ).cuda()
            x = torch.randn(1024, 512, device="cuda", requires_grad=True)
            for layer in layers:
                x = checkpoint(layer, x, use_reentrant=False) if use else layer(x)
            x.sum().backward()
            return torch.cuda.max_memory_allocated()

    assert peak(True) < 0.8 * peak(False)


def test_models_can_be_copied_and_cast() -> None:
    with oomcast.virtual_gpu(DEVICE):
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).cuda()
        twin = copy.deepcopy(model)
        assert twin.layers[0].linear1.weight is not model.layers[0].linear1.weight
        assert twin.layers[0].linear1.weight.is_cuda
        assert isinstance(twin.layers[0].linear1.weight, nn.Parameter)
        out = model.half()(torch.randn(2, 16, 64, device="cuda", dtype=torch.half))
        assert out.dtype == torch.half
        out.sum().backward()


def test_memory_of_streams_is_kept_apart() -> None:
    with oomcast.virtual_gpu(DEVICE) as gpu:
        side = torch.cuda.Stream()
        a = torch.empty(1024, 1024, device="cuda")
        del a
        with torch.cuda.stream(side):
            b = torch.empty(1024, 1024, device="cuda")
        assert torch.cuda.memory_reserved() == 40 * MiB
        del b
        assert {a.stream for a in gpu.trace().allocations} == {0, side.stream_id}


def test_the_same_code_gives_the_same_trace_twice() -> None:
    def record() -> Trace:
        with oomcast.virtual_gpu(DEVICE) as gpu:
            train(2, amp=True)
            return gpu.trace()

    first, second = record(), record()
    assert first.allocations == second.allocations
    assert first.events == second.events
    assert first.marks == second.marks


def test_no_warning_escapes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with oomcast.virtual_gpu(DEVICE):
            train(1, amp=True)


def test_backward_formulas_scatter_in_place() -> None:
    """`max`, `gather` and indexing write their gradient into the zeros they make: one tensor, not two."""
    with oomcast.virtual_gpu(DEVICE) as gpu:
        table = nn.Parameter(torch.empty(1000, 64, device="cuda"))
        rows = table[torch.randint(0, 1000, (32,), device="cuda")]
        best = rows.max(dim=1).values
        taken = rows.gather(1, torch.zeros(32, 1, dtype=torch.long, device="cuda"))
        loss = best.sum() + taken.sum()
        start = gpu.ledger.event_count
        loss.backward()
        trace = gpu.trace()
    made = [trace.allocations[e.index] for e in trace.events[start:] if e.kind is EventKind.ALLOCATE]
    made = [a for a in made if a.category is not Category.WORKSPACE]
    assert len([a for a in made if a.shape == (1000, 64)]) == 1
    assert not [a.operator for a in made if a.operator.startswith(("aten.scatter", "aten.index_put"))]


def test_a_gradient_that_the_user_holds_is_not_written_to() -> None:
    with oomcast.virtual_gpu(DEVICE) as gpu:
        x = torch.empty(256, 256, device="cuda", requires_grad=True)
        hidden = torch.tanh(x)
        out = hidden * 2
        given = torch.ones_like(hidden)
        start = gpu.ledger.event_count
        torch.autograd.backward((hidden, out), (given, torch.ones_like(out)))
        trace = gpu.trace()
    made = [trace.allocations[e.index].operator for e in trace.events[start:] if e.kind is EventKind.ALLOCATE]
    assert "aten.add.Tensor" in made


def test_kernels_take_their_own_buffers() -> None:
    """The softmax's backward multiplies gradient and output into a buffer as large as they are."""
    with oomcast.virtual_gpu(DEVICE) as gpu:
        x = torch.randn(64, 1024, device="cuda", requires_grad=True)
        torch.softmax(x, -1).sum().backward()
        buffers = [a for a in gpu.trace().allocations if a.category is Category.WORKSPACE]
    assert [(a.operator, a.nbytes) for a in buffers if "softmax" in a.operator] == [
        ("aten._softmax_backward_data", 64 * 1024 * 4)
    ]


def test_the_fused_norm_follows_values_and_leaves_the_host_alone() -> None:
    with oomcast.virtual_gpu("a100-40gb"):
        on_host = torch.nn.functional.rms_norm(torch.full((2, 8), 3.0), (8,))
        on_gpu = torch.nn.functional.rms_norm(torch.full((2, 8), 3.0, device="cuda"), (8,))
        assert (on_host.device.type, on_gpu.device.type) == ("cpu", "cuda")
        for norm in (on_host, on_gpu):
            assert norm.sum().item() == pytest.approx(16.0)


def patched_attributes() -> dict[str, Any]:
    """Attributes of torch that a virtual GPU exchanges, by name, as they are now."""
    owners = {
        "torch": torch,
        "torch.cuda": torch.cuda,
        "torch.nn.Parameter": nn.Parameter,
        "torch.nn.Module": nn.Module,
        "torch.autograd": torch.autograd,
        "torch.optim.Optimizer": torch.optim.Optimizer,
        "torch.backends.cudnn": torch.backends.cudnn,
        "torch.UntypedStorage": torch.UntypedStorage,
    }
    return {f"{owner}.{name}": value for owner, thing in owners.items() for name, value in vars(thing).items()}


def test_a_second_virtual_gpu_is_refused_and_torch_comes_back_whole() -> None:
    before = patched_attributes()
    refused: list[BaseException] = []

    def second() -> None:
        try:
            with oomcast.virtual_gpu("t4"):
                refused.append(AssertionError("two at once"))
        except BadInput as error:
            refused.append(error)

    with oomcast.virtual_gpu("a100-40gb"):
        assert patched_attributes() != before
        other = threading.Thread(target=second)
        other.start()
        other.join()
        second()
        assert torch.ones(4, device="cuda").is_cuda
    assert len(refused) == 2
    assert all("in use in this process already" in str(error) for error in refused)
    after = patched_attributes()
    assert {name for name in before if after.get(name) is not before[name]} == set()
    assert set(after) == set(before)
    with pytest.raises(ZeroDivisionError), oomcast.virtual_gpu("t4"):
        raise ZeroDivisionError
    with oomcast.virtual_gpu("t4"):
        assert torch.cuda.is_available()


def test_tensors_made_like_others_are_where_those_are() -> None:
    with oomcast.virtual_gpu(DEVICE), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        on_gpu, on_host = torch.zeros(4, 3, device="cuda"), torch.zeros(4, 3, dtype=torch.float64)
        assert on_gpu.new_tensor([1.0, 2.0]).tolist() == [1.0, 2.0]
        for made in (
            on_gpu.new_tensor([1, 2]),
            on_gpu.new_tensor(on_host),
            on_host.new_tensor([1], device="cuda"),
            on_gpu.new(),
            on_gpu.new(2, 3),
            on_gpu.new(on_gpu.size()),
            on_gpu.new([1, 2]),
            on_gpu.data.new().resize_((4, 1)).bernoulli_(0.5),
        ):
            assert made.is_cuda
        assert on_gpu.new_tensor([1, 2]).dtype == torch.float32
        assert on_gpu.new(2, 3).shape == (2, 3)
        assert not on_host.new_tensor([1]).is_cuda
        assert not on_host.new(2).is_cuda
        assert not torch.Tensor([1.0]).is_cuda
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
        assert torch.Tensor([1.0]).is_cuda
        assert torch.Tensor(2, 3).shape == (2, 3)
        torch.set_default_tensor_type("torch.FloatTensor")
        assert not torch.Tensor([1.0]).is_cuda
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
    assert not torch.Tensor([1.0]).is_cuda
