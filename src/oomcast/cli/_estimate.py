"""`oomcast estimate JOB`: will it fit, how much will it hold, and why."""

from __future__ import annotations

import argparse
import contextlib
import json
from typing import Any

from rich.console import Console

from ..estimate import ESTIMATORS, estimate
from ..report import estimate_as_json, render_estimate
from ..workload import OPTIMIZERS, Precision, ZeroGrad
from ._terminal import terminal

__all__ = ["add_to"]

DOES_NOT_FIT = 3
_EXAMPLES = """examples:
  oomcast estimate zoo:resnet50 --batch-size 64 --device rtx-3090
  oomcast estimate job.py --batch-size 32 --device a100-40gb --precision amp-bf16 --json
  oomcast estimate hf:gpt2 --batch-size 8 --seq-len 1024 --device rtx-4090 --optimizer adamw

exit codes: 0 fits, 3 does not fit, 2 bad input, 1 failure"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "estimate",
        help="how much a training job will hold, and whether it fits",
        description="Estimate the GPU memory of a training job, without a GPU.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", metavar="JOB", help="a job file, or zoo:NAME, timm:NAME, torchvision:NAME, hf:NAME")
    parser.add_argument("--batch-size", type=int, required=True, metavar="N", help="samples per step and GPU")
    parser.add_argument(
        "--device", required=True, metavar="GPU", help="the target, like a100-40gb; see oomcast devices"
    )
    parser.add_argument("--input-shape", metavar="CxHxW", help="shape of one sample, like 3x224x224")
    parser.add_argument("--seq-len", type=int, metavar="N", help="tokens per sample")
    parser.add_argument(
        "--optimizer",
        metavar="NAME",
        help=f"{', '.join(name for name in OPTIMIZERS if name.count('-') == 0)}, sgd-momentum; with -fused, -foreach "
        "or -forloop to fix the implementation (default: the job's own, else adamw)",
    )
    parser.add_argument(
        "--precision", metavar="NAME", help=f"{', '.join(p.value for p in Precision)} (default: fp32, torch's defaults)"
    )
    parser.add_argument("--channels-last", action="store_true", help="NHWC memory format")
    parser.add_argument("--accumulation", type=int, default=1, metavar="N", help="micro-batches per optimizer step")
    parser.add_argument("--checkpointing", action="store_true", help="recompute activations in backward")
    parser.add_argument("--zero-grad", metavar="WHERE", help=f"{', '.join(z.value for z in ZeroGrad)}")
    parser.add_argument("--keep-gradients", action="store_true", help="zero_grad(set_to_none=False)")
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="training steps to follow (default: 3)")
    parser.add_argument("--environment", metavar="NAME", help="software stack, like torch-2.8-cu128")
    parser.add_argument("--cudnn-benchmark", action="store_true", help="the job sets torch.backends.cudnn.benchmark")
    parser.add_argument("--alloc-conf", metavar="SETTINGS", help="PYTORCH_CUDA_ALLOC_CONF of the job")
    parser.add_argument("--estimator", default="simulator", metavar="NAME", help=f"{', '.join(ESTIMATORS)}")
    parser.add_argument("--time-limit", type=float, default=300.0, metavar="S", help="seconds for the capture")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    errors = Console(stderr=True)
    progress = errors.status(f"Running {options.job} on a virtual {options.device} …")
    with progress if errors.is_terminal else contextlib.nullcontext():
        answer = estimate(
            options.job,
            batch_size=options.batch_size,
            device=options.device,
            optimizer=options.optimizer,
            precision=options.precision,
            environment=options.environment,
            estimator=options.estimator,
            input_shape=options.input_shape,
            seq_len=options.seq_len,
            channels_last=options.channels_last,
            accumulation=options.accumulation,
            checkpointing=options.checkpointing,
            zero_grad=options.zero_grad,
            set_to_none=not options.keep_gradients,
            steps=options.steps,
            alloc_conf=options.alloc_conf,
            cudnn_benchmark=options.cudnn_benchmark,
            time_limit=options.time_limit,
        )
    if options.json:
        print(json.dumps(estimate_as_json(answer), indent=2))
    else:
        terminal().print(render_estimate(answer))
    return 0 if answer.fits else DOES_NOT_FIT
