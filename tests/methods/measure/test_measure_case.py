"""One case in a fresh process: what it held, however it ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from measure_cases import python_case

from oomcast.errors import BadInput
from oomcast.methods.measure import Conditions, Limits, Measurement, Outcome, measure_case, processes
from oomcast.methods.measure.environment import check_framework
from oomcast.methods.measure.processes import MARKER, case_folder, memory_of
from oomcast.methods.measure.watch import Cancelled
from oomcast.units import MiB

PATIENT = Conditions(Limits(seconds=60, bytes=1 << 30))
TIGHT = Conditions(Limits(seconds=60, bytes=150 * MiB))


def measure(source: str, conditions: Conditions = PATIENT) -> Measurement:
    return measure_case(python_case(source), conditions)


@pytest.fixture(scope="module")
def empty_peak() -> int:
    return measure("").peak_bytes


def test_peak_is_what_the_case_held_at_its_highest(empty_peak):
    result = measure(f"a = bytearray(b'1' * {20 * MiB})\ndel a\nb = bytearray(b'1' * {5 * MiB})")
    assert result.outcome is Outcome.OK
    assert result.message == ""
    # The bytes and the bytearray made from them live together for a moment; the kernel counts pages in batches.
    assert 39 * MiB <= result.peak_bytes - empty_peak < 43 * MiB
    assert result.counters["host_exact"] == 1


def test_our_own_memory_is_not_in_the_figure(empty_peak):
    ballast = bytearray(b"1" * (200 * MiB))
    assert abs(measure("").peak_bytes - empty_peak) < 2 * MiB
    assert len(ballast) == 200 * MiB


def test_timeline_is_bounded_in_order_and_below_the_peak():
    result = measure("import time\nfor n in range(40):\n    held = bytearray(b'1' * (n << 18)); time.sleep(0.01)")
    seconds = [at for at, _ in result.timeline]
    assert 5 < len(result.timeline) <= 200
    assert seconds == sorted(seconds)
    assert max(held for _, held in result.timeline) <= result.peak_bytes + 16 * MiB
    assert result.timeline[-1][0] <= result.seconds


def test_the_case_runs_as_a_script_does(tmp_path):
    told = tmp_path / "told"
    source = f"""
import os, sys
if __name__ == "__main__":
    import __main__
    facts = [__main__.__file__ == __file__, sys.argv == [__file__], sys.stdin.read() == "", os.getcwd() == sys.path[0]]
    open({str(told)!r}, "w").write(str(facts))
"""
    assert measure(source).outcome is Outcome.OK
    assert told.read_text() == "[True, True, True, True]"


def test_environment_tells_what_can_change_the_figure():
    variables = {"MALLOC_ARENA_MAX": "1"}
    environment = measure_case(python_case(""), Conditions(PATIENT.limits, threads=3, variables=variables)).environment
    assert environment.python == ".".join(map(str, sys.version_info[:3]))
    assert environment.framework == "python"
    assert environment.threads == 3
    assert environment.cores == os.cpu_count()
    assert "MALLOC_ARENA_MAX=1" in environment.allocator
    assert environment.memory > 100 * MiB
    assert environment.machine


@pytest.mark.parametrize(
    ("source", "outcome", "words"),
    [
        ("x = 1\nx.y", Outcome.CRASH, ["AttributeError", "line 2"]),
        ("def f(:", Outcome.CRASH, ["SyntaxError"]),
        ("import nothing_of_this_name", Outcome.CRASH, ["ModuleNotFoundError"]),
        ("import os; os._exit(0)", Outcome.CRASH, ["exit code 0", "before its end"]),
        ("import os; os._exit(7)", Outcome.CRASH, ["exit code 7"]),
        ("raise SystemExit(0)", Outcome.CRASH, ["sys.exit(0)"]),
        ("import ctypes; ctypes.string_at(0)", Outcome.CRASH, ["SIGSEGV"]),
        ("import os; os.abort()", Outcome.CRASH, ["SIGABRT"]),
        ("import os; os.kill(os.getpid(), 9)", Outcome.CRASH, ["SIGKILL"]),
        ("import os; os.closerange(0, 64)", Outcome.CRASH, ["exit code"]),
        ("raise MemoryError", Outcome.OOM, ["MemoryError"]),
        (f"held = bytearray({1 << 40})", Outcome.OOM, ["MemoryError"]),
        ('raise RuntimeError("DefaultCPUAllocator: can\'t allocate memory: you tried")', Outcome.OOM, ["tried"]),
        ("class OutOfMemoryError(RuntimeError): pass\nraise OutOfMemoryError('CUDA')", Outcome.OOM, ["CUDA"]),
        ('import os; os.write(2, b"what(): std::bad_alloc\\n"); os.abort()', Outcome.OOM, ["bad_alloc"]),
        ("raise ValueError('\\udcff\\0 odd')", Outcome.CRASH, ["odd"]),
        ("class E(RuntimeError):\n    def __str__(self): return 1 / 0\nraise E", Outcome.CRASH, ["E"]),
        ("class E(Exception):\n    def __str__(self): return 1 / 0\nraise E", Outcome.CRASH, ["E"]),
    ],
)
def test_failures_are_told_in_a_sentence(source, outcome, words):
    result = measure(source)
    assert result.outcome is outcome
    assert all(word in result.message for word in words), result.message
    assert "\n" not in result.message
    result.message.encode()
    assert result.peak_bytes > 0  # one that ends at once may be seen only while it starts


def test_a_killed_case_has_an_environment_too():
    environment = measure("import os; os.kill(os.getpid(), 9)").environment
    assert environment.python == ".".join(map(str, sys.version_info[:3]))


def test_a_case_that_hangs_is_ended():
    result = measure_case(python_case("import time\ntime.sleep(1000)"), Conditions(Limits(seconds=0.7, bytes=1 << 30)))
    assert result.outcome is Outcome.TIMEOUT
    assert "0.7 s" in result.message
    assert result.timeline


def test_a_case_that_ignores_signals_is_ended():
    source = "import signal, time\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\nwhile True: time.sleep(9)"
    assert measure_case(python_case(source), Conditions(Limits(0.7, 1 << 30))).outcome is Outcome.TIMEOUT


def test_a_case_that_eats_memory_is_ended_near_its_limit():
    result = measure("held = []\nwhile True: held.append(b'1' * (1 << 20))", TIGHT)
    assert result.outcome is Outcome.OOM
    assert "150.0 MiB" in result.message
    assert 150 * MiB < result.peak_bytes < 1200 * MiB


def test_children_count_and_eat_from_the_same_limit():
    source = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        held = bytearray(b"1" * (30 << 20)); time.sleep(60)
time.sleep(0.5 if {ends} else 60)
"""
    result = measure(source.format(ends=True))
    assert result.outcome is Outcome.OK
    assert result.peak_bytes >= 90 * MiB
    assert result.counters["family_peak"] == result.peak_bytes
    tight = Conditions(Limits(seconds=60, bytes=80 * MiB))
    assert measure(source.format(ends=False), tight).outcome is Outcome.OOM


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not tell of children's memory")
@pytest.mark.parametrize("kernel_compares", [True, False], ids=["by the kernel", "where a container forbids to ask"])
def test_a_child_that_still_lives_in_its_parents_memory_counts_once(kernel_compares, monkeypatch):
    """subprocess starts programs by vfork: for a moment the child has the parent's 400 MiB under its own number."""
    if not kernel_compares:
        monkeypatch.setattr(processes, "_kcmp", lambda: None)
    starts = (
        "import os, subprocess\n"
        "for number in range(200):\n"
        "    subprocess.run(['true'], check=True)\n"
        "    if number == 180:  # now the child looks in many folders for its program: long enough to be seen\n"
        "        os.environ['PATH'] = '/x:' * 40000 + os.environ['PATH']\n"
    )
    result = measure(f"held = bytearray({400 * MiB})\nheld[::4096] = b'1' * {400 * MiB // 4096}\n{starts}")
    assert result.outcome is Outcome.OK, result.message
    assert 400 * MiB < result.peak_bytes < 450 * MiB


def test_a_forked_child_does_not_live_in_its_parent():
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        assert not processes.lives_in_its_parent(child)
        assert processes.proportional_memory_of(child) > 0
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert not processes.lives_in_its_parent(child), "it has ended"


def test_nothing_that_a_case_started_outlives_it(tmp_path):
    pids = tmp_path / "pids"
    source = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open({str(pids)!r}, "w").write(str(os.getpid())); time.sleep(1000)
    os._exit(0)
while not os.path.exists({str(pids)!r}): time.sleep(0.01)
"""
    marker = "f" * 32
    assert measure_case(python_case(source), PATIENT, marker=marker).outcome is Outcome.OK
    hidden = int(pids.read_text() or 0)
    until = time.monotonic() + 20
    while _is_case(hidden) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _is_case(hidden)
    assert not case_folder(marker).exists()


def _is_case(pid: int) -> bool:
    try:
        return f"{MARKER}=".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def test_a_forked_copy_of_the_case_does_not_report_in_its_place():
    result = measure("import os, time\nif os.fork(): time.sleep(0.3); raise KeyError('the first')")
    assert result.outcome is Outcome.CRASH
    assert "the first" in result.message


@pytest.mark.parametrize(
    "garbage",
    [
        "import os, sys\nfor _ in range(40): sys.stdout.buffer.write(os.urandom(1 << 16))",
        'print(\'{"outcome": "oom"}\' * 10000)',
        "import os\nfor fd in range(1, 32):\n"
        "    try: os.write(fd, b'\\xff\\0{}\\n' * 9000 + b'no end of line')\n    except OSError: pass",
        "import sys; sys.stdout.close(); sys.stderr.close()",
        "import os; os.dup2(os.open(os.devnull, os.O_RDWR), 1); os.dup2(1, 2)",
    ],
)
def test_garbage_disturbs_nothing(garbage, empty_peak):
    result = measure(garbage + "\nheld = bytearray(b'1' * (8 << 20))")
    assert result.outcome is Outcome.OK, result.message
    assert result.peak_bytes - empty_peak > 7 * MiB


def test_a_case_that_breaks_python_for_its_report_still_has_an_outcome():
    result = measure("import sys\nsys.modules['json'] = None")
    assert result.outcome is Outcome.CRASH
    assert "json" in result.message


def test_forged_reports_cannot_break_us():
    source = """
import __main__, inspect, os, sys
frame = inspect.currentframe().f_back
while "token" not in frame.f_locals: frame = frame.f_back
token, report = frame.f_locals["token"], frame.f_locals["report"]
os.write(report, b"\\n" + token.encode() + b" " + {content!r} + b"\\n")
import time; time.sleep(0.2); os._exit(0)
"""
    for content in (b"[]", b"{}", b'{"outcome": "fine"}', b'{"outcome": "ok", "counters": 3, "environment": 1}'):
        result = measure(source.format(content=content))
        assert result.outcome is Outcome.CRASH
        assert result.peak_bytes > 1 * MiB


def test_cancel_ends_the_case_at_once():
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    with pytest.raises(Cancelled):
        measure_case(python_case("import time; time.sleep(1000)"), PATIENT, cancel=cancel)


def test_a_python_that_is_not_there_is_bad_input(tmp_path):
    nowhere = Conditions(interpreters={"python": str(tmp_path / "python")})
    with pytest.raises(BadInput, match="cannot start"):
        measure_case(python_case(""), nowhere)
    with pytest.raises(BadInput, match="cannot be run"):
        check_framework("python", str(tmp_path / "python"))


def test_a_python_without_the_framework_is_told_before_any_case(tmp_path):
    python = tmp_path / "bare"
    # Without site packages there is no framework.
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    check_framework("python", str(python))
    with pytest.raises(BadInput, match="has no keras and no tensorflow; install it there"):
        check_framework("keras", str(python))


def test_another_python_needs_neither_oomcast_nor_any_package(tmp_path):
    python = tmp_path / "bare"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    source = "import importlib.util\nassert importlib.util.find_spec('oomcast') is None"
    result = measure(source, Conditions(PATIENT.limits, interpreters={"python": str(python)}))
    assert (result.outcome, result.message) == (Outcome.OK, "")
    assert result.counters["host_exact"] == 1


@pytest.mark.parametrize("limits", [{"seconds": 0}, {"seconds": float("nan")}, {"bytes": 0}])
def test_limits_that_cannot_be(limits):
    with pytest.raises(BadInput):
        Limits(**limits)


def test_ps_agrees_with_proc():
    from oomcast.methods.measure.processes import _memory_by_ps

    by_ps, by_proc = _memory_by_ps(os.getpid()), memory_of(os.getpid())
    assert by_ps is not None
    assert by_proc is not None
    assert 0.8 < by_ps.resident / by_proc.resident < 1.25
    assert _memory_by_ps(2**22 + 1) is None


def test_torch_reports_its_version_and_its_own_out_of_memory():
    pytest.importorskip("torch")
    source = "import torch\nx = torch.empty(1 << 42, dtype=torch.float32)"
    case = python_case(source)
    result = measure_case(
        type(case)(**{**vars(case), "framework": "torch"}), Conditions(Limits(120, 4 << 30), threads=1)
    )
    assert result.outcome is Outcome.OOM
    assert "allocate memory" in result.message
    assert result.environment.version.startswith("2.")
    assert result.environment.threads == 1
