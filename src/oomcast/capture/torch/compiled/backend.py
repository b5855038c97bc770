"""The backend that Dynamo hands its graphs to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._functorch import config as _functorch_config
from torch._inductor import config as _inductor_config
from torch._inductor.compile_fx import compile_fx

from .findings import Findings
from .generated import runnable
from .lowering import inductor_code, partitioning_on, source_line
from .target import Target
from .tracing import modes_aside, on_stand_in

if TYPE_CHECKING:
    from ..recorder import Recorder

__all__ = ["InductorBackend"]


_TUNED = "kernels that would be timed on the GPU are not: torch's own are taken, and the timing runs are not counted"
_NOT_FOLLOWED = {
    "triton.cudagraphs": "the memory pools of CUDA graphs (reduce-overhead) are not followed",
    "max_autotune": _TUNED,
    "max_autotune_gemm": _TUNED,
    "max_autotune_pointwise": _TUNED,
    "coordinate_descent_tuning": _TUNED,
}
"""Settings of Inductor that need a GPU, and what is told instead."""


class InductorBackend:
    """Inductor for the virtual GPU, with a mode and options as the job names them.

    Two of the same settings are equal: Dynamo then takes what it compiled for one module for another that is alike.
    """

    compiler_name = "inductor"

    def __init__(
        self,
        mode: str | None,
        options: Any,
        dynamic: bool | None,
        target: Target,
        recorder: Recorder,
        findings: Findings,
    ) -> None:
        asked = torch._TorchCompileInductorWrapper(mode, options, dynamic).config
        for name, sentence in _NOT_FOLLOWED.items():
            if asked.get(name):
                target.tell(f"torch.compile: {sentence}")
        self.config: dict[str, Any] = {name: value for name, value in asked.items() if name not in _NOT_FOLLOWED}
        self._dynamic = dynamic
        self._target = target
        self._recorder = recorder
        self._findings = findings

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InductorBackend) and self._settings() == other._settings()

    def _settings(self) -> tuple[Any, ...]:
        return (self.config, self._dynamic, self._target, id(self._recorder))

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.config)), self._dynamic))

    def __call__(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        on_stand_in(graph)
        as_it_was = _copy(graph)
        try:
            with (
                modes_aside(),
                self._target.compiling(),
                partitioning_on(self._target.device_type),
                _functorch_config.patch(enable_autograd_cache=False),
            ):
                inner: Any = self._inner
                compiled: Any = compile_fx(graph, inputs, inner_compile=inner, config_patches=self.config)
                return compiled
        except Exception as error:
            return self._findings.eager(_where(as_it_was), error, as_it_was.forward)

    def _inner(self, graph: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Callable[[list[Any]], Any]:
        is_backward, is_inference = options.get("is_backward", False), options.get("is_inference", False)
        as_it_was = _copy(graph)
        try:
            # A backward is compiled when it is first called, outside of all that was in place for the forward.
            with modes_aside(), self._target.compiling(), _inductor_config.patch(self.config):
                code = inductor_code(
                    graph, inputs, self._target.device_type, is_backward=is_backward, is_inference=is_inference
                )
        except Exception as error:
            on_stand_in(as_it_was)
            return _boxed(self._findings.eager(_where(as_it_was), error, fx.Interpreter(as_it_was).run))
        return runnable(code, self._recorder, self._target.device_type)


def _copy(graph: fx.GraphModule) -> fx.GraphModule:
    return fx.GraphModule(graph, copy.copy(graph.graph))


def _boxed(call: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """Called with a list that it empties, as AOTAutograd has it."""

    def run(args: list[Any]) -> Any:
        taken = list(args)
        args.clear()
        return call(*taken)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _where(graph: fx.GraphModule) -> str:
    """The first line of the job's code that the graph was traced from."""
    lines = (source_line(node.meta.get("stack_trace") or "") for node in graph.graph.nodes)
    return next((line for line in lines if line), "")
