"""The processes that capture: whose answer it is, what a job may not do to it, and that nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oomcast.capture import capture
from oomcast.capture.job_process import Limits
from oomcast.capture.messages import Answer, Ended, ProcessEnded, Request, TimeLimit
from oomcast.capture.processes import CaptureServer, run_forked
from oomcast.children import START_METHOD, module_command
from oomcast.errors import CaptureFailed, JobFailed, TookTooLong
from oomcast.spec import Spec
from oomcast.trace import Trace, trace_from_bytes

JOB = """
import os, signal, subprocess, sys, time
import torch

def model():
    {then}
    return torch.nn.Linear({width}, 10)

def batch(batch_size):
    return torch.randn(batch_size, {width}), torch.zeros(batch_size, dtype=torch.long)
"""
FORGED = """
    for descriptor in range({first}, 21):
        try:
            os.write(descriptor, b'{"id": "forged", "bytes": 0, "error": "JobFailed", "message": "forged"}\\n')
            {then}
        except OSError:
            pass
"""
LIMITS = Limits(seconds=120)


def job_file(folder: Path, name: str, then: str = "pass", width: int = 100) -> Path:
    path = folder / name
    path.write_text(JOB.replace("{then}", then.strip()).replace("{width}", str(width)))
    return path


def spec_of(job: Any, **options: Any) -> Spec:
    return Spec.read(job, **{"device": "a100-40gb", "batch_size": 2, "steps": 1, **options})


def width_of(trace: Trace) -> int:
    return next(allocation.shape[1] for allocation in trace.allocations if len(allocation.shape) == 2)


@pytest.fixture(params=["fork", "spawn"], autouse=True)
def start_method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything holds for both ways in which a job's process starts."""
    monkeypatch.setenv(START_METHOD, request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def server() -> Iterator[CaptureServer]:
    server = CaptureServer("torch")
    yield server
    server.stop()


# -- whose answer it is ------------------------------------------------------------------------------------------------


def test_messages_carry_the_requests_id() -> None:
    request = Request.of(spec_of("zoo:mlp"))
    again = Request.from_plain(json.loads(request.to_bytes()))
    answer = Answer(payload=b"a\nb", ended=Ended(signal=9, log="end")).to(request.id)

    assert again == request
    assert Request.of(request.spec).id != request.id
    assert Answer.from_bytes(answer.to_bytes()) == answer
    assert Answer.from_bytes(answer.to_bytes() + b"more") is None
    assert Answer.from_bytes(answer.to_bytes()[:-1]) is None
    assert Answer.from_bytes(b"hello\n") is None


def test_an_answer_to_another_request_is_not_taken(server: CaptureServer, tmp_path: Path) -> None:
    mine, other = job_file(tmp_path, "mine.py", width=100), job_file(tmp_path, "other.py", width=300)
    process = server._running()
    assert process.stdin is not None
    process.stdin.write(Request.of(spec_of(other)).to_bytes())

    with pytest.raises(ProcessEnded):
        server.ask(Request.of(spec_of(mine)), LIMITS)
    answer = server.ask(Request.of(spec_of(mine)), LIMITS)
    assert width_of(trace_from_bytes(answer.payload)) == 100


def test_after_ctrl_c_the_next_answer_is_the_next_jobs(tmp_path: Path) -> None:
    first = job_file(tmp_path, "first.py", f"open({str(tmp_path / 'runs')!r}, 'w').close(); time.sleep(30)", width=300)
    second = job_file(tmp_path, "second.py", width=100)

    def interrupt() -> None:
        while not (tmp_path / "runs").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        capture(spec_of(first, write_files=True))
    interrupter.join()
    assert width_of(capture(spec_of(second))) == 100


def test_a_job_that_writes_to_every_descriptor_forges_nothing(tmp_path: Path) -> None:
    for name, first, then in (("writes.py", 0, "pass"), ("closes.py", 3, "os.close(descriptor)")):
        text = FORGED.replace("{first}", str(first)).replace("{then}", then)
        assert width_of(capture(spec_of(job_file(tmp_path, name, text, width=300)))) == 300
        assert width_of(capture(spec_of(job_file(tmp_path, "plain.py", width=100)))) == 100


OBJECT_THAT_WRITES = """
import os, sys
import oomcast, torch

class Job:
    @staticmethod
    def model():
        for descriptor in range(3, 21):
            try:
                os.write(descriptor, b'{"id": "forged"}\\n')
            except OSError:
                pass
        return torch.nn.Linear(3, 10)

    @staticmethod
    def batch(batch_size):
        return torch.randn(batch_size, 3), torch.zeros(batch_size, dtype=torch.long)

def peak(job):
    return oomcast.estimate(job, batch_size=2, device="a100-40gb", steps=1).peak_allocated

before = peak(sys.argv[1])
peak(Job)
assert peak(sys.argv[1]) == before
"""


def test_a_job_that_is_an_object_does_not_reach_the_server(tmp_path: Path) -> None:
    """It runs in a fork of the process that has the server's pipes."""
    script = tmp_path / "script.py"
    script.write_text(OBJECT_THAT_WRITES)
    subprocess.run([sys.executable, str(script), str(job_file(tmp_path, "job.py"))], check=True)


def test_paths_start_from_the_callers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, width in (("one", 100), ("two", 300)):
        (tmp_path / folder).mkdir()
        job_file(tmp_path / folder, "job.py", width=width)
        monkeypatch.chdir(tmp_path / folder)
        assert width_of(capture(spec_of("job.py"))) == width


# -- how a job ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 7])
def test_a_job_that_ends_its_process_is_told_so_at_once(tmp_path: Path, code: int) -> None:
    with pytest.raises(JobFailed, match=rf"ended its process \(exit code {code}\) instead of returning"):
        capture(spec_of(job_file(tmp_path, "job.py", f"os._exit({code})"), time_limit=100))


def test_a_fork_of_the_job_does_not_answer_in_its_stead(tmp_path: Path) -> None:
    plain = capture(spec_of(job_file(tmp_path, "job.py")))
    forked = capture(spec_of(job_file(tmp_path, "job.py", "os.fork()")))
    late = capture(spec_of(job_file(tmp_path, "job.py", "os.fork() or time.sleep(1)")))

    assert plain.events == forked.events == late.events
    with pytest.raises(JobFailed, match="ended its process"):
        capture(spec_of(job_file(tmp_path, "job.py", "os.fork() and os._exit(0)"), time_limit=100))


def test_the_worker_keeps_the_time_limit_itself(server: CaptureServer, tmp_path: Path) -> None:
    hangs = (
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid)); time.sleep(600)"
    )
    server.ask(Request.of(spec_of("zoo:mlp")), LIMITS)
    process = server._running()
    request = Request.of(spec_of(job_file(tmp_path, "job.py", hangs), time_limit=2.0, write_files=True))

    with pytest.raises(TimeLimit):
        server.ask(request, Limits(seconds=2, write_files=True))
    assert server._running() is process, "the server that ended its job is still there for the next"
    assert are_gone([int((tmp_path / "child").read_text())])
    with pytest.raises(TookTooLong, match=r"did not finish within 2 s.*--time-limit"):
        capture(request.spec)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a process to such a limit")
def test_memory_beyond_the_limit_is_told_in_a_sentence(tmp_path: Path) -> None:
    takes_too_much = job_file(tmp_path, "job.py", "held = bytearray(64 << 30)")
    with pytest.raises(
        CaptureFailed, match=r"more of this machine's memory than its limit of 8.00 GiB.*--memory-limit"
    ):
        capture(spec_of(takes_too_much, memory_limit="8GiB"))
    assert width_of(capture(spec_of(job_file(tmp_path, "job.py"), memory_limit="8GiB"))) == 100


def test_a_fork_of_ours_keeps_the_limits_too() -> None:
    def hangs() -> Answer:
        time.sleep(600)
        return Answer()

    def ends() -> Answer:
        os._exit(0)

    with pytest.raises(TimeLimit):
        run_forked(hangs, Limits(seconds=0.5))
    with pytest.raises(ProcessEnded) as caught:
        run_forked(ends, LIMITS)
    assert (caught.value.signal, caught.value.exit_code) == (0, 0)
    with pytest.raises(ProcessEnded) as caught:
        run_forked(lambda: os.kill(os.getpid(), signal.SIGSEGV) or Answer(), LIMITS)  # type: ignore[func-returns-value]
    assert caught.value.signal == signal.SIGSEGV
    assert run_forked(lambda: Answer(payload=b"x" * 3_000_000), LIMITS).payload == b"x" * 3_000_000


# -- what stays behind -------------------------------------------------------------------------------------------------

BUSY = """
    told = [os.getpid(), os.getppid(), subprocess.Popen(["sleep", "600"]).pid]
    open("PIDS.part", "w").write(" ".join(map(str, told)))
    os.rename("PIDS.part", "PIDS")
    while True:
        pass
"""
HEEDS_SIGNALS = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
"""A suite that was started by nohup hands on that SIGHUP is ignored."""
CALLERS = {
    "a file": "import sys, oomcast; oomcast.estimate(sys.argv[1], batch_size=1, device='a100-40gb', write_files=True)",
    "an object": """
        import importlib.util, sys
        import oomcast
        spec = importlib.util.spec_from_file_location("job", sys.argv[1])
        job = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(job)
        oomcast.estimate(job, batch_size=1, device="a100-40gb", write_files=True)
    """,
}


def are_gone(processes: list[int], seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while alive := [process for process in processes if is_alive(process)]:
        if time.monotonic() > deadline:
            for process in alive:
                os.kill(process, signal.SIGKILL)
            return False
        time.sleep(0.05)
    return True


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    if not Path("/proc/self/stat").exists():
        return True
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has ended since
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("kind", CALLERS)
def test_a_killed_caller_leaves_no_process(tmp_path: Path, kind: str, number: signal.Signals) -> None:
    """Neither the server or guard, nor the job, which burns a core, nor what the job started."""
    job = job_file(tmp_path, "job.py", BUSY.replace("PIDS", str(tmp_path / "pids")))
    script = tmp_path / "script.py"
    script.write_text(HEEDS_SIGNALS + textwrap.dedent(CALLERS[kind]))
    caller = subprocess.Popen([sys.executable, str(script), str(job)])
    while not (tmp_path / "pids").exists():
        assert caller.poll() is None
        time.sleep(0.05)
    processes = [int(process) for process in (tmp_path / "pids").read_text().split()]
    assert all(map(is_alive, processes))
    caller.send_signal(number)
    caller.wait()

    assert are_gone(processes)


def test_a_server_ends_with_its_callers_thread_only_when_told(server: CaptureServer) -> None:
    """The kernel's signal at a parent's death comes when the thread ends that started the process."""
    own = CaptureServer("torch")
    asking = threading.Thread(target=own.ask, args=(Request.of(spec_of("zoo:mlp")), LIMITS))
    asking.start()
    asking.join()
    process = own._process
    time.sleep(0.5)
    assert process is not None
    assert process.poll() is None
    own.stop()
    assert are_gone([process.pid])


# -- what is on its path -----------------------------------------------------------------------------------------------

HOSTILE = "open({mark!r}, 'w').close()\nraise ImportError('this is not the module you look for')\n"


def test_code_of_the_current_folder_is_not_run(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        folder.mkdir()
    for module in ("numpy", "torch", "json", "transformers"):
        (here / f"{module}.py").write_text(HOSTILE.format(mark=str(tmp_path / "ran")))
    (here / "config.json").write_text(
        '{"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 2, "vocab_size": 99}'
    )
    script = elsewhere / "script.py"
    script.write_text(
        "import sys, oomcast\nfor job in sys.argv[1:]: oomcast.estimate(job, batch_size=1, device='t4')\n"
    )
    jobs = ["zoo:mlp"]
    if has_transformers():
        jobs.append("hf:config.json")
    subprocess.run([sys.executable, str(script), *jobs], check=True, cwd=here)
    subprocess.run(module_command("oomcast.simulate.cudnn.worker"), cwd=here, stdin=subprocess.DEVNULL, check=False)

    assert not (tmp_path / "ran").exists()


def test_a_job_file_can_import_from_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "neighbour.py").write_text("WIDTH = 100\n")
    monkeypatch.chdir(tmp_path)
    job_file(tmp_path, "job.py", "import neighbour; assert neighbour.WIDTH == 100")
    assert width_of(capture(spec_of("job.py"))) == 100


@pytest.mark.skipif("not has_transformers()")
def test_an_answer_names_only_the_libraries_of_its_own_job(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 2, "vocab_size": 99}')
    of_transformers = capture(spec_of(f"hf:{config}"))
    assert "transformers" in of_transformers.versions
    assert "transformers" not in capture(spec_of("zoo:mlp")).versions


def has_transformers() -> bool:
    import importlib.util

    return importlib.util.find_spec("transformers") is not None
