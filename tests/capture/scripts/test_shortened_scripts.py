"""Scripts whose loops only repeat themselves: what is not run again, what is made up, what is reached by that."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_script import PARAMETERS, line_of, run

from oomcast.estimation import Verdict
from oomcast.trace import Ending

MiB = 1 << 20


def test_evaluation_and_saving_are_phases_and_epochs_are_cut_short(tmp_path: Path) -> None:
    body = """
    from torch.utils.data import DataLoader, TensorDataset
    loader = DataLoader(TensorDataset(torch.randn(4096, 1024)), batch_size=4)
    for epoch in range(100):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x.cuda()).square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            model(torch.zeros(32768, 1024, device="cuda"))
        torch.save(model.state_dict(), sys.argv[1])
    """
    answer = run(tmp_path, body, str(tmp_path / "model.pt"))
    assert not (tmp_path / "model.pt").exists()
    assert answer.script is not None
    assert answer.script.ending is Ending.STEADY
    assert answer.script.optimizer_steps == 3
    assert answer.script.not_seen == ()
    assert answer.peak.phase == "evaluation"
    assert answer.highest_by_phase["evaluation"][0] > 2 * 128 * MiB


def test_repeated_forwards_without_gradients_are_run_three_times(tmp_path: Path) -> None:
    body = """
    ran = 0
    def count(*_):
        global ran
        ran += 1
    model[0].register_forward_hook(count)
    with torch.no_grad():
        for _ in range(2000):
            out = model(torch.randn(64, 1024, device="cuda"))
            assert out.shape == (64, 1024) and out.is_cuda and not out.requires_grad
    assert ran == 3, ran
    for _ in range(2):
        for _ in range(40):
            model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert ran == 9, ran
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
    assert answer.script.optimizer_steps == 2
    assert any("forwards of a form" in sentence for sentence in answer.assumptions)


def test_an_error_in_a_step_that_was_made_up_is_told(tmp_path: Path) -> None:
    answer = run(tmp_path, "for _ in range(7):\n    step()\nopen('absent.csv')\n")
    assert answer.script is not None
    assert answer.script.ending is Ending.STEADY
    assert "it needs the file absent.csv, which is not there" in answer.script.reason


def test_an_evaluation_after_many_steps_of_many_parameters_is_reached(tmp_path: Path) -> None:
    """How long it is waited for is counted in operators: a step that is made up takes none for each parameter."""
    body = """
    import torch
    from torch import nn
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(150))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for n in range(1, 302):
        optimizer.zero_grad()
        model(torch.ones(2, 4, device="cuda")).sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert norm.is_cuda and norm.shape == ()
        optimizer.step()
        if n % 300 == 0:
            with torch.no_grad():
                model(torch.ones(64, 4, device="cuda"))
    """
    answer = run(tmp_path, body, start="", time_limit=600)  # a busy machine does not decide
    assert answer.script is not None
    assert answer.script.not_seen == ("checkpoint saving",)


def test_an_optimizer_that_begins_among_steps_that_are_made_up_has_its_state(tmp_path: Path) -> None:
    body = """
    other = nn.Linear(1024, 1024).cuda()
    late = torch.optim.Adam(other.parameters())
    for n in range(40):
        step()
        if n > 20:
            late.zero_grad()
            loss = other(torch.randn(8, 1024, device="cuda")).sum()
            model(torch.randn(64, 1024, device="cuda"))
            loss.backward()
            late.step()
    """
    answer = run(tmp_path, body)
    assert answer.breakdown["optimizer_state"] >= 3 * PARAMETERS


@pytest.mark.parametrize("follows", ["evaluation", "saving", "a larger batch"])
def test_gradients_of_steps_that_were_made_up_are_gone_where_the_script_has_dropped_them(
    tmp_path: Path, follows: str
) -> None:
    """They are kept from one such step to the next, and in nobody's way afterwards."""
    body = """
    for n in range(50):
        step()
        if n == 0:
            before = torch.cuda.memory_allocated()  # of a step that was run, after zero_grad
    if FOLLOWS == "saving":
        torch.save(model.state_dict(), "model.pt")
    elif FOLLOWS == "evaluation":
        with torch.no_grad():
            model(torch.zeros(1, 1024, device="cuda"))
    else:
        output = model(torch.zeros(2, 1024, device="cuda"))
    assert torch.cuda.memory_allocated() < before + LIMIT // 2, (before, torch.cuda.memory_allocated())
    """
    answer = run(tmp_path, body.replace("FOLLOWS", repr(follows)).replace("LIMIT", str(PARAMETERS)))
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


def test_no_gradients_are_made_up_where_hooks_take_them_at_once(tmp_path: Path) -> None:
    """As Megatron's buffers do: a backward leaves no gradient, so that the next micro-batches begin without them."""
    body = """
    sums, hooks, ran = [torch.zeros_like(p) for p in model.parameters()], [], 0
    def count(*_):
        global ran
        ran += 1
    def taking(parameter, into):
        def take(*_):
            into.add_(parameter.grad)
            parameter.grad = None
        return take
    model[0].register_forward_hook(count)
    for parameter, into in zip(model.parameters(), sums):
        hooks.append(parameter.expand_as(parameter).grad_fn.next_functions[0][0])
        hooks[-1].register_hook(taking(parameter, into))
    torch.cuda.reset_peak_memory_stats()
    for micro_batch in range(12):
        model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
        assert all(p.grad is None for p in model.parameters()), micro_batch
        if micro_batch == 2:
            highest = torch.cuda.max_memory_allocated()
    assert ran < 12, ran
    assert torch.cuda.max_memory_allocated() == highest, (torch.cuda.max_memory_allocated(), highest)
    for parameter, total in zip(model.parameters(), sums):
        parameter.grad = total
    optimizer.step()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


def test_an_evaluation_that_leaves_gradients_on_is_one(tmp_path: Path) -> None:
    """As long as the model has been trained: one that is only ever in `eval()` may be trained so."""
    body = """
    for _ in range(20):
        model.train()
        step()
        model.eval()
        model(torch.randn(256, 1024, device="cuda")).sum().item()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.not_seen == ("checkpoint saving",)
    assert answer.highest_by_phase["evaluation"][0] > answer.highest_by_phase["forward"][0]
    always = run(tmp_path, "model.eval()\nfor _ in range(20):\n    step()\n")
    assert always.script is not None
    assert always.script.not_seen == ("evaluation", "checkpoint saving")


def test_the_first_batch_can_stand_for_all(tmp_path: Path) -> None:
    body = """
    from torch.utils.data import DataLoader, Dataset
    class Slow(Dataset):
        asked = 0
        def __len__(self):
            return 3
        def __getitem__(self, number):
            Slow.asked += 1
            return torch.randn(1024)
    for x in DataLoader(Slow(), batch_size=64, drop_last=True):
        assert x.shape == (64, 1024)
        optimizer.zero_grad()
        model(x.cuda()).square().mean().backward()
        optimizer.step()
    assert Slow.asked == 64, Slow.asked
    """
    answer = run(tmp_path, body, synthetic_data=True)
    assert answer.script is not None
    assert answer.script.ending is not Ending.FAILED, answer.script.reason
    assert answer.verdict is Verdict.FITS
    assert any("--synthetic-data" in sentence for sentence in answer.script.batches)


def test_loops_that_wait_for_a_loss_end(tmp_path: Path) -> None:
    body = """
    x = torch.ones(8, device="cuda")
    while x.sum().item() > 1e-3:
        x = x * 0.5
    while not (torch.randn(8, device="cuda").sum() < 1e-3):
        pass
    step(); step()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
    assert any("a condition that depends on data was read at" in sentence for sentence in answer.assumptions)


def test_checks_pass_however_often_they_are_made(tmp_path: Path) -> None:
    body = """
    for _ in range(1100):
        if (torch.randn(8, device="cuda") < 0).any():
            raise ValueError("negative")
        torch.distributions.Categorical(logits=torch.randn(4, 8, device="cuda"))
    step(); step()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


def test_an_evaluation_every_so_many_steps_is_waited_for(tmp_path: Path) -> None:
    """By counts: a busy machine comes as far as an idle one."""
    body = """
    for number in range(100_000):
        step()
        if number == 700:
            with torch.no_grad():
                model(torch.zeros(65536, 1024, device="cuda"))
            torch.save(model.state_dict(), "model.pt")
        assert number < 1000
    """
    answer = run(tmp_path, body, time_limit=300)
    assert answer.script is not None
    assert answer.script.ending is Ending.STEADY, answer.script.reason
    assert answer.script.not_seen == ()
    assert answer.peak.phase == "evaluation"


def test_steps_that_are_made_up_load_nothing(tmp_path: Path) -> None:
    body = """
    from torch.utils.data import DataLoader, Dataset
    class Counted(Dataset):
        asked = 0
        def __len__(self):
            return 400
        def __getitem__(self, number):
            Counted.asked += 1
            return {"x": torch.randn(1024), "name": str(number)}
    batches = 0
    for batch in DataLoader(Counted(), batch_size=4):
        batches += 1
        batch.pop("name")
        optimizer.zero_grad()
        model(batch.pop("x").cuda()).square().mean().backward()
        optimizer.step()
    assert batches == 100 and Counted.asked < 40, (batches, Counted.asked)
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
    assert any("batches were not loaded" in sentence for sentence in answer.assumptions)


def test_steps_that_are_made_up_update_nothing(tmp_path: Path) -> None:
    body = """
    for _ in range(9):
        step()
    updates = optimizer.state[model[0].weight]["step"].item()
    assert updates == 3, updates
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
    assert answer.script.optimizer_steps == 3


def test_gradients_that_a_script_takes_itself_are_there(tmp_path: Path) -> None:
    body = """
    from torch.func import functional_call
    for _ in range(3):
        total = 0
        for _ in range(6):
            own = dict(model.named_parameters())
            inner = functional_call(model, own, (torch.randn(8, 1024, device="cuda"),)).mean()
            gradients = torch.autograd.grad(inner, list(own.values()), create_graph=True)
            moved = {name: p - 0.1 * g for (name, p), g in zip(own.items(), gradients)}
            total = total + functional_call(model, moved, (torch.randn(8, 1024, device="cuda"),)).mean()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


def test_a_loss_on_the_gpu_is_compared_as_its_value_would_be(tmp_path: Path) -> None:
    """The first loss is below infinity: a script that keeps its best model saves one."""
    body = """
    best, tried = float("inf"), 0
    for _ in range(4):
        loss = step().detach()
        if loss < best:
            best = loss
            torch.save(model.state_dict(), "best.pt")
        assert not loss > 1e6
        assert torch.tensor(0.0) < loss
    while loss > 1e-3:
        loss, tried = loss / 2, tried + 1
    assert tried, "the loop was entered, and left"
    model.load_state_dict(torch.load("best.pt"))
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
    assert "checkpoint saving" not in answer.script.not_seen
    line = line_of(tmp_path, "if loss < best")
    assert any(f"train.py:{line}: taken as True" in sentence for sentence in answer.assumptions)


def test_a_model_that_another_calls_in_a_loop_is_not_run_each_time(tmp_path: Path) -> None:
    """Samplers of diffusion models are modules that call their model a thousand times."""
    body = """
    class Sampler(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model
        def forward(self, x):
            for _ in range(1000):
                x = x - self.model(x)
            return x
    ran = 0
    def count(*_):
        global ran
        ran += 1
    model[0].register_forward_hook(count)
    sampler = Sampler()
    for _ in range(3):
        step()
        with torch.no_grad():
            sampler(torch.randn(64, 1024, device="cuda"))
    assert ran < 20, ran
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


def test_what_an_evaluation_keeps_lies_beneath_its_last_forward(tmp_path: Path) -> None:
    body = """
    wide = nn.Sequential(nn.Linear(1024, 16384), nn.Linear(16384, 1024)).cuda()
    kept = []
    with torch.no_grad():
        for _ in range(60):
            kept.append(wide(torch.randn(256, 1024, device="cuda")))
    """
    answer = run(tmp_path, body)
    kept, within = 59 * 256 * 1024 * 4, 256 * 16384 * 4
    highest, _ = answer.highest_by_phase["evaluation"]
    assert highest >= 0.99 * (PARAMETERS + 2 * 16384 * 1024 * 4 + kept + within)


def test_a_list_of_unknown_values_is_of_one_value(tmp_path: Path) -> None:
    """Detectors look up the names of classes that they read so; a loop that waits for a small loss reads others."""
    body = """
    boxes = model(torch.randn(300, 1024, device="cuda")).detach()[:, :6]
    assert {value for *_, value in boxes.tolist()} == {1.0}
    assert torch.arange(3, device="cuda").tolist() == [0, 1, 2]
    step(); step()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


@pytest.mark.parametrize("check", ["assert (x <= x.mean()) & (x > 0)", "if x.sum() > 0.5: raise ValueError"])
def test_checks_of_values_pass(tmp_path: Path, check: str) -> None:
    answer = run(tmp_path, f"x = step().detach()\n{check}\nstep()\n")
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


def test_outputs_that_are_parts_of_one_tensor_are_made_up_as_such(tmp_path: Path) -> None:
    """A flow returns halves of its activations: each keeps the whole, and no more with every step."""
    body = """
    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model
            self.ran = 0
        def forward(self, x):
            self.ran += 1
            return self.inner(x).chunk(2, 1)
    halves = Halves()
    for number in range(400):
        left, right = halves(torch.randn(4096, 1024, device="cuda"))
        assert left.untyped_storage()._cdata == right.untyped_storage()._cdata
        assert right.shape == (4096, 512) and right.storage_offset() == 512 and right.requires_grad
        left.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert halves.ran == 3, halves.ran
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
    step = run(tmp_path, body, max_steps=3)
    assert answer.peak_reserved == step.peak_reserved


def test_an_output_that_is_a_part_of_the_model_is_not_made_up(tmp_path: Path) -> None:
    body = """
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(4096, 4096, device="cuda"))
            self.ran = 0
        def forward(self, count):
            self.ran += 1
            return self.table[:count]
    table = Table()
    with torch.no_grad():
        for _ in range(10):
            table(8)
    assert table.ran == 10
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
