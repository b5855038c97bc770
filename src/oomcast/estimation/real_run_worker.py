"""`python -m oomcast.estimation.real_run_worker`: trains a job on a real GPU and tells what it held.

The request comes as JSON on stdin, the answer goes as JSON to stdout; what the job prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..errors import OomcastError
from ..spec import Spec
from .real_run import memory_of_gpus, memory_of_process

__all__ = ["answer", "main"]


class _Unrecorded:
    """Stands where a capture has its virtual GPU: on a real one nothing is recorded."""

    torch_version = None
    """The installed torch is what runs, and follows no other."""

    def __init__(self) -> None:
        self.ledger = self

    def assume(self, sentence: str) -> None: ...
    def enter(self, *_: Any) -> None: ...
    def label(self, *_: Any) -> None: ...
    def adopt_model(self, *_: Any) -> None: ...
    def job_ends(self) -> None: ...
    def moment(self) -> None: ...

    def goes_on_as_since(self, *_: Any) -> bool:
        return False

    def during(self, *_: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def loss(self) -> AbstractContextManager[None]:
        return nullcontext()


def answer(
    request: Mapping[str, Any],
    process_memory: Callable[[int], int | None] = memory_of_process,
    gpus: Callable[[], Mapping[str, int]] = memory_of_gpus,
) -> dict[str, Any]:
    """Run the job on `cuda:0` and read the counters, or say why not."""
    try:
        import torch

        from ..capture.torch.jobs import load_job
        from ..capture.torch.training import run_training
    except ImportError:
        return {"error": "no torch"}
    if not torch.cuda.is_available():
        return {"error": "no GPU"}
    spec = Spec.from_dict(request)
    workload = spec.workload
    torch.backends.cudnn.benchmark = spec.place.cudnn_benchmark
    recorder: Any = _Unrecorded()
    try:
        run_training(recorder, load_job(workload), workload)
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        return {"error": "out of memory"}
    except OomcastError as error:
        return {"error": str(error)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    properties = torch.cuda.get_device_properties(0)
    uuid = getattr(properties, "uuid", None)
    return {
        "device_name": properties.name,
        "total_memory": properties.total_memory,
        "uuid": f"GPU-{uuid}" if uuid is not None else "",
        "torch": torch.__version__,
        "max_allocated": torch.cuda.max_memory_allocated(),
        "max_reserved": torch.cuda.max_memory_reserved(),
        "reserved_at_end": torch.cuda.memory_reserved(),
        "process_memory": process_memory(os.getpid()),
        "gpus": dict(gpus()),
    }


def main() -> int:
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    with told:
        json.dump(answer(request), told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
