"""Makes the stand-ins for libcuda.so.1 that ship with the package, from `stub/libcuda.c`. Users never need this.

    python -m oomcast.simulate.cudnn.build_stub [--compiler "zig cc"] [--out FOLDER]

With zig (`pip install ziglang`, then `--compiler "python -m ziglang cc"`) all architectures are made, with another
compiler only the machine's own.
"""

from __future__ import annotations

import argparse
import platform
import shlex
import subprocess
import sys
from pathlib import Path

from ._stub import MACHINES, SOURCE, stub_name

__all__ = ["build", "main"]

FLAGS = ("-shared", "-fPIC", "-O2", "-nostdlib", "-s", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1")


def build(compiler: list[str], machine: str, folder: Path) -> Path:
    """Compile the stub for `machine`; raises CalledProcessError."""
    target = ["-target", f"{machine}-linux-gnu"] if "zig" in " ".join(compiler) else []
    made = folder / stub_name(machine)
    subprocess.run([*compiler, *target, *FLAGS, "-o", str(made), str(SOURCE)], check=True)
    return made


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="oomcast.simulate.cudnn.build_stub", description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="cc", help="the C compiler and its first arguments (default: cc)")
    parser.add_argument("--out", type=Path, default=SOURCE.parent, help="the folder to write to (default: the package)")
    options = parser.parse_args(arguments)
    compiler = shlex.split(options.compiler)
    machines = MACHINES if "zig" in options.compiler else (platform.machine(),)
    for machine in machines:
        try:
            made = build(compiler, machine, options.out)
        except (OSError, subprocess.CalledProcessError) as problem:
            print(f"error: the stub for {machine} was not made: {problem}", file=sys.stderr)
            return 1
        print(f"{made}: {made.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
