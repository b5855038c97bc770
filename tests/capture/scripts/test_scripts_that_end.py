"""Scripts that end otherwise than by their last line: what is said of them, and with which verdict."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from small_script import START, line_of, run

import oomcast
from oomcast.errors import BadInput, CaptureFailed, JobFailed, TookTooLong
from oomcast.estimation import Verdict
from oomcast.report.estimate_text import render_estimate
from oomcast.trace import Ending

MiB = 1 << 20


def test_fits_is_never_said_before_a_second_step(tmp_path: Path) -> None:
    one_step = run(tmp_path, "step()\n")
    assert one_step.verdict is Verdict.UNKNOWN
    console = Console(file=io.StringIO(), width=200)
    console.print(render_estimate(one_step))
    assert "will not exceed" not in console.file.getvalue()  # type: ignore[attr-defined]
    assert run(tmp_path, "step(); step()\n").verdict is Verdict.FITS
    too_large = run(tmp_path, "x = torch.empty(1 << 36, device='cuda')\n")
    assert too_large.verdict is Verdict.OOM


def test_a_script_that_fails_after_two_steps_gives_what_was_seen(tmp_path: Path) -> None:
    answer = run(tmp_path, "step(); step()\nraise KeyError('validation')  # here\n")
    assert answer.verdict is Verdict.FITS
    assert answer.script is not None
    assert answer.script.ending is Ending.FAILED
    assert f"KeyError: 'validation' ({tmp_path}/train.py:{line_of(tmp_path, '# here')})" in answer.script.reason


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


def test_a_script_that_only_infers_is_judged_when_it_came_to_its_end(tmp_path: Path) -> None:
    """Nothing of it is left to be seen, as it is of a training that took one step."""
    infers = run(tmp_path, "with torch.no_grad():\n    for _ in range(8): model(torch.ones(64, 1024, device='cuda'))\n")
    assert infers.verdict is Verdict.FITS
    assert infers.script is not None
    assert "computes no gradient" in infers.script.reason
    assert infers.script.not_seen == ()
    began = run(tmp_path, "with torch.no_grad(): model(torch.ones(64, 1024, device='cuda'))\nraise KeyError\n")
    assert began.verdict is Verdict.UNKNOWN
    built_alone = run(tmp_path, "")
    assert built_alone.verdict is Verdict.UNKNOWN
    gradients = run(tmp_path, "model(torch.ones(64, 1024, device='cuda')).sum().backward()\n")
    assert gradients.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("body", "verdict", "text"),
    [
        ("exit()", Verdict.UNKNOWN, r"ended itself by sys\.exit at .*train\.py:\d+"),
        ("exit(7)", Verdict.UNKNOWN, "exit code 7"),
        (
            "try: open('absent')\nexcept Exception as error: print(error)",
            Verdict.UNKNOWN,
            "printed: .*No such file.*absent",
        ),
        ("step(); import absent_package", Verdict.FITS, r"needs the package absent_package.*train.py:\d+"),
        ("nn.DataParallel(model, device_ids=[0, 1])", Verdict.UNKNOWN, r"uses cuda:1.*--device 2xa100-40gb.*:\d+"),
    ],
)
def test_a_script_that_ends_early_says_why(tmp_path: Path, body: str, verdict: Verdict, text: str) -> None:
    answer = run(tmp_path, f"step()\n{body}\n")
    assert answer.verdict is verdict
    assert answer.script is not None
    assert re.search(text, answer.script.reason), answer.script.reason


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


def test_a_script_that_trains_on_the_host_in_a_process_group_is_told_so(tmp_path: Path) -> None:
    body = """
    import torch.distributed as dist
    dist.init_process_group(backend="gloo")
    host = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
    host(torch.randn(2, 8)).sum().backward()
    assert all(p.grad is not None for p in host.parameters())
    """
    with pytest.raises(BadInput, match="never used the GPU"):
        run(tmp_path, body, start="import torch\nfrom torch import nn\n")
