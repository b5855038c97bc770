"""Makes the stand-ins for libcuda.so.1 that ship with the package, from `stub/libcuda.c`. Users never need this.

    python -m lab build-stub [--compiler "zig cc"] [--out FOLDER | --check]

With zig (`pip install ziglang`, then `--compiler "python -m ziglang cc"`) all architectures are made, with another
compiler only the machine's own.
"""

from __future__ import annotations

import argparse
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from oomcast.simulate.cudnn.library import MACHINES, SOURCE, stub_name

__all__ = ["add_to", "build"]

FLAGS = ("-shared", "-fPIC", "-O2", "-nostdlib", "-s", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1")


def build(compiler: list[str], machine: str, folder: Path) -> Path:
    """Compile the stub for `machine`; raises CalledProcessError."""
    target = ["-target", f"{machine}-linux-gnu"] if "zig" in " ".join(compiler) else []
    made = folder / stub_name(machine)
    subprocess.run([*compiler, *target, *FLAGS, "-o", str(made), str(SOURCE)], check=True)
    return made


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("build-stub", description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="cc", help="the C compiler and its first arguments (default: cc)")
    parser.add_argument("--out", type=Path, default=SOURCE.parent, help="the folder to write to (default: the package)")
    parser.add_argument("--check", action="store_true", help="write nothing: compare with what ships, byte by byte")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.check:
        with tempfile.TemporaryDirectory() as folder:
            return _make(options.compiler, Path(folder)) or _compare(Path(folder))
    return _make(options.compiler, options.out)


def _compare(folder: Path) -> int:
    differing = [
        made.name for made in folder.iterdir() if made.read_bytes() != (SOURCE.parent / made.name).read_bytes()
    ]
    for name in differing:
        print(f"error: {name} that ships is another than the one from its source", file=sys.stderr)
    return 1 if differing else 0


def _make(command: str, folder: Path) -> int:
    compiler = shlex.split(command)
    machines = MACHINES if "zig" in command else (platform.machine(),)
    for machine in machines:
        try:
            made = build(compiler, machine, folder)
        except (OSError, subprocess.CalledProcessError) as problem:
            print(f"error: the stub for {machine} was not made: {problem}", file=sys.stderr)
            return 1
        print(f"{made}: {made.stat().st_size} bytes")
    return 0
