"""Whole scripts on the virtual GPU: what they hold, when they are stopped, what is said of those that end otherwise."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import oomcast
from oomcast.errors import BadInput, CaptureFailed, JobFailed, TookTooLong
from oomcast.estimation import Estimate, Verdict
from oomcast.report.estimate_text import render_estimate
from oomcast.trace import Ending

START = """
import sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.Adam(model.parameters())
def step():
    loss = model(torch.randn(64, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""
MiB = 1 << 20
PARAMETERS = 2 * 1024 * 1025 * 4


def run(tmp_path: Path, body: str, *arguments: str, start: str = START, **options: Any) -> Estimate:
    path = tmp_path / "train.py"
    path.write_text(start + textwrap.dedent(body))
    return oomcast.run([str(path), *arguments], device="a100-40gb", **options)


def line_of(tmp_path: Path, text: str) -> int:
    lines = (tmp_path / "train.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_an_endless_loop_is_stopped_when_its_peak_repeats(tmp_path: Path) -> None:
    answer = run(tmp_path, "while True:\n    step()\n")
    assert answer.verdict is Verdict.FITS
    assert answer.script is not None
    assert answer.script.ending is Ending.STEADY
    assert answer.script.not_seen == ("evaluation", "checkpoint saving")
    assert answer.breakdown["optimizer_state"] >= 2 * PARAMETERS
    assert {"forward", "backward", "optimizer"} <= set(answer.highest_by_phase)


def test_arguments_folder_and_environment_are_the_scripts_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WIDTH", "256")
    (tmp_path / "helper.py").write_text("HEIGHT = 512\n")
    body = """
    import os, sys
    from helper import HEIGHT
    assert __name__ == "__main__" and sys.modules["__main__"].START
    assert os.path.samefile(os.getcwd(), os.path.dirname(os.path.abspath(__file__)))
    big = torch.empty(int(sys.argv[1]), int(os.environ["WIDTH"]), HEIGHT, device="cuda")
    """
    answer = run(tmp_path, body, "7", start="import torch\nSTART = True\n")
    assert answer.peak_allocated == 7 * 256 * 512 * 4
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED


def test_fits_is_never_said_before_a_second_step(tmp_path: Path) -> None:
    one_step = run(tmp_path, "step()\n")
    assert one_step.verdict is Verdict.UNKNOWN
    console = Console(file=io.StringIO(), width=200)
    console.print(render_estimate(one_step))
    assert "will not exceed" not in console.file.getvalue()  # type: ignore[attr-defined]
    assert run(tmp_path, "step(); step()\n").verdict is Verdict.FITS
    too_large = run(tmp_path, "x = torch.empty(1 << 36, device='cuda')\n")
    assert too_large.verdict is Verdict.OOM


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


def test_two_optimizers_and_an_update_by_hand_are_steps(tmp_path: Path) -> None:
    gan = """
    other = nn.Linear(1024, 2048).cuda()
    second = torch.optim.SGD(other.parameters(), momentum=0.9)
    while True:
        step()
        other(torch.randn(8, 1024, device="cuda")).mean().backward()
        second.step()
        second.zero_grad()
    """
    answer = run(tmp_path, gan)
    assert answer.script is not None
    assert answer.script.ending is Ending.STEADY
    assert answer.script.optimizer_steps % 2 == 0
    by_hand = """
    while True:
        model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.1)
            parameter.grad = None
    """
    answer = run(tmp_path, by_hand)
    assert answer.verdict is Verdict.FITS
    assert answer.breakdown["optimizer_state"] == 0


def test_a_step_that_keeps_memory_is_told(tmp_path: Path) -> None:
    body = """
    kept = []
    while True:
        step()
        kept.append(torch.empty(1 << 20, device="cuda"))
    """
    answer = run(tmp_path, body, max_steps=8)
    assert answer.script is not None
    assert answer.script.ending is Ending.MAX_STEPS
    assert "something keeps the memory" in answer.script.reason


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


def test_settings_of_the_script_are_heeded(tmp_path: Path) -> None:
    body = """
    import os
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    torch.backends.cudnn.benchmark = True
    step(); step()
    """
    answer = run(tmp_path, body)
    told = "\n".join(answer.assumptions)
    assert "the job sets torch.backends.cudnn.benchmark" in told
    assert "the job sets the allocator to 'expandable_segments:True'" in told


def test_a_script_that_fails_after_two_steps_gives_what_was_seen(tmp_path: Path) -> None:
    answer = run(tmp_path, "step(); step()\nraise KeyError('validation')  # here\n")
    assert answer.verdict is Verdict.FITS
    assert answer.script is not None
    assert answer.script.ending is Ending.FAILED
    assert f"KeyError: 'validation' ({tmp_path}/train.py:{line_of(tmp_path, '# here')})" in answer.script.reason


def test_an_error_in_a_step_that_was_made_up_is_told(tmp_path: Path) -> None:
    answer = run(tmp_path, "for _ in range(7):\n    step()\nopen('absent.csv')\n")
    assert answer.script is not None
    assert answer.script.ending is Ending.STEADY
    assert "it needs the file absent.csv, which is not there" in answer.script.reason


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        ("import absent_package", JobFailed, r"needs the package absent_package.*train.py:\d+"),
        ("open('absent.csv')", JobFailed, r"needs the file absent.csv.*train.py:\d+"),
        ("input('name?')", JobFailed, r"asks for input.*train.py:\d+"),
        ("import getpass; getpass.getpass()", JobFailed, r"asks for input.*train.py:\d+"),
        ("import numpy; numpy.load('absent.npy')", JobFailed, r"needs the file absent.npy.*train.py:\d+"),
        ("import torch; torch.cuda.set_device(3)", JobFailed, r"uses cuda:3.*--device 4xa100-40gb.*train.py:\d+"),
        ("import sys; sys.exit('no data')", JobFailed, r"exit code 1 at .*train\.py:\d+: no data"),
        ("import os; os._exit(3)", JobFailed, r"exit code 3 at .*train\.py:\d+"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", JobFailed, r"signal SIGKILL at .*train\.py:\d+"),
        ("def f(:", JobFailed, "is not valid Python"),
        ("x = 1", BadInput, "never used the GPU"),
        (
            "import argparse; p = argparse.ArgumentParser(); p.add_argument('--data', required=True); p.parse_args()",
            JobFailed,
            "exit code 2.*required: --data",
        ),
    ],
)
def test_a_script_that_cannot_run_is_told_in_a_sentence(
    tmp_path: Path, body: str, error: type[BadInput | CaptureFailed], text: str
) -> None:
    with pytest.raises(error, match=text):
        run(tmp_path, body, start="")


def test_an_evaluation_after_many_steps_of_many_parameters_is_reached(tmp_path: Path) -> None:
    """How long it is waited for is counted in operators: a step that is made up takes none for each parameter."""
    body = """
    import torch
    from torch import nn
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(150))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for n in range(1, 1000):
        optimizer.zero_grad()
        model(torch.ones(2, 4, device="cuda")).sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert norm.is_cuda and norm.shape == ()
        optimizer.step()
        if n % 300 == 0:
            with torch.no_grad():
                model(torch.ones(64, 4, device="cuda"))
    """
    answer = run(tmp_path, body, start="")
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


@pytest.mark.parametrize(
    ("end", "ending", "told"),
    [
        ("os._exit(0)", Ending.FINISHED, "by os._exit at "),
        ("os._exit(5)", Ending.FAILED, "by os._exit with exit code 5 at "),
        ("os.kill(os.getpid(), signal.SIGKILL)", Ending.FAILED, "by the signal SIGKILL at "),
        ("os.killpg(os.getpgid(0), signal.SIGTERM)", Ending.FAILED, "by the signal SIGTERM at "),
        ("signal.raise_signal(signal.SIGKILL)", Ending.FAILED, "by the signal SIGKILL at "),
    ],
)
def test_a_script_that_ends_its_process_at_once_is_answered_with_what_was_seen(
    tmp_path: Path, end: str, ending: Ending, told: str
) -> None:
    """Forks that it makes end in the same ways, and take nothing along."""
    body = f"""
    import os, signal
    for _ in range(3):
        step()
    for way in ("exit", "kill"):
        if os.fork() == 0:
            os._exit(7) if way == "exit" else os.kill(os.getpid(), signal.SIGKILL)
    ways = sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2))
    assert ways == [-9, 7], ways
    {end}
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert (answer.script.ending, answer.script.optimizer_steps) == (ending, 3)
    assert f"the script ended itself {told}{tmp_path}" in answer.script.reason
    assert answer.device_total > 0


def test_a_known_cause_needs_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(JobFailed) as caught:
        run(tmp_path, "open('absent.csv')", start="")
    assert caught.value.traceback == ""
    with pytest.raises(JobFailed) as caught:
        run(tmp_path, "{}['absent']", start="")
    assert "KeyError" in caught.value.traceback


def test_a_script_that_catches_everything_and_minds_signals_is_stopped_all_the_same(tmp_path: Path) -> None:
    body = """
    import os, signal, subprocess, time
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if os.fork() == 0:
        time.sleep(600)
    print("children", child.pid, flush=True)
    while True:
        try:
            step()
            torch.zeros(3, device="cuda:1")
        except BaseException:
            pass
    """
    answer = run(tmp_path, body)
    assert answer.verdict is Verdict.FITS
    assert answer.script is not None
    assert answer.script.ending is Ending.STEADY
    left = [line for line in _command_lines() if "time.sleep(600)" in line]
    assert not left


def _command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.mark.parametrize(
    ("body", "verdict", "text"),
    [
        ("exit()", Verdict.UNKNOWN, r"ended itself by sys\.exit at .*train\.py:\d+"),
        ("exit(7)", Verdict.UNKNOWN, "exit code 7"),
        ("step(); import absent_package", Verdict.FITS, r"needs the package absent_package.*train.py:\d+"),
        ("nn.DataParallel(model, device_ids=[0, 1])", Verdict.UNKNOWN, r"uses cuda:1.*--device 2xa100-40gb.*:\d+"),
    ],
)
def test_a_script_that_ends_early_says_why(tmp_path: Path, body: str, verdict: Verdict, text: str) -> None:
    answer = run(tmp_path, f"step()\n{body}\n")
    assert answer.verdict is verdict
    assert answer.script is not None
    assert re.search(text, answer.script.reason), answer.script.reason


def test_data_that_a_script_makes_are_real(tmp_path: Path) -> None:
    body = """
    numbers = torch.rand(3000, 1024)
    assert len(set(numbers[:, 0].tolist())) > 2000
    marks = torch.zeros(3000, 1024)
    for row in range(3000):
        marks[row, row % 1024] = numbers[row, 0]
    assert (marks.sum(1) == numbers[:, 0]).all()
    step(); step()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


def test_a_script_that_hangs_ends_at_the_limit_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(TookTooLong, match=r"time limit of 1 s, at .*train.py:1\b"):
        run(tmp_path, "", start="import time; time.sleep(600)\n", time_limit=1)
    body = """
    import signal, time
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    step()
    while True:
        try:
            time.sleep(600)  # here
        except BaseException:
            pass
    """
    answer = run(tmp_path, body, time_limit=4)
    assert answer.verdict is Verdict.UNKNOWN
    assert answer.script is not None
    assert answer.script.ending is Ending.TIME_LIMIT
    assert f"train.py:{line_of(tmp_path, '# here')}" in answer.script.reason


def test_more_processes_than_gpus_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    with pytest.raises(BadInput, match="2 processes"):
        oomcast.run(f"torchrun --nproc_per_node 2 {tmp_path}/train.py", device="t4")


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


def test_the_largest_samples_are_run_first(tmp_path: Path) -> None:
    body = """
    from torch.nn.utils.rnn import pad_sequence
    from torch.utils.data import DataLoader
    data = [torch.zeros(length, 1024) for length in [8] * 90 + [512, 256] + [8] * 8]
    first = True
    for x in DataLoader(data, batch_size=2, collate_fn=lambda rows: pad_sequence(rows, batch_first=True)):
        if first:
            assert x.shape == (2, 512, 1024), x.shape
        first = False
        optimizer.zero_grad()
        model(x.cuda()).square().mean().backward()
        optimizer.step()
    """
    answer = run(tmp_path, body, worst_batch=True)
    assert answer.script is not None
    assert answer.script.ending is not Ending.FAILED, answer.script.reason
    (sentence,) = answer.script.batches
    assert "100 samples have 8,192 values (median)" in sentence
    assert "524,288 (largest)" in sentence


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


def test_memory_counters_tell_a_script_what_it_holds(tmp_path: Path) -> None:
    body = """
    step(); step()
    assert torch.cuda.max_memory_allocated() > 8 << 20
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


def test_a_virtual_gpu_gives_an_estimate() -> None:
    torch = pytest.importorskip("torch")
    with oomcast.virtual_gpu("a100-40gb") as gpu:
        held = torch.empty(1 << 20, device="cuda")
        answer = gpu.estimate()
        del held
    assert answer.peak_allocated == 4 * MiB
    assert answer.device == "a100-40gb"


def test_parameters_seen_in_inference_mode_are_views_like_any_other(tmp_path: Path) -> None:
    body = """
    step(); step()
    with torch.inference_mode():
        weight = model[0].weight
        assert not weight.detach().is_inference() and (weight[:1] + 1).is_inference()
        copies = {name: value.clone() for name, value in model.state_dict().items()}
    step()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


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


@pytest.mark.parametrize("start", ["torchrun --nproc_per_node 1", "python"])
def test_a_process_group_of_one(tmp_path: Path, start: str) -> None:
    (tmp_path / "train.py").write_text(
        START
        + textwrap.dedent("""
        import os, torch.distributed as dist, torch.multiprocessing as mp
        def main(rank):
            os.environ.setdefault("MASTER_ADDR", "localhost")
            dist.init_process_group("nccl", rank=rank, world_size=1)
            global model
            model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
            step(); step()
            dist.destroy_process_group()
        if "RANK" in os.environ:
            main(0)
        else:
            mp.spawn(main, nprocs=torch.cuda.device_count())
        """)
    )
    answer = oomcast.run(f"{start} {tmp_path}/train.py", device="a100-40gb")
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
    assert answer.script.optimizer_steps == 2


def test_what_cannot_be_started_here_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"starts 4 processes at .*train\.py:\d+.*--device 4xa100-40gb"):
        run(tmp_path, "import torch.multiprocessing as mp\nmp.spawn(print, nprocs=4)\n")
    with pytest.raises(BadInput, match=r"compiles the extension 'mine' at .*train\.py:\d+:"):
        run(tmp_path, "from torch.utils.cpp_extension import load\nload(name='mine', sources=['mine.cu'])\n")


def test_several_gpus_in_one_process_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(START + "model = nn.DataParallel(model)\nstep(); step()\n")
    line = f"{tmp_path}/train.py"
    with pytest.raises(BadInput, match=r"works on 2 GPUs from one process at .*train\.py:\d+ .*--device a100-40gb"):
        oomcast.run(line, device="2xa100-40gb")
    alone = oomcast.run(line, device="a100-40gb")
    assert alone.verdict is Verdict.FITS, "with one GPU it is the module itself"


def test_models_and_optimizers_that_a_script_drops_are_not_kept(tmp_path: Path) -> None:
    """Folds of a cross-validation, runs of a search: each model goes before the next comes."""
    body = """
    def fold():
        model = nn.Linear(2048, 2048).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            model(torch.randn(16, 2048, device="cuda")).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            model(torch.randn(16, 2048, device="cuda"))
    for _ in range(int(sys.argv[1])):
        fold()
    """
    start = "import sys, torch\nfrom torch import nn\n"
    one, many = (run(tmp_path, body, folds, start=start) for folds in ("1", "5"))
    assert many.script is not None
    assert many.script.ending is Ending.FINISHED, many.script.reason
    assert many.peak_allocated <= one.peak_allocated * 1.3, "two at a time at most, not five"


def test_small_sparse_matrices_are_followed(tmp_path: Path) -> None:
    body = """
    for _ in range(3):
        places = torch.randint(0, 64, (2, 200))
        graph = torch.sparse_coo_tensor(places, torch.ones(200), (64, 64)).to("cuda")
        torch.spmm(graph, model(torch.randn(64, 1024, device="cuda"))).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
    assert answer.script.optimizer_steps == 3


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


def test_an_error_that_a_launcher_reports_is_told_and_not_its_last_words(tmp_path: Path) -> None:
    body = """
    step()
    try:
        raise ValueError("no such data set")
    except ValueError:
        print("Set VERBOSE=1 for a complete stack trace.")
        sys.exit(1)
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    line = line_of(tmp_path, "no such data set")
    assert answer.script.ending is Ending.FAILED
    assert re.search(rf"exit code 1 at .*ValueError: no such data set \(.*train\.py:{line}\)", answer.script.reason)


def test_a_thread_that_uses_the_gpu_is_told(tmp_path: Path) -> None:
    body = """
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: torch.ones(4).to("cuda")).result()
    """
    with pytest.raises(CaptureFailed, match=r"from a thread of its own.*train\.py:\d+"):
        run(tmp_path, body)


def test_chosen_classes_are_as_many_as_there_are(tmp_path: Path) -> None:
    """Metrics check that predictions have no more different values than there are classes."""
    body = """
    chosen = model(torch.randn(640, 1024, device="cuda"))[:, :10].argmax(dim=1)
    assert len(torch.unique(chosen)) <= 10
    assert len(torch.unique(chosen.cpu().reshape(32, 20))) <= 10
    assert len(torch.unique(chosen[:4])) <= 4
    step(); step()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


def test_a_data_set_made_anew_for_each_epoch_is_told_of_once(tmp_path: Path) -> None:
    body = """
    from torch.utils.data import DataLoader, TensorDataset
    for _ in range(2):
        for (x,) in DataLoader(TensorDataset(torch.randn(8, 1024)), 4):
            model(x.cuda()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    answer = run(tmp_path, body, synthetic_data=True)
    assert answer.script is not None
    assert len(answer.script.batches) == 1, answer.script.batches


def test_an_extension_is_told_though_the_script_goes_on_without(tmp_path: Path) -> None:
    body = """
    import torch
    from torch.utils.cpp_extension import load
    try:
        load(name="mine", sources=["mine.cu"])
    except Exception:
        pass
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(4):
        model(torch.randn(2, 8, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    """
    assert any("compiles the extension 'mine'" in sentence for sentence in run(tmp_path, body).assumptions)


def test_what_is_saved_with_its_data_can_be_read_again(tmp_path: Path) -> None:
    body = """
    import os
    os.makedirs("prepared")
    torch.save({"x": torch.arange(4)}, "prepared/data.pt")
    assert torch.load("prepared/data.pt")["x"].tolist() == [0, 1, 2, 3]
    with open("prepared/data.pt", "rb") as file:
        assert file.read(2) == b"PK"
    step(); step()
    torch.backends.cudnn.allow_tf32 = False
    """
    answer = run(tmp_path, body)
    assert not Path("prepared").exists()
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
    assert any("TF32" in sentence for sentence in answer.assumptions)


def test_a_script_has_a_terminal_and_may_trace_its_model(tmp_path: Path) -> None:
    """Progress bars ask `stty` for a width, and TensorBoard traces the model for its picture."""
    answer = run(
        tmp_path,
        """
        import os
        rows, columns = os.popen("stty size", "r").read().split()
        assert (rows, columns) == ("24", "80")
        traced = torch.jit.trace(model, torch.randn(64, 1024, device="cuda"))
        assert list(traced.state_dict()) == list(model.state_dict()) and not list(traced.graph.nodes())
        on_host = torch.jit.trace(lambda x: x + 1, torch.ones(2))
        assert on_host(torch.ones(2)).tolist() == [2.0, 2.0]
        for _ in range(4):
            step()
        """,
    )
    assert answer.script is not None and answer.script.optimizer_steps >= 3
    assert answer.script.ending is not Ending.FAILED
    assert any("torch.jit.trace" in sentence for sentence in answer.assumptions)
