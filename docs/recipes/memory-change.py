#!/usr/bin/env python3
"""How a change moves the GPU memory of a project's training jobs, as a table in Markdown.

    memory-change.py fits.txt --before ../base --after .

Each line of fits.txt is what `oomcast estimate` takes, as for ci.sh; it is asked in both folders. Exit codes: 0 all fit
after the change, 3 one does not, 1 one got no answer. Needs nothing but Python and the command `oomcast`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--before", type=Path, required=True, help="a checkout without the change")
    parser.add_argument("--after", type=Path, default=Path(), help="one with it (default: here)")
    given = parser.parse_args()
    lines = [line.strip() for line in given.jobs.read_text(encoding="utf-8").splitlines()]
    print("### GPU memory\n\n| job | before | after | change |\n| --- | ---: | ---: | ---: |")
    code = 0
    for line in lines:
        if not line or line.startswith("#"):
            continue
        before, after = (_estimate(line, folder) for folder in (given.before, given.after))
        change = "" if not before or not after else _signed(after["device_total"] - before["device_total"])
        print(f"| `{line.replace('|', ' ')}` | {_cell(before)} | {_cell(after)} | {change} |")
        if after is None:
            code = 1  # what could not be answered comes before what does not fit, as with ci.sh
        elif after["verdict"] == "oom" and code == 0:
            code = 3
    return code


def _estimate(line: str, folder: Path) -> dict[str, Any] | None:
    command = ["oomcast", "estimate", *shlex.split(line), "--json"]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.stderr.write(f"{folder}: {line}: {done.stderr}")
        return None
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _cell(estimate: dict[str, Any] | None) -> str:
    return f"{estimate['verdict'].upper()} {_size(estimate['device_total'])}" if estimate else "no answer"


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**30:.2f} GiB"


def _signed(nbytes: int) -> str:
    return "none" if nbytes == 0 else f"{'+' if nbytes > 0 else '−'}{abs(nbytes) / 2**20:,.1f} MiB"


if __name__ == "__main__":
    sys.exit(main())
