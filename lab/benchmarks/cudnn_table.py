"""How well the distilled table agrees with cuDNN on networks that it was not made from.

    python -m lab bench cudnn_table [--architecture sm_80 ...] [--questions 3000] [--seed 1]

Needs nvidia-cudnn-cu12, no GPU. Each line is one architecture, dtype and layout: the share of convolutions whose
workspace the table gives within 5 % of cuDNN's, by direction, then that share if 1 MiB is allowed too, and the bytes of
all workspaces by the table as a share of cuDNN's. Batch sizes are drawn anew with every seed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import time
from collections import Counter

from oomcast.devices import find_gpu
from oomcast.simulate.cudnn.library import Library, LibraryError
from oomcast.simulate.cudnn.table import shipped_table

from ..cudnn import distill


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--architecture", nargs="*", help="sm_80 …; default: all")
    parser.add_argument("--questions", type=int, default=3000, help="at most so many for each line")
    parser.add_argument("--seed", default="bench")
    options = parser.parse_args()
    held_out = json.loads(gzip.decompress(distill.LAYERS.read_bytes()))["held_out"]
    library, table = Library(), shipped_table()
    print(
        f"{len(held_out['models'])} networks, {len(held_out['layers'])} layers; cuDNN {library.version}; {table.name}"
    )
    print(f"{'':32}{'fprop':>8}{'dgrad':>8}{'wgrad':>8}{'all':>8}{'or 1 MiB':>10}{'bytes':>8}{'asked':>8}{'s':>6}")
    for part in distill.parts(2):
        if options.architecture and f"sm_{part.architecture}" not in options.architecture:
            continue
        begun = time.monotonic()
        gpu = find_gpu(distill.EXAMPLES[part.architecture])
        asked = distill.held_out_queries(part, held_out["layers"], gpu)
        asked = random.Random(options.seed).sample(asked, min(options.questions, len(asked)))
        device = json.dumps(gpu.cudnn_properties())
        right: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for query in asked:
            try:
                truth = library.first(device, part.tf32, query)
            except LibraryError:
                continue
            answer = table.ask(gpu, query, tf32=part.tf32)
            said = answer.plans[0] if answer is not None else 0
            off = abs(said - truth)
            for key, limit in ((query.kind, 0), ("all", 0), ("or 1 MiB", 2**20)):
                count[key] += 1
                right[key] += off <= max(0.05 * truth, limit)
            right["bytes"] += said
            count["bytes"] += truth
        shares = [right[key] / max(count[key], 1) for key in ("fprop", "dgrad", "wgrad", "all", "or 1 MiB", "bytes")]
        name = part.name.removesuffix("-all")
        columns = "".join(f"{share:{width}.3f}" for share, width in zip(shares, (8, 8, 8, 8, 10, 8), strict=True))
        print(f"{name:32}{columns}{count['all']:8}{time.monotonic() - begun:6.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
