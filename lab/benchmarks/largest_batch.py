"""The largest batch by `oomcast.fit` against captures of every larger one: `python -m lab bench largest_batch`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oomcast.advise.confidence import ConfidentTarget
from oomcast.advise.largest import MOST_CAPTURES, search_largest
from oomcast.advise.parameters import find_parameter
from oomcast.capture import capture
from oomcast.errors import BadInput
from oomcast.estimation import target_of
from oomcast.provenance import TRACE_ROOMS, source_digest
from oomcast.spec import Spec, Workload
from oomcast.trace import Trace

from ..accuracy import default_folder
from .report import Bar, Outcome, print_outcome

__all__ = ["JOBS", "Row", "run"]

CONFIDENCE = 0.95
_IN_A_ROW = 8
_FAR = (1.1, 1.25, 1.5, 2.0)
_STEPS = 2
"""The second step has the optimizer's state; a third would only make captures longer."""
SEARCHING = (*TRACE_ROOMS, "oomcast.estimation", "oomcast.advise")
"""The packages that the answers that were kept depend on."""


def _job(name: str, device: str, **options: Any) -> tuple[str, str, dict[str, Any]]:
    return name, device, options


JOBS = (
    # Convolutions, with batch norm and without, from small cards to large ones.
    _job("zoo:vgg11", "rtx-2060"),
    _job("zoo:vgg11", "rtx-3060", optimizer="sgd-momentum"),
    _job("zoo:vgg16", "rtx-4060", optimizer="sgd"),
    _job("zoo:vgg16_bn", "rtx-3060", precision="amp-fp16"),
    _job("zoo:vgg13_bn", "t4", optimizer="sgd-momentum"),
    _job("zoo:resnet18", "gtx-1060-3gb"),
    _job("zoo:resnet18", "gtx-1650", precision="amp-fp16"),
    _job("zoo:resnet18", "rtx-2060", channels_last=True, precision="amp-fp16"),
    _job("zoo:resnet18", "rtx-3050-6gb", cudnn_benchmark=True),
    _job("zoo:resnet34", "rtx-4060", optimizer="sgd-momentum"),
    _job("zoo:resnet50", "gtx-1660"),
    _job("zoo:resnet50", "rtx-3060", input_shape="3x320x320"),
    _job("zoo:resnet50", "rtx-4070", precision="amp-bf16", optimizer="adam"),
    _job("zoo:resnet50", "v100-16gb", precision="amp-fp16", channels_last=True, optimizer="sgd-momentum"),
    _job("zoo:resnet50", "a100-40gb", optimizer="sgd-momentum"),
    _job("zoo:resnet50", "gtx-1080", zero_grad="after-step", set_to_none=False),
    _job("zoo:resnet34", "gtx-1070", optimizer="adam-fused"),
    _job("zoo:inception_v3", "rtx-2060"),
    _job("zoo:mobilenet_v2", "gtx-1060-3gb"),
    _job("zoo:mobilenet_v2", "rtx-4060", precision="amp-fp16", optimizer="rmsprop"),
    _job("zoo:mobilenet_v2", "rtx-2060", input_shape="3x192x192", channels_last=True),
    _job("zoo:efficientnet_b0", "gtx-1650"),
    _job("zoo:efficientnet_b0", "rtx-3060", precision="amp-fp16"),
    _job("zoo:unet2d", "rtx-2060"),
    _job("zoo:unet2d", "rtx-3060", optimizer="adam-forloop"),
    _job("zoo:unet3d", "rtx-4090"),
    _job("zoo:unet3d", "a100-40gb", precision="amp-fp16"),
    # Transformers; 197 tokens of an image and odd lengths are padded by the attention kernels.
    _job("zoo:vit_t_16", "gtx-1060-3gb"),
    _job("zoo:vit_t_16", "rtx-2060", precision="amp-fp16"),
    _job("zoo:vit_s_16", "rtx-4060", precision="amp-bf16"),
    _job("zoo:vit_s_16", "gtx-1080"),
    _job("zoo:vit_b_16", "rtx-3060"),
    _job("zoo:vit_b_16", "rtx-3060", checkpointing=True),
    _job("zoo:bert-base", "rtx-2060", seq_len=128),
    _job("zoo:bert-base", "rtx-4060", seq_len=101, precision="amp-fp16"),
    _job("zoo:bert-base", "rtx-3060", seq_len=384, optimizer="sgd"),
    _job("zoo:bert-base-mlm", "rtx-2080-ti", seq_len=127, precision="amp-fp16"),
    _job("zoo:gpt2", "rtx-3060", seq_len=256),
    _job("zoo:gpt2", "rtx-4070", seq_len=251, precision="bf16"),
    _job("zoo:gpt2", "rtx-3080-10gb", seq_len=512, precision="amp-bf16", checkpointing=True),
    _job("zoo:gpt2", "t4", seq_len=128, accumulation=2, optimizer="adamw-forloop"),
    # Others: recurrent, and rows of numbers in large batches.
    _job("zoo:lstm-lm", "gtx-1060-3gb"),
    _job("zoo:lstm-lm", "rtx-4060", optimizer="sgd"),
    _job("zoo:mlp", "gtx-1060-3gb", optimizer="adam-fused"),
)


@dataclass(frozen=True)
class Row:
    job: str
    device: str
    settings: str
    found: int | None
    captures: int
    verified: bool
    by_captures: int | None
    """The largest that fits, when every larger one is captured."""
    halving: int
    """Captures that halving alone would take to get there."""
    seconds: float


def run(jobs: tuple[tuple[str, str, dict[str, Any]], ...], cache: Path, show: Callable[[Row], None]) -> Outcome:
    rows = []
    digest = source_digest(*SEARCHING)
    cache.mkdir(parents=True, exist_ok=True)
    for name, device, options in jobs:
        label = " ".join(f"{key}={value}" for key, value in options.items())
        path = cache / (f"{name} {device} {label} {digest}.json".replace("/", "-").replace(":", "-"))
        if path.is_file():
            row = Row(**json.loads(path.read_text(encoding="utf-8")))
        else:
            row = _row(name, device, options, label)
            path.write_text(json.dumps(asdict(row)), encoding="utf-8")
        show(row)
        rows.append(row)
    return _outcome(rows)


def _row(name: str, device: str, options: dict[str, Any], label: str) -> Row:
    spec = Spec.read(name, device=device, use_calibration=False, steps=_STEPS, time_limit=3600.0, **options)
    parameter = find_parameter("batch-size", spec.workload)
    known: dict[int, Trace] = {}

    def capturing(asked: Workload) -> Trace:
        # The same value gives the same Trace: what one search captured need not be run again for the other.
        if asked.batch_size not in known:
            known[asked.batch_size] = capture(spec.with_workload(asked))
        return known[asked.batch_size]

    found = search_largest(parameter, range(1, 1 << 20), spec, CONFIDENCE, curve=False, capturing=capturing)
    judge = ConfidentTarget(target_of(spec), CONFIDENCE)
    verdicts: dict[int, bool] = {}

    def fits(batch_size: int) -> bool:
        if batch_size not in verdicts:
            try:
                trace = capturing(parameter.workload(batch_size))
                verdicts[batch_size] = judge.fits(judge.estimate(trace))
            except BadInput:
                verdicts[batch_size] = False
        return verdicts[batch_size]

    start = found.value or 1
    largest = max((one for one in (start, *(int(start * far) for far in _FAR)) if fits(one)), default=0)
    batch_size = largest + 1
    while batch_size <= largest + _IN_A_ROW:
        largest = batch_size if fits(batch_size) else largest
        batch_size += 1
    return Row(
        name,
        device,
        label,
        found.value,
        found.captures,
        not found.unverified,
        largest or None,
        _halving(largest),
        found.seconds,
    )


def _halving(largest: int) -> int:
    """Questions, from 8 upwards and then by halves."""
    low, high, asked = 0, 8, 1
    while high <= largest:
        low, high, asked = high, high * 4, asked + 1
    return asked + (high - low - 1).bit_length()


def _outcome(rows: list[Row]) -> Outcome:
    same = sum(row.found == row.by_captures for row in rows)
    most = max((row.captures for row in rows), default=0)
    mean = sum(row.captures for row in rows) / max(len(rows), 1)
    halving = sum(row.halving for row in rows) / max(len(rows), 1)
    return Outcome(
        "The largest batch that fits, by oomcast.fit and by captures",
        ("job", "GPU", "settings", "found", "captures", "next captured", "by captures", "halving"),
        [
            (
                row.job,
                row.device,
                row.settings,
                str(row.found),
                str(row.captures),
                "yes" if row.verified else "no",
                str(row.by_captures),
                str(row.halving),
            )
            for row in rows
        ],
        [
            Bar("the same batch (at least 40 jobs, all)", f"{same} of {len(rows)}", same == len(rows) >= 40),
            Bar(f"at most {MOST_CAPTURES} captures a job", f"{most}, mean {mean:.1f}", most <= MOST_CAPTURES),
        ],
        (
            f"by captures: from the batch that was found on, every one until {_IN_A_ROW} in a row do not fit, and "
            f"those 10, 25, 50 and 100 % above it; halving with a capture each would take {halving:.1f} a job",
        ),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=default_folder() / "largest-batch", metavar="FOLDER")
    parser.add_argument("--only", metavar="TEXT", default="", help="jobs whose name has this in it")
    options = parser.parse_args()
    jobs = tuple(job for job in JOBS if options.only in job[0])

    def show(row: Row) -> None:
        mark = "=" if row.found == row.by_captures else "≠"
        print(
            f"{row.job} {row.device} {row.settings}: {row.found} {mark} {row.by_captures}, {row.captures} captures, "
            f"{row.seconds:.0f} s{'' if row.verified else ', not verified'}",
            file=sys.stderr,
            flush=True,
        )

    outcome = run(jobs, options.cache, show)
    print_outcome(outcome)
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
