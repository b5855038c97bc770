"""Runs one case in a process of its own and reports what it held. A script on its own: it may run under a Python
that has the framework but not oomcast, so it imports nothing of ours.

Started as `python worker.py REPORT_FD` in a folder that holds `case.py`. On stdin comes one line, `TOKEN PARENT_PID`;
the report goes to REPORT_FD as one line, `TOKEN {json}`. Then it waits for stdin to close, so that the parent can
look at the living process once more.
"""

from __future__ import annotations

import os
import sys

MYPY = False
if MYPY:  # typing is not imported in earnest: its memory would be in the figure
    from types import ModuleType
    from typing import Any

_OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "bad_alloc",
    "ALLOC_FAILED",
    "RESOURCE_EXHAUSTED",
    "Unable to allocate",
    "Cannot allocate memory",
)

__all__ = ["main"]


def main() -> None:
    report = int(sys.argv[1])
    os.set_inheritable(report, False)
    control = os.dup(0)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    token, parent = _read_line(control).split()
    if os.getppid() != int(parent):
        os._exit(1)
    _be_killed_first()
    own = os.getpid()
    module = type(sys)("__main__")
    try:
        _run_case(os.path.abspath("case.py"), module)
        failure = None
    except BaseException as error:
        failure = error
    if os.getpid() != own:
        os._exit(0)  # a child that the case forked came back to here
    counters = _host_counters()
    if failure is not None:
        # The frames of the failed case hold its tensors, and under a limit the report would not fit beside them.
        message = _message(failure)
        failure.__traceback__ = failure.__context__ = failure.__cause__ = None
        module.__dict__.clear()
    outcome, text = ("ok", "") if failure is None else (_outcome(failure), message)
    counters.update(_device_counters())
    _send(report, token, {"outcome": outcome, "message": text, "counters": counters, "environment": _environment()})
    os.read(control, 1)
    os._exit(0)


def _read_line(descriptor: int) -> str:
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(descriptor, 1)
        if not part:
            os._exit(1)
        line += part
    return line.decode()


def _be_killed_first() -> None:
    """When the machine runs out of memory, the kernel should end the case and not the campaign or the database."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def _run_case(path: str, module: ModuleType) -> None:
    """As `python case.py` would, so that nothing but the case is in the figure."""
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module.__file__ = path
    sys.modules["__main__"] = module
    sys.argv[:] = [path]
    sys.path[0] = os.path.dirname(path)
    exec(code, module.__dict__)


def _host_counters() -> dict[str, int]:
    peak = None
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    peak = int(line.split()[1]) * 1024
    except OSError:
        pass
    if peak is None:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"host_peak": peak}


def _device_counters() -> dict[str, int]:
    counters: dict[str, int] = {}
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            counters["cuda_peak_allocated"] = int(torch.cuda.max_memory_allocated())
            counters["cuda_peak_reserved"] = int(torch.cuda.max_memory_reserved())
            counters["cuda_reserved_at_end"] = int(torch.cuda.memory_reserved())
    except Exception:
        pass
    tensorflow = sys.modules.get("tensorflow")
    try:
        if tensorflow is not None and tensorflow.config.list_physical_devices("GPU"):
            counters["tensorflow_peak"] = int(tensorflow.config.experimental.get_memory_info("GPU:0")["peak"])
    except Exception:
        pass
    return counters


def _outcome(error: BaseException) -> str:
    if isinstance(error, MemoryError) or type(error).__name__ in ("OutOfMemoryError", "ResourceExhaustedError"):
        return "oom"
    if isinstance(error, (RuntimeError, OSError)) and any(sign in _text(error) for sign in _OUT_OF_MEMORY):
        return "oom"
    return "crash"


def _message(error: BaseException) -> str:
    name = type(error).__name__
    if isinstance(error, SystemExit):
        return f"the case left by sys.exit({error.code!r}) before its end"
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith("case.py"):
            line = trace.tb_lineno
        trace = trace.tb_next
    text = " ".join(_text(error).split())[:500]
    return name + (": " + text if text else "") + ("" if line is None else f" (line {line} of the case)")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _environment() -> dict[str, Any]:
    import platform

    facts: dict[str, Any] = {"python": platform.python_version(), "threads": os.environ.get("OMP_NUM_THREADS", "")}
    versions = {}
    for name in ("torch", "keras", "tensorflow", "jax", "mxnet", "numpy"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            versions[name] = version
    facts["versions"] = versions
    facts["allocator"] = _allocator()
    torch = sys.modules.get("torch")
    try:
        if torch is not None:
            facts["threads"] = str(torch.get_num_threads())
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                facts["gpu"] = str(torch.cuda.get_device_name())
    except Exception:
        pass
    return facts


def _allocator() -> str:
    """Which malloc serves this process: a preloaded one shows among the mapped files."""
    try:
        with open("/proc/self/maps") as file:
            mapped = {line.rsplit("/", 1)[-1].strip() for line in file if "/" in line}
    except OSError:
        mapped = set()
    for name in ("jemalloc", "tcmalloc", "mimalloc"):
        for library in mapped:
            if library.startswith("lib" + name):
                return library
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "libc"
    except (ValueError, AttributeError, OSError):
        return "libc"


def _send(report: int, token: str, content: dict[str, Any]) -> None:
    import contextlib
    import json

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    # The case may have written here too: a line of our own, whatever stands before it.
    data = ("\n" + token + " " + json.dumps(content) + "\n").encode()
    try:
        while data:
            data = data[os.write(report, data) :]
    except OSError:
        os._exit(1)


if __name__ == "__main__":
    main()
