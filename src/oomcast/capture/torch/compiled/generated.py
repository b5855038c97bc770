"""Inductor's code for a graph, run on the virtual GPU: what it allocates, reuses and frees is what happens there.

The code allocates buffers, launches kernels, gives buffers new names and deletes them. Its plan is followed
(`steps.py`); code without one is Python that torch has just written in this process, and is run as such. Kernels do
nothing here; allocations are the virtual GPU's; operators that Inductor leaves to torch (matmuls, convolutions,
attention) are run, so that they take their outputs and workspaces as they always do.
"""

from __future__ import annotations

import ast
import cmath
import ctypes
import functools
import math
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._inductor.codegen import memory_planning
from torch._inductor.select_algorithm import extern_kernels
from torch._subclasses.fake_tensor import FakeTensor

from ....trace import Phase
from ..devices import is_virtual, to_real_device
from ..recorder import Recorder
from .lowering import GraphCode
from .plan import kernel_of
from .steps import followed

__all__ = ["in_graph_pool", "runnable"]


TimeLaunch = Callable[[str, str], Callable[[], None] | None]
"""Given a digest of a kernel's source and how it is launched: what is done when it is first launched."""


def runnable(
    code: GraphCode, recorder: Recorder, device_type: str, called_at: str, time_launch: TimeLaunch
) -> Callable[[list[Any]], Any]:
    """`call(args)` of the code; it empties the list that it is given, as Inductor's does.

    What torch's own code makes is the line's `called_at`, where the job calls the region.
    """
    host = _VirtualHost(code, recorder, device_type, called_at)
    if code.plan is not None:
        host.kernels = {name: _Kernel(time_launch(*kernel)) for name, kernel in code.plan.kernels.items()}
        call = followed(code.plan, host)
    else:
        call = _as_python(code, host, recorder, _Kernels(time_launch))

    def run(args: list[Any]) -> Any:
        try:
            return call(args)
        finally:
            recorder.scope.pinned = None

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _as_python(code: GraphCode, host: _VirtualHost, recorder: Recorder, built: _Kernels) -> Callable[[list[Any]], Any]:
    """Code that has no plan: run as torch has just written it."""
    module = _WithPlaces().visit(ast.parse(code.source))
    kept = [statement for statement in module.body if _is_kept(statement)]
    module.body = kept
    names = _namespace(code, host, recorder, built)
    exec(compile(ast.fix_missing_locations(module), "<inductor>", "exec"), names)
    call: Callable[[list[Any]], Any] = names["call"]
    return call


_GRAPH_POOL = 1 << 15
"""Stands for the pool that all CUDA graphs of compiled code share, as a stream does (`graphs.py`)."""


def in_graph_pool(
    call: Callable[[list[Any]], Any], static: Sequence[int], recorder: Recorder
) -> Callable[[list[Any]], Any]:
    """The same code as CUDA graphs run it: its blocks come from the graphs' own pool.

    Inputs whose address may change from call to call are copied to one that does not
    (torch/_inductor/cudagraph_trees.py, `CUDAGraphNode._allocate_and_copy_recording_inputs`); parameters, and what a
    forward saved, stay where they are.
    """
    fixed: dict[tuple[Any, ...], Any] = {}

    def run(args: list[Any]) -> Any:
        before, recorder.ledger.stream = recorder.ledger.stream, _GRAPH_POOL
        try:
            for place, value in enumerate(args):
                if place not in static and isinstance(value, FakeTensor) and is_virtual(value.fake_device):
                    form = (place, tuple(value.shape), value.stride(), value.dtype)
                    if form not in fixed:
                        options = {"dtype": value.dtype, "device": value.fake_device}
                        with recorder.ledger.during(Phase.COMPILING):
                            fixed[form] = recorder.run_fake(_EMPTY_STRIDED, (), (value.shape, value.stride()), options)
                            recorder.hold("inductor: a graph's input", fixed[form])
            return call(args)
        finally:
            recorder.ledger.stream = before

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


_OURS = frozenset({
    "empty_strided_cpu", "empty_strided_cpu_pinned", "empty_strided_cuda", "empty_strided_xpu", "empty_strided_mtia",
    "reinterpret_tensor", "async_compile", "get_raw_stream",
})  # fmt: skip
"""Names of the code's header that stand for something else here."""
_CHECK = re.compile(r"\bassert_\w+(?=\()")
"""Functions that compare tensors with what the code was made for: which there are changes from torch to torch."""


def _is_kept(statement: ast.stmt) -> bool:
    """Its imports (Triton's among them) and its benchmark are left out; of its header, what is replaced here."""
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.If)):
        return False
    if isinstance(statement, ast.FunctionDef):
        return not statement.name.startswith(("benchmark_", "get_args"))
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id not in _OURS and not statement.targets[0].id.startswith("assert_")
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return "async_compile" not in ast.dump(statement.value.func)
    return True


class _WithPlaces(ast.NodeTransformer):
    """Before each statement that names a new buffer, it is said which, so that it gets its module and source line."""

    def visit_Assign(self, node: ast.Assign) -> Any:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id.startswith("buf") and isinstance(node.value, ast.Call):
            said = ast.Call(ast.Name("at_buffer", ast.Load()), [ast.Constant(target.id)], [])
            return [ast.Expr(said), node]
        return node


class _Kernels:
    """`async_compile`: each kernel by its name, and none is built."""

    def __init__(self, time_launch: TimeLaunch) -> None:
        self._time_launch = time_launch

    def triton(self, name: str, source: str, **options: Any) -> _Kernel:
        return _Kernel(self._time_launch(*kernel_of(source)))

    def __getattr__(self, kind: str) -> Any:
        return lambda *args, **options: _Kernel()

    def wait(self, names: Any) -> None: ...


class _Kernel:
    def __init__(self, before_first: Callable[[], None] | None = None) -> None:
        self._before_first = before_first

    def __call__(self, *args: Any, **options: Any) -> None: ...

    def run(self, *args: Any, **options: Any) -> None:
        if self._before_first is not None:
            self._before_first()
            self._before_first = None

    def __getitem__(self, grid: Any) -> _Kernel:
        return self


_EMPTY_STRIDED = torch.ops.aten.empty_strided.default


def _nothing(*args: Any, **options: Any) -> None: ...


class _VirtualHost:
    """Buffers of the virtual GPU, each with its kernel, its module and its source line."""

    def __init__(self, code: GraphCode, recorder: Recorder, device_type: str, called_at: str) -> None:
        self._code = code
        self._recorder = recorder
        self._host_is_target = device_type == "cpu"
        self._called_at = called_at
        self._buffer = ""
        self.kernels: dict[str, _Kernel] = {}

    def at_buffer(self, name: str) -> None:
        self._buffer = name
        module, line = self._code.made_for.get(name, ("", ""))
        self._recorder.scope.pinned = module, line or self._called_at

    def empty(self, where: str, size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        if where == "pinned" or (where == "host" and not self._host_is_target):
            return torch.empty_strided(size, stride, dtype=dtype)
        options = {"dtype": dtype, "device": to_real_device("cuda")}
        tensor: FakeTensor = self._recorder.run_fake(_EMPTY_STRIDED, (), (size, stride), options)
        self._recorder.hold(self._code.made_by.get(self._buffer, "inductor"), tensor)
        return tensor

    def device(self, kind: str, index: int | None) -> torch.device:
        return to_real_device(torch.device(kind) if index is None else torch.device(kind, index))

    def launch(self, kernel: str) -> None:
        self.kernels[kernel].run()


def _namespace(code: GraphCode, host: _VirtualHost, recorder: Recorder, built: _Kernels) -> dict[str, Any]:
    def reinterpret(tensor: torch.Tensor, size: Any, stride: Any, offset: int) -> torch.Tensor:
        return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)

    return {
        **code.constants,
        "at_buffer": host.at_buffer,
        "empty_strided_cuda": functools.partial(host.empty, "gpu"),
        "empty_strided_cpu": functools.partial(host.empty, "host"),
        "empty_strided_cpu_pinned": functools.partial(host.empty, "pinned"),
        "reinterpret_tensor": reinterpret,
        **dict.fromkeys(_CHECK.findall(code.source), _nothing),
        "async_compile": built,
        "get_raw_stream": lambda device: recorder.stream,
        "device": lambda *args, **options: to_real_device(torch.device(*args, **options)),
        "extern_kernels": extern_kernels,
        "torch": torch,
        "empty_strided": torch.empty_strided,
        "run_intermediate_hooks": _nothing,
        "align": vars(memory_planning)["_align"],
        "math": math,
        "random": random,
        "inf": math.inf,
        "nan": math.nan,
        "nanj": cmath.nanj,
        "c_void_p": ctypes.c_void_p,
        "c_long": ctypes.c_long,
        "c_int": ctypes.c_int,
    }
