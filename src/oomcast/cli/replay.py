"""`oomcast replay FILE`: a recorded CUDA memory snapshot through the simulated allocator."""

from __future__ import annotations

import argparse
import os
from typing import Any

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "replay",
        help="replay a recorded CUDA memory snapshot and compare reserved bytes",
        description="Replay a snapshot of torch.cuda.memory._dump_snapshot() (read without executing it) or its JSON "
        "form, and compare the simulated with the recorded reserved bytes. With --alloc-conf: what if?",
    )
    parser.add_argument("file", metavar="FILE", help="snapshot.pickle, or .json / .json.gz")
    parser.add_argument("--alloc-conf", metavar="SETTINGS", help="other allocator settings, as PYTORCH_CUDA_ALLOC_CONF")
    parser.add_argument("--gpu", type=int, metavar="N", help="which GPU of a snapshot with several")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..report import render_replay, replay_as_json
    from ..simulate import AllocatorSettings, read_snapshot, replay
    from .terminal import print_json, terminal

    settings = AllocatorSettings.parse(options.alloc_conf) if options.alloc_conf else None
    result = replay(read_snapshot(options.file, device=options.gpu), settings)
    if options.json:
        print_json(replay_as_json(result))
    else:
        terminal().print(render_replay(result, os.path.basename(options.file)))
    return 0
