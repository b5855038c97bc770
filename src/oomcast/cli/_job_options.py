"""The options that say what a job is and where it runs, the same for every command that takes a job."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import BadInput
from ..workload import FRAMEWORKS, OPTIMIZERS, Precision, ZeroGrad

__all__ = ["add_job_options", "job_options"]


def add_job_options(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """`required`: whether the command does nothing without a job."""
    parser.add_argument(
        "job",
        metavar="JOB",
        nargs=None if required else "?",
        help="a job file, or zoo:NAME, timm:NAME, torchvision:NAME, hf:NAME",
    )
    parser.add_argument("--batch-size", type=int, required=required, metavar="N", help="samples per step and GPU")
    parser.add_argument(
        "--device", required=required, metavar="GPU", help="the target, like a100-40gb; see oomcast devices"
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
    parser.add_argument("--checkpointing", action="store_true", help="recompute each repeated block in backward")
    parser.add_argument(
        "--checkpoint-modules", metavar="NAMES", help="recompute these modules only, like layers.0,layers.1 or layers.*"
    )
    parser.add_argument("--zero-grad", metavar="WHERE", help=f"{', '.join(z.value for z in ZeroGrad)}")
    parser.add_argument("--keep-gradients", action="store_true", help="zero_grad(set_to_none=False)")
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="training steps to follow (default: 3)")
    parser.add_argument(
        "--framework", metavar="NAME", help=f"{', '.join(FRAMEWORKS)} (default: what the job's model() returns)"
    )
    parser.add_argument("--environment", metavar="NAME", help="software stack, like torch-2.8-cu128")
    parser.add_argument("--cudnn-benchmark", action="store_true", help="the job sets torch.backends.cudnn.benchmark")
    parser.add_argument("--alloc-conf", metavar="SETTINGS", help="PYTORCH_CUDA_ALLOC_CONF of the job")
    parser.add_argument("--time-limit", type=float, default=300.0, metavar="S", help="seconds for the capture")
    parser.add_argument(
        "--coverage", type=float, default=0.95, metavar="SHARE", help="how sure the bounds are (default: 0.95)"
    )


def job_options(options: argparse.Namespace) -> dict[str, Any]:
    """As keywords of `oomcast.estimate` and `oomcast.calibrate`."""
    if options.checkpointing and options.checkpoint_modules is not None:
        raise BadInput("--checkpointing and --checkpoint-modules exclude each other; give one.")
    return {
        "batch_size": options.batch_size,
        "device": options.device,
        "optimizer": options.optimizer,
        "precision": options.precision,
        "environment": options.environment,
        "framework": options.framework,
        "input_shape": options.input_shape,
        "seq_len": options.seq_len,
        "channels_last": options.channels_last,
        "accumulation": options.accumulation,
        "checkpointing": options.checkpointing if options.checkpoint_modules is None else options.checkpoint_modules,
        "zero_grad": options.zero_grad,
        "set_to_none": not options.keep_gradients,
        "steps": options.steps,
        "alloc_conf": options.alloc_conf,
        "cudnn_benchmark": options.cudnn_benchmark,
        "time_limit": options.time_limit,
        "coverage": options.coverage,
    }
