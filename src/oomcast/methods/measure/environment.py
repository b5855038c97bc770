"""Where a measurement was made: all that can change a figure beside the case itself.

The machine with its settings, and the Python that runs a framework's cases: whether it has the framework, and which
version of it.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ...errors import BadInput
from .processes import total_memory

__all__ = ["Environment", "check_framework", "environment_of", "facts_of"]

_MALLOC_VARIABLES = (
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_CONF",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "TF_GPU_ALLOCATOR",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_ENABLE_ONEDNN_OPTS",  # its convolutions need other scratch space than Eigen's
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR",
)
_THP = "/sys/kernel/mm/transparent_hugepage/enabled"


@dataclass(frozen=True)
class Environment:
    """The process, the machine and the GPU behind a figure. What could not be learnt is an empty text."""

    python: str
    framework: str
    version: str
    """The framework's version; a second package that decides memory stands behind it: `3.12.0 tensorflow 2.21.0`."""
    machine: str
    """Processor, architecture and operating system."""
    cores: int
    memory: int
    threads: int
    """Threads that the framework computes with."""
    allocator: str
    """The malloc that served the process, then every setting that changes it: `glibc 2.36 MALLOC_ARENA_MAX=1`."""
    gpu: str = ""
    driver: str = ""

    def __post_init__(self) -> None:
        for name in ("python", "version", "allocator", "gpu", "driver"):
            # The measured process told these; databases refuse lone surrogates and NUL.
            text = getattr(self, name).encode("utf-8", errors="replace").decode().replace("\0", "")
            object.__setattr__(self, name, text[:1000])

    def as_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Environment:
        return cls(**plain)


def environment_of(
    framework: str,
    facts: Mapping[str, Any],
    variables: Mapping[str, str],
    *,
    threads: int,
    gpu: str = "",
    driver: str = "",
) -> Environment:
    """What the worker told about its process, beside what is known of the machine from outside."""
    versions = facts.get("versions")
    versions = versions if isinstance(versions, Mapping) else {}
    version = str(versions.get(framework, ""))
    if framework == "keras" and "tensorflow" in versions:
        version += f" tensorflow {versions['tensorflow']}"
    settings = [f"{name}={variables[name]}" for name in _MALLOC_VARIABLES if variables.get(name)]
    told_threads = str(facts.get("threads", ""))
    return Environment(
        python=str(facts.get("python", "")),
        framework=framework,
        version=version,
        machine=_machine(),
        cores=os.cpu_count() or 1,
        memory=total_memory(),
        threads=int(told_threads) if told_threads.isdecimal() else threads,
        allocator=" ".join([str(facts.get("allocator", "")), *settings, _huge_pages()]).strip(),
        gpu=gpu or str(facts.get("gpu", "")),
        driver=driver,
    )


@functools.cache
def _machine() -> str:
    processor = platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        processor = names[0] if names else processor
    except OSError:
        pass
    return ", ".join(
        part for part in (processor, platform.machine(), f"{platform.system()} {platform.release()}") if part
    )


@functools.cache
def _huge_pages() -> str:
    """Huge pages make resident memory grow in steps of 2 MiB, so their setting belongs to the figure."""
    try:
        with open(_THP, encoding="ascii") as file:
            text = file.read()
    except OSError:
        return ""
    return "huge_pages=" + text[text.find("[") + 1 : text.find("]")] if "[" in text else ""


_MODULES = {
    "torch": ("torch",),
    "keras": ("keras", "tensorflow"),
    "jax": ("jax", "optax"),
    "mxnet": ("mxnet",),
}
"""What the Python that runs a framework's cases must have; other names (`python`) need nothing."""
_QUESTION = """
import importlib.metadata, importlib.util, json, os, platform, sys
missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
# A module need not be called as what was installed: tensorflow comes with tensorflow-cpu too.
installed = importlib.metadata.packages_distributions()
versions = {name: importlib.metadata.version(installed[name][0]) for name in sys.argv[1:] if name in installed}
print(json.dumps({"python": platform.python_version(), "versions": versions, "missing": missing}))
"""


def check_framework(framework: str, interpreter: str) -> None:
    """Say now, and not by a hundred crashed cases, that a Python is missing or has not got the framework."""
    missing = facts_of(framework, interpreter)["missing"]
    if missing:
        raise BadInput(
            f"the Python for {framework} cases, {interpreter}, has no {' and no '.join(missing)}; "
            f"install it there, or name another Python for {framework}."
        )


@functools.cache
def facts_of(framework: str, interpreter: str) -> Mapping[str, Any]:
    """`python`, `versions` and `missing`, learnt without importing the framework."""
    command = [interpreter, "-c", _QUESTION, *_MODULES.get(framework, ())]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        facts = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it did not answer"
        raise BadInput(f"the Python for {framework} cases, {interpreter}, cannot be run: {reason}.") from error
    assert isinstance(facts, dict)
    return facts
