"""A step's bytes as oomcast sees them, beside what MXNet allocates for it on this machine's CPU.

MXNet's profiler counts the bytes of its storage at every allocation and every free. So its highest value over three
steps is what the job held at most. What is left when all arrays are gone is scratch of CPU kernels, which a GPU does
not have; it is taken off. Operators run one after another, in the order in which they are called, as on a GPU's one
stream, and by MXNet's own kernels: oneDNN's keep weights in layouts of their own.
"""

from __future__ import annotations

import atexit
import gc
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from oomcast.capture.job_files import JobFunctions
from oomcast.spec import Workload
from oomcast.trace.builder import peak_of

__all__ = ["ENVIRONMENT", "figures_of_step"]

ENVIRONMENT = {
    "MXNET_ENGINE_TYPE": "NaiveEngine",
    "MXNET_MKLDNN_ENABLED": "0",
    "MXNET_USE_MKLDNN_RNN": "0",
    "MXNET_CPU_TEMP_COPY": "1",
    "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0",
    "MXNET_SUBGRAPH_BACKEND": "NONE",
}
"""For the process, before MXNet is loaded."""

_STEPS = 3
_COUNTED = re.compile(rb'"Memory: cpu/0":\s*(\d+)')


class _Job:
    """A job in name only: its functions are given by hand."""

    @staticmethod
    def model() -> None: ...

    @staticmethod
    def batch(batch_size: int) -> None: ...


def figures_of_step(
    model: Callable[[], Any], batch: Any, *, loss: Callable[[Any, Any], Any] | None = None, optimizer: str = "adam"
) -> dict[str, Any]:
    """`estimated` and `measured`: the most bytes at a time in three training steps.

    `model` builds a Gluon block, or a Symbol that ends in a loss named `softmax`; `batch` is (x, y) of numpy arrays;
    `loss(model, batch)` is the job's own, if any.
    """
    from oomcast.capture.mxnet.run import traced

    workload = Workload.create(_Job, optimizer=optimizer, steps=_STEPS)
    job = JobFunctions(model, lambda: batch, loss, None)
    trace = traced(job, workload, on_gpu=False)
    return {"estimated": peak_of(trace), "measured": _most_in_steps(model, batch, loss, optimizer)}


def _most_in_steps(model: Callable[[], Any], batch: Any, loss: Callable[[Any, Any], Any] | None, optimizer: str) -> int:
    import mxnet as mx

    missing = [name for name, value in ENVIRONMENT.items() if os.environ.get(name) != value]
    if missing:
        raise RuntimeError(f"{missing[0]} must be set before MXNet is loaded (check.ENVIRONMENT)")
    path = _profile()
    before = path.stat().st_size if path.exists() else 0
    mx.profiler.set_state("run")
    on_host = _train(model, batch, loss, optimizer)
    gc.collect()
    mx.nd.waitall()
    mx.profiler.set_state("stop")
    mx.profiler.dump(finished=False)
    # A second profile is appended to the first, so that the file as a whole is no JSON.
    counted = [int(value) for value in _COUNTED.findall(path.read_bytes()[before:])]
    return max(counted) - counted[-1] - on_host


@cache
def _profile() -> Path:
    """The file that MXNet writes its profile to: it can be named once in a process."""
    import mxnet as mx

    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "profile.json"
    switches = dict.fromkeys(("profile_symbolic", "profile_imperative", "profile_api"), False)
    mx.profiler.set_config(profile_memory=True, filename=str(path), **switches)
    return path


def _train(model: Callable[[], Any], batch: Any, loss: Callable[[Any, Any], Any] | None, optimizer: str) -> int:
    """The loop as people write it: the variables of one step live until the next one sets them anew.

    The result is what would lie on the host if the step ran on a GPU.
    """
    import mxnet as mx

    from oomcast.capture.mxnet.models import default_loss
    from oomcast.capture.mxnet.run import BY_NAME

    net = model()
    name, options = BY_NAME[optimizer]
    if isinstance(net, mx.sym.Symbol):
        return _train_module(net, batch, name, dict(options))
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), name, dict(options))
    for _ in range(_STEPS):
        x, y = (mx.nd.array(part, dtype=part.dtype) for part in batch)
        with mx.autograd.record():
            if loss is not None:
                value = loss(net, (x, y))
            else:
                output = net(x)
                value = default_loss(output.shape, (y.shape, y.dtype.__name__))(output, y)
        value.backward()
        trainer.step(x.shape[0])
    return 0


def _train_module(symbol: Any, batch: Any, optimizer: str, options: dict[str, float]) -> int:
    """`mx.mod.Module` keeps a copy of the weights on the host, and the batch is there before it is copied."""
    import mxnet as mx

    x, y = (mx.nd.array(part, dtype=part.dtype) for part in batch)
    module = mx.mod.Module(symbol, context=mx.cpu())
    module.bind([("data", x.shape)], [("softmax_label", y.shape)])
    module.init_params()
    module.init_optimizer(kvstore=None, optimizer=optimizer, optimizer_params=options)
    for _ in range(_STEPS):
        module.forward_backward(mx.io.DataBatch([x], [y]))
        module.update()
    arguments, _, states = symbol.infer_shape(data=x.shape, softmax_label=y.shape)
    return sum(4 * math.prod(shape) for shape in (*arguments, *states))  # the batch among them
