"""Lets Dynamo trace a job's code on the virtual GPU."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import torch
import torch._dynamo.utils as _dynamo_utils
from torch import fx
from torch._C._dynamo.eval_frame import _FrameAction as FrameAction
from torch._dynamo import compiled_autograd as _compiled_autograd
from torch._dynamo import convert_frame as _convert_frame
from torch._dynamo import trace_rules
from torch._dynamo.exc import InternalTorchDynamoError, Unsupported
from torch._dynamo.variables import builder as _builder
from torch._dynamo.variables import torch_function as _torch_function
from torch._dynamo.variables.optimizer import OptimizerVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer as _optimizer
from torch.utils._python_dispatch import _disable_current_modes

from ....trace import builder as trace_builder
from ..devices import HOST, to_real_device, to_shown_device
from ..functions import VirtualDevice
from ..interpreter import with_room
from ..patches import Patches
from .findings import Findings

__all__ = ["let_dynamo_trace", "make_tables", "modes_aside", "on_stand_in"]


def make_tables() -> None:
    """Dynamo's rules for torch's functions, by function: they are to be those of torch itself."""
    trace_rules.get_torch_obj_rule_map()
    TorchInGraphFunctionVariable._get_handlers()


def let_dynamo_trace(patches: Patches, functions: VirtualDevice, findings: Findings) -> None:
    """Until the patches are taken back, Dynamo does not see the virtual GPU's modes, and sees `cuda` where it is."""
    _skip_our_files(patches)
    _hide_modes(patches, findings)
    _translate_devices(patches, functions)
    _take_fakes_for_tensors(patches)
    _make_states_on_gpu(patches, functions)
    _leave_autograd_as_it_is(patches, functions)


_TRACED = ("cuda.py", "amp.py", "answers.py")
"""Stand in for functions of torch that code calls; short, and answered as Python."""


_OURS = str(Path(__file__).parents[1])


def _skip_our_files(patches: Patches) -> None:
    """Where a compiled region calls torch eagerly, the virtual GPU's own code runs: it is not compiled, nor what it
    calls of Python's own."""
    ours = [str(path) for path in Path(_OURS).rglob("*.py") if path.name not in _TRACED]
    ours += [str(Path(trace_builder.__file__)), weakref.__file__, logging.__file__]
    patches.set(trace_rules, "SKIP_DIRS", [*trace_rules.SKIP_DIRS, *ours])
    before = trace_rules.SKIP_DIRS_RE
    trace_rules._recompile_re()
    compiled, trace_rules.SKIP_DIRS_RE = trace_rules.SKIP_DIRS_RE, before
    patches.set(trace_rules, "SKIP_DIRS_RE", compiled)


@contextlib.contextmanager
def modes_aside() -> Iterator[None]:
    """Without the modes of the virtual GPU, and without the job's."""
    functions = _dynamo_utils.get_torch_function_mode_stack()
    _dynamo_utils.clear_torch_function_mode_stack()
    try:
        with _disable_current_modes():
            yield
    finally:
        _dynamo_utils.set_torch_function_mode_stack(functions)


class _Whole:
    """A function as a whole, where Dynamo names no line of it."""

    def __init__(self, code: CodeType) -> None:
        self.filename, self.lineno = code.co_filename, code.co_firstlineno


def _what_is_left(code: CodeType, error: Unsupported) -> str:
    strategy = getattr(error, "frame_exec_strategy", None)
    if strategy is not None and strategy.recursive_action == FrameAction.RUN_ONLY:
        # Compiled for as many cases as torch keeps: where none of these is at hand, nothing beneath is compiled either.
        return f" ({code.co_name} and what it calls run eagerly in all further cases)"
    # Within a loop, for example: the function cannot be cut in two there.
    return f" ({code.co_name} as a whole is not compiled; what it calls is)"


def _hide_modes(patches: Patches, findings: Findings) -> None:
    compile_frame, symbolic = _convert_frame._compile, _torch_function.SymbolicTorchFunctionState.__init__

    def aside(code: CodeType, *args: Any, **kwargs: Any) -> Any:
        known = len(_dynamo_utils.graph_break_reasons)
        try:
            with findings.compiling(), _disable_current_modes():
                return with_room(compile_frame, code, *args, **kwargs)
        except InternalTorchDynamoError as error:
            findings.untraceable(f"{code.co_filename}:{code.co_firstlineno}", error)
            raise
        except Unsupported as error:
            broke(error.real_stack or [_Whole(code)], str(error), _what_is_left(code, error))
            raise
        finally:
            for broken in _dynamo_utils.graph_break_reasons[known:]:
                broke(broken.user_stack, broken.reason)

    def broke(stack: Any, reason: str, then: str = "") -> None:
        place = stack[-1] if stack else None
        # Dynamo stops at the virtual GPU's hooks around an optimizer's step: without them, it would not.
        if not (_OURS in reason and place and place.filename == _optimizer.__file__):
            findings.broke(f"{place.filename}:{place.lineno}" if place else "?", reason.splitlines()[0] + then)

    def without_ours(state: Any, py_stack: Any, *args: Any, **kwargs: Any) -> None:
        symbolic(state, [mode for mode in py_stack if not isinstance(mode, VirtualDevice)], *args, **kwargs)

    patches.set(_convert_frame, "_compile", aside)
    patches.set(_torch_function.SymbolicTorchFunctionState, "__init__", without_ours)


_FROM_PYTHON_DATA = (torch.tensor, torch.as_tensor, torch._refs.tensor)
"""Read Python data. torch knows what they make to the value, and works it out on the host, whatever device is named: a
tensor without values takes its place on the stand-in."""


def _translate_devices(patches: Patches, functions: VirtualDevice) -> None:
    """Operators are run on the stand-in; what Dynamo tells code about a tensor is the GPU that it stands for."""
    run_node, specialize = _dynamo_utils.run_node, TensorVariable.specialize

    def run_on_stand_in(tracer: Any, node: fx.Node, args: Any, kwargs: Any, nnmodule: Any) -> Any:
        with functions:
            if node.target not in _FROM_PYTHON_DATA or kwargs.get("device") is None:
                return run_node(tracer, node, args, kwargs, nnmodule)
            made = run_node(tracer, node, args, kwargs, nnmodule)
            return torch.empty(made.shape, dtype=made.dtype, device=kwargs["device"])

    def shown(value: torch.Tensor) -> dict[str, Any]:
        properties = specialize(value)
        return {**properties, "device": to_shown_device(properties["device"])}

    patches.set(_dynamo_utils, "run_node", run_on_stand_in)
    patches.set(TensorVariable, "specialize", staticmethod(shown))


def _take_fakes_for_tensors(patches: Patches) -> None:
    """The classes of the virtual GPU's parameters (`parameters.py`) are, to Dynamo, what they are to code."""
    builder = _builder.VariableBuilder
    dispatch, subclass_of = builder._type_dispatch, _builder.infer_subclass_type

    class _Dispatch(dict[Any, Any]):
        def get(self, kind: Any, default: Any = None) -> Any:
            known = super().get(kind, default)
            return builder.wrap_tensor if known is default and issubclass(kind, FakeTensor) else known

    def plain_if_fake(value: Any) -> Any:
        return None if isinstance(value, FakeTensor) else subclass_of(value)

    patches.set(builder, "_type_dispatch", classmethod(lambda cls: _Dispatch(dispatch())))
    patches.set(_builder, "infer_subclass_type", plain_if_fake)


def _make_states_on_gpu(patches: Patches, functions: VirtualDevice) -> None:
    """While it traces an optimizer's step, Dynamo has the optimizer make its states: they are the job's."""
    call_method = OptimizerVariable.call_method

    def with_states(variable: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        make = getattr(variable.value, "_init_group", None)
        if name != "_init_group" or make is None:
            return call_method(variable, tx, name, args, kwargs)

        def on_gpu(*given: Any, **options: Any) -> Any:
            with functions.recorder, functions:
                return make(*given, **options)

        variable.value._init_group = on_gpu
        try:
            return call_method(variable, tx, name, args, kwargs)
        finally:
            del variable.value._init_group

    patches.set(OptimizerVariable, "call_method", with_states)


def _leave_autograd_as_it_is(patches: Patches, functions: VirtualDevice) -> None:
    """Compiled autograd takes the graph from autograd's own C++ code, which ends the process when it meets the
    stand-ins of the virtual GPU."""

    @contextlib.contextmanager
    def told(*args: Any, **options: Any) -> Iterator[None]:
        functions.recorder.ledger.assume(
            "torch.compile: compiled autograd is not followed: backward is taken as AOTAutograd compiles it, region by "
            "region"
        )
        yield

    patches.set(_compiled_autograd, "_enable", told)


def on_stand_in(graph: fx.GraphModule) -> None:
    """Devices that a graph names, translated as `functions.py` does it for code that runs."""
    for node in list(graph.graph.nodes):
        if node.op == "call_function":
            node.args = fx.node.map_aggregate(node.args, _device_on_stand_in)
        if node.op == "call_function" and node.target in _FROM_PYTHON_DATA and node.kwargs.get("device") is not None:
            made = node.meta["example_value"]
            node.target, node.args = torch.empty, (tuple(made.shape),)
            node.kwargs = {"dtype": made.dtype, "device": node.kwargs["device"]}
        if node.op == "call_method" and node.target in ("cuda", "cpu"):
            device = HOST if node.target == "cpu" else to_real_device((*node.args[1:], "cuda")[0])
            node.target, node.args, node.kwargs = "to", (node.args[0], device), {}
        elif node.op == "call_method" and node.target == "to":
            node.args = (node.args[0], *(_on_stand_in(argument) for argument in node.args[1:]))
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": _on_stand_in(node.kwargs["device"])}
    graph.recompile()


def _device_on_stand_in(value: Any) -> Any:
    return to_real_device(value) if isinstance(value, torch.device) else value


def _on_stand_in(value: Any) -> Any:
    return to_real_device(value) if isinstance(value, (str, torch.device)) else value
