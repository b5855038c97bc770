"""The backend that Dynamo hands its graphs to."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._dynamo.exc import RestartAnalysis
from torch._functorch import config as _functorch_config
from torch._inductor import config as _inductor_config
from torch._inductor.compile_fx import compile_fx

from ..interpreter import with_room
from .findings import Findings
from .generated import in_graph_pool, runnable
from .identity import identity_of
from .kept import KeptCodes
from .lowering import (
    GraphCode,
    inductor_code,
    on_target,
    partitioning_on,
    places_of,
    report_strides,
    source_line,
)
from .target import Target
from .timing import Timing
from .tracing import modes_aside, on_stand_in

if TYPE_CHECKING:
    from ..recorder import Recorder

__all__ = ["InductorBackend"]


_TIMED = (
    "max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning", "benchmark_fusion",
    "triton.multi_kernel",
)  # fmt: skip
"""Settings by which Inductor times kernels on the GPU."""
_TIMED_PRODUCTS = ("max_autotune", "max_autotune_gemm")
_TIMED_LAUNCHES = ("max_autotune", "max_autotune_pointwise", "coordinate_descent_tuning")
_GRAPHS = "triton.cudagraphs"
_BESIDE_MEMORY = ("cpp_wrapper", "benchmark_kernel")
"""In which language the code is written, and what it is tried out with: its buffers are the same."""


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
        timing: Timing,
        before_forward: Callable[[], None],
    ) -> None:
        self.config: dict[str, Any] = torch._TorchCompileInductorWrapper(mode, options, dynamic).config
        self._dynamic = dynamic
        self._target = target
        self._recorder = recorder
        self._findings = findings
        self._timing = timing
        self._before_forward = before_forward
        self._kept = KeptCodes()

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
                inner: Any = functools.partial(self._inner, self._asked(), self._recorder.scope.user_line())
                compiled: Any = compile_fx(graph, inputs, inner_compile=inner, config_patches=self._taken())
                return compiled
        except RestartAnalysis:
            raise  # Dynamo is to trace once more: with sizes that it took for numbers, for example
        except Exception as error:
            return self._findings.eager(_where(as_it_was), error, as_it_was.forward)

    def _asked(self) -> frozenset[str]:
        """What of the job's settings needs a GPU: set for this region, or for the process by `torch._inductor.config`.

        It is told once it is known that something is compiled with them.
        """
        with _inductor_config.patch(self.config):
            asked = frozenset(name for name in (*_TIMED, _GRAPHS) if getattr(_inductor_config, name))
        if asked.intersection(_TIMED):
            self._target.tell(
                "torch.compile: kernels that would be timed on the GPU are not: torch's own are taken; of the timing "
                "runs, the operands of matmuls are counted"
            )
        if _GRAPHS in asked:
            self._target.tell(
                "torch.compile: CUDA graphs (reduce-overhead): what compiled code allocates comes from a pool of its "
                "own, which nothing else uses"
            )
        return asked

    def _taken(self) -> dict[str, Any]:
        return {**self.config, **dict.fromkeys((*_TIMED, _GRAPHS, *_BESIDE_MEMORY), False)}

    def _inner(
        self, asked: frozenset[str], called_at: str, graph: fx.GraphModule, inputs: Sequence[Any], **options: Any
    ) -> Callable[[list[Any]], Any]:
        """The inner compiler: of a forward, later of its backward. `called_at` is where the job calls the region."""
        is_backward, is_inference = options.get("is_backward", False), options.get("is_inference", False)
        as_it_was = _copy(graph)
        try:
            # A backward is compiled when it is first called, outside of all that was in place for the forward.
            with (
                self._findings.compiling(),
                modes_aside(),
                self._target.compiling(),
                _inductor_config.patch(self._taken()),
            ):
                code = self._lowered(graph, inputs, is_backward=is_backward, is_inference=is_inference)
            time_launch = functools.partial(self._timing.launch, thoroughly=bool(asked.intersection(_TIMED_LAUNCHES)))
            run = runnable(code, self._recorder, self._target.device_type, called_at, time_launch)
        except Exception as error:
            if not is_backward:
                raise  # the region as a whole: its graph as Dynamo traced it holds what eager code holds
            on_stand_in(as_it_was)
            return _boxed(self._findings.eager(_where(as_it_was), error, fx.Interpreter(as_it_was).boxed_run))
        if asked.intersection(_TIMED_PRODUCTS):
            self._timing.products(code.products)
        if _GRAPHS in asked:
            run = in_graph_pool(run, options.get("static_input_idxs", ()), self._recorder)
        run = _boxed(self._findings.compiled(run))
        return run if is_backward or is_inference else self._as_forward(run)

    def _lowered(self, graph: fx.GraphModule, inputs: Sequence[Any], **kind: bool) -> GraphCode:
        """Kept from an earlier job, or by Inductor."""
        inputs = on_target(graph, inputs, self._target.device_type)
        of_nodes = places_of(graph)
        places = (("", ""), *dict.fromkeys(place for place in of_nodes if place != ("", "")))
        known = identity_of(graph, inputs, of_nodes, (*kind.items(), repr(self._target.gpu)))
        code = self._kept.get(known, places) if known else None
        if code is None:
            code = with_room(inductor_code, graph, inputs, **kind)
            if known:
                self._kept.put(known, places, code)
        report_strides(code.strides, inputs)
        return code

    def _as_forward(self, run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """A compiled function may call a model that nobody has seen called: it was traced."""

        def forward(args: list[Any]) -> Any:
            self._before_forward()
            return run(args)

        return _boxed(forward)


def _copy(graph: fx.GraphModule) -> fx.GraphModule:
    return fx.GraphModule(graph, copy.copy(graph.graph))


def _boxed(call: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """Called with a list that it empties, as AOTAutograd has it."""
    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _where(graph: fx.GraphModule) -> str:
    """The first line of the job's code that the graph was traced from."""
    lines = (source_line(node.meta.get("stack_trace") or "") for node in graph.graph.nodes)
    return next((line for line in lines if line), "")
