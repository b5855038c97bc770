#!/usr/bin/env python3
"""A Kubernetes job that asks for the smallest GPU that holds it.

    fill-job.py --name bert --image registry/train:1 -- train/job.py --batch-size 32 | kubectl apply -f -

What follows `--` are the words of `oomcast estimate`. `--gpus` lists the cluster's GPUs, the smallest first: oomcast's
name and the label `nvidia.com/gpu.product` of its nodes. Exit codes: 0 printed, 3 nothing fits (the reasons are on
stderr), 2 bad input, 1 no answer. Needs nothing but Python and the command `oomcast`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

GPUS = "t4=Tesla-T4,a10=NVIDIA-A10,a100-40gb=NVIDIA-A100-SXM4-40GB,a100-80gb=NVIDIA-A100-SXM4-80GB"
TEMPLATE = Path(__file__).with_name("job.yaml")
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="of the Kubernetes job")
    parser.add_argument("--image", required=True, help="that trains")
    parser.add_argument("--gpus", default=GPUS, help=f"device=product, the smallest first (default: {GPUS})")
    parser.add_argument("--template", type=Path, default=TEMPLATE, help="with @NAME@, @IMAGE@, @PRODUCT@, @MEMORY@")
    parser.add_argument("words", nargs="+", metavar="-- JOB …", help="what oomcast estimate takes")
    given = parser.parse_args()
    pairs = [pair.partition("=") for pair in given.gpus.split(",")]
    wrong = next((device for device, _, product in pairs if not LABEL.fullmatch(product)), None)
    if wrong is not None:
        parser.error(f"{wrong!r} has no usable product label; write device=product")
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", given.name):
        parser.error(f"{given.name!r} is no name for Kubernetes: small letters, digits and dashes")
    if any(letter in given.image for letter in '"\\\n'):
        parser.error(f"{given.image!r} is no image")
    reasons = []
    for device, _, product in pairs:
        command = ["oomcast", "estimate", *given.words, "--device", device, "--json"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):
            sys.stderr.write(done.stderr)
            return done.returncode
        answer = json.loads(done.stdout)
        need = f"{answer['device_total'] / 2**30:.2f} GiB of {answer['device_usable'] / 2**30:.2f} GiB on {device}"
        if done.returncode == 0:
            print(_filled(given, product, need), end="")
            return 0
        reasons.append(need)
    sys.stderr.write(f"{given.name} does not fit: it needs {'; '.join(reasons)}\n")
    return 3


def _filled(given: argparse.Namespace, product: str, need: str) -> str:
    text = given.template.read_text(encoding="utf-8")
    values = {"NAME": given.name, "IMAGE": given.image, "PRODUCT": product, "MEMORY": need}
    body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    return re.sub(r"@([A-Z]+)@", lambda match: values.get(match.group(1), match.group(0)), body)


if __name__ == "__main__":
    sys.exit(main())
