"""Asks about every job and writes the answers down, in surroundings that are the same every time."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from oomcast.errors import BadInput

from .comparing import KIND
from .jobs import FRAMEWORKS, JOBS, Job
from .runner import Runner, last_line

__all__ = ["record"]

_LEAKING = re.compile(r"^(PYTORCH_|CUDA_|TF_|XLA_|JAX_|MXNET_|KERAS_|ORT_|OOMCAST_(?!PYTHON_)|HF_|TORCH_|CUBLAS_)")
"""Variables that change what a job holds."""
_FOLDERS = {
    "OOMCAST_CACHE_DIR": "cache",
    "OOMCAST_CONFIG": "config",
    "XDG_CACHE_HOME": "xdg-cache",
    "XDG_CONFIG_HOME": "xdg-config",
    "KERAS_HOME": "keras",
    "HF_HOME": "hf",
    "MXNET_HOME": "mxnet",
    "TORCH_HOME": "torch",
}
_FIXED = {
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
    "COLUMNS": "200",
    "NO_COLOR": "1",
    "HF_HUB_OFFLINE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_PACKAGES = {
    "torch": ("torch", "transformers", "numpy", "timm", "torchvision"),
    "tensorflow": ("tensorflow-cpu", "keras"),
    "jax": ("jax", "flax", "optax", "equinox"),
    "mxnet": ("mxnet",),
    "onnx": ("onnx", "onnxruntime"),
}
_VERSIONS = """import sys, importlib.metadata as m
for p in sys.argv[1:]:
    try:
        print(p, m.version(p))
    except m.PackageNotFoundError:
        pass
"""


def record(target: Path, only: str | None, frameworks: Sequence[str]) -> int:
    """Ask about the jobs of these frameworks whose names contain `only`, and write `target`."""
    started = time.perf_counter()
    with _isolated() as folder:
        import oomcast

        print(f"oomcast of {oomcast.__file__}", flush=True)
        _check_code(oomcast.__file__, frameworks)
        runner = Runner(folder)
        wanted = [job for job in JOBS if job.framework in frameworks and (only is None or only in job.name)]
        skipped = {job.name: f"no {_variable(job.framework)}" for job in wanted if _python(job.framework) is None}
        for framework in sorted({job.framework for job in wanted if job.name in skipped}):
            print(f"{framework} is left out: {_variable(framework)} does not say which Python has it")
        chosen = [job for job in wanted if job.name not in skipped]
        if any(job.framework == "onnx" for job in chosen):
            _make_onnx_models(runner.files)
        answers, seconds, unexpected = _ask_all(runner, chosen)
        content = {
            "kind": KIND,
            "meta": {
                "code": f"oomcast {oomcast.__version__}",
                "versions": _versions(frameworks),
                "total_seconds": round(time.perf_counter() - started, 1),
                "seconds": seconds,
                "frameworks": {job.name: job.framework for job in chosen},
                "left_out": [job.name for job in JOBS if job.name not in answers and job.name not in skipped],
                "skipped": skipped,
            },
            "jobs": answers,
        }
        new = target.with_name(target.name + ".new")
        new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(new, target)
    counts = {name: sum(job.framework == name for job in chosen) for name in FRAMEWORKS}
    by_framework = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    print(f"{len(answers)} jobs ({by_framework}) in {time.perf_counter() - started:.0f} s to {target}; "
          f"{unexpected} did not end as the list says")  # fmt: skip
    return 0


def _ask_all(runner: Runner, jobs: Sequence[Job]) -> tuple[dict[str, Any], dict[str, float], int]:
    """The answers, the seconds that each took, and how many ended in another way than the list says."""
    answers: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    unexpected = 0
    for number, job in enumerate(jobs, 1):
        begun = time.perf_counter()
        answers[job.name] = runner.run(job)
        seconds[job.name] = round(time.perf_counter() - begun, 2)
        error = answers[job.name].get("error")
        note = ""
        if bool(error) != job.fails:
            unexpected += 1
            note = f"  UNEXPECTED: {json.dumps(error)[:300] if error else 'no error'}"
        print(f"{number:4}/{len(jobs)} {seconds[job.name]:7.2f} s  {job.framework:10} {job.name}{note}", flush=True)
    return answers, seconds, unexpected


@contextlib.contextmanager
def _isolated() -> Iterator[Path]:
    """An empty folder to work in: nothing of the user's own reaches a job, all run on the same instruction set."""
    before, was_in = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory(prefix="same-bytes-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for variable in [variable for variable in os.environ if _LEAKING.match(variable)]:
            del os.environ[variable]
        os.environ.update({variable: str(folder / part) for variable, part in _FOLDERS.items()}, **_FIXED)
        paths = [str(Path(path).resolve()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        os.chdir(folder)  # `python -m` looks into the current folder first
        try:
            yield folder
        finally:
            os.chdir(was_in)
            os.environ.clear()
            os.environ.update(before)


def _variable(framework: str) -> str:
    return f"OOMCAST_PYTHON_{framework.upper()}"


def _python(framework: str) -> str | None:
    """The interpreter that has the framework."""
    return sys.executable if framework == "torch" else os.environ.get(_variable(framework))


def _check_code(file: str, frameworks: Sequence[str]) -> None:
    """Every Python that captures must run the code that is to be recorded, or the record proves nothing."""
    for framework in frameworks:
        python = _python(framework)
        if python is None:
            continue
        command = [python, "-c", "import oomcast; print(oomcast.__file__)"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.stdout.strip() != file:
            other = ran.stdout.strip() or last_line(ran.stderr)
            raise BadInput(f"{python} (for {framework}) runs other code: {other}, not {file}; set PYTHONPATH to src.")


def _versions(frameworks: Sequence[str]) -> dict[str, str]:
    """Of what decides the figures beside oomcast."""
    versions = {"python": platform.python_version()}
    for framework in frameworks:
        python = _python(framework)
        if python is not None:
            command = [python, "-c", _VERSIONS, *_PACKAGES[framework]]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            for line in ran.stdout.splitlines():
                package, version = line.split()
                versions[package] = version
    with contextlib.suppress(metadata.PackageNotFoundError):
        versions["cudnn"] = metadata.version("nvidia-cudnn-cu12")
    return versions


def _make_onnx_models(folder: Path) -> None:
    """By the onnx package, in its own environment."""
    command = [str(_python("onnx")), str(folder / "make_onnx.py"), str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise BadInput(f"the ONNX models could not be made: {last_line(ran.stderr)}")
