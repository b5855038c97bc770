"""Programs of frameworks that hand their steps to XLA, compiled by the compiler that comes with JAX."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

from ...children import module_command
from ..frameworks import interpreter_of
from .plan import Compiled, NotAsked

__all__ = ["ask_compiler", "compiler_may_be_there"]


def compiler_may_be_there() -> bool:
    """Whether asking is worth its preparations: JAX is installed here, or a Python is named that has it."""
    return interpreter_of("jax") != sys.executable or importlib.util.find_spec("jax") is not None


def ask_compiler(program: bytes, gpu: str) -> Compiled | NotAsked:
    """What XLA's compiler for GPUs tells of a program (a serialized `HloModuleProto`)."""
    command = module_command("oomcast.capture.xla.compile_hlo", python=interpreter_of("jax"))
    try:
        ended = subprocess.run(command, input=gpu.encode() + b"\n" + program, capture_output=True, check=False)
    except OSError as error:
        return NotAsked(f"{command[0]} does not start ({error.strerror})")
    try:
        told = json.loads(ended.stdout)
        return NotAsked(**told) if "reason" in told else Compiled(**told)
    except (ValueError, TypeError):
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
        return NotAsked(f"the process that compiles ended without an answer ({last[0][:200]})")
