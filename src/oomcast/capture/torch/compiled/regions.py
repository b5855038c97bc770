"""`torch.compile` on the virtual GPU: Dynamo traces the job's code, and Inductor's code for the target is run.

Dynamo and AOTAutograd are the installed torch's, and see the job's fake tensors. While they trace, the virtual GPU's
own modes and module hooks step aside, and code that asks for a tensor's device is told `cuda`, as everywhere.
"""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ....devices import Gpu
from ..functions import VirtualDevice
from ..libraries import as_compiled
from ..patches import Patches
from .findings import Findings

if TYPE_CHECKING:
    from ..machine import VirtualGpu
    from .backend import InductorBackend
    from .timing import Timing

__all__ = ["CompiledRegions", "other_torch"]

_OLDEST, _NEWEST = (2, 12), (2, 15)
"""Versions of torch whose Dynamo, AOTAutograd and Inductor were tried here: what is replaced in them is private, and
changes from one version to the next."""


class CompiledRegions:
    """What a job compiles, and what of it could not be followed."""

    def __init__(self, patches: Patches, virtual: VirtualGpu, functions: VirtualDevice) -> None:
        self._patches = patches
        self._virtual = virtual
        self._functions = functions
        self._compile = torch.compile
        self._is_prepared = False
        self._timing: Timing | None = None
        self.findings = Findings(virtual.ledger)
        self.gpu: Gpu | None = virtual.gpu
        """What is compiled for; None is the host itself, for comparisons with a real run there."""
        self.eager_because = ""
        """Why nothing is compiled here: the job then runs as eager code, and is told so. Empty: it is compiled."""

        self.around_modules: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda call: call
        """Given how a compiled module is called, how it is to be called."""

    @property
    def is_used(self) -> bool:
        """Whether the job has compiled anything."""
        return self._is_prepared

    def compile(
        self,
        model: Any = None,
        *,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        backend: Any = "inductor",
        mode: str | None = None,
        options: Any = None,
        disable: bool = False,
        **others: Any,
    ) -> Any:
        """`torch.compile`."""
        told = {"fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "mode": mode, "options": options}
        if model is None:
            return lambda function: self.compile(function, **told, disable=disable, **others)
        if disable:
            return model
        if backend != "inductor":
            name = backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)
            self._virtual.ledger.assume(
                f"torch.compile with the backend {name}: the memory of eager execution is taken"
            )
            return model
        if isinstance(model, nn.Module):
            return self._compiled(model, fullgraph, dynamic, mode, options)
        return self._when_called(model, functools.partial(self._compiled, model, fullgraph, dynamic, mode, options))

    def _compiled(self, model: Any, fullgraph: bool, dynamic: bool | None, mode: str | None, options: Any) -> Any:
        because = self.eager_because or other_torch(torch.__version__)
        if because:
            self._virtual.ledger.assume(f"torch.compile: the memory of eager execution is taken, since {because}")
            return as_compiled(model, self._virtual.recorder)
        inductor = self._backend(mode, options, dynamic)
        with self._virtual.scope.hooks_aside():  # torch warns of global hooks
            compiled = self._compile(model, fullgraph=fullgraph, dynamic=dynamic, backend=inductor)
        if isinstance(model, nn.Module):
            return compiled  # torch's own wrapper of a module, which `_wrap_modules` sees to
        owner = getattr(model, "__self__", None)
        return self._region(compiled, owner if isinstance(owner, nn.Module) else None)

    @staticmethod
    def _when_called(function: Any, compiled: Callable[[], Any]) -> Any:
        """Libraries compile functions when they are loaded (bitsandbytes), and few of them run: Inductor, which takes
        seconds to load, waits for the first call, as torch's own compilation does."""
        made = functools.cache(compiled)

        @functools.wraps(function, updated=())
        def run(*args: Any, **kwargs: Any) -> Any:
            return made()(*args, **kwargs)

        return run

    def close(self) -> None:
        """Dynamo forgets what it compiled here: it keeps that with the code, and only so much for each function."""
        if self._is_prepared:
            torch._dynamo.reset()

    def _backend(self, mode: str | None, options: Any, dynamic: bool | None) -> InductorBackend:
        # Dynamo and Inductor are loaded by the first job that compiles: they take two seconds. Their tables of torch's
        # functions are made when they are loaded, and outlast this virtual GPU.
        with warnings.catch_warnings(), contextlib.nullcontext() if self._is_prepared else self._patches.suspended():
            warnings.simplefilter("ignore")  # torch's own, about itself
            import torch._inductor.config

            torch._inductor.config.compile_threads = 1  # no pool of processes: no kernel is built
            import torch._inductor.cudagraph_trees  # looks, when it is loaded, whether torch is built with CUDA

            from .backend import InductorBackend
            from .target import Target
            from .timing import Timing
            from .tracing import let_dynamo_trace, make_tables

            make_tables()
        if not self._is_prepared:
            let_dynamo_trace(self._patches, self._functions, self.findings)
            self._wrap_modules()
            self._is_prepared = True
        if self._timing is None:
            self._timing = Timing(self.gpu, self._virtual.recorder)
        target = Target(self.gpu, self._virtual.ledger.assume)
        virtual = self._virtual
        return InductorBackend(
            mode, options, dynamic, target, virtual.recorder, self.findings, self._timing, virtual.goes_forward
        )

    def _wrap_modules(self) -> None:
        from torch._dynamo.eval_frame import OptimizedModule

        call = OptimizedModule.__call__

        def run(module: OptimizedModule, *args: Any, **kwargs: Any) -> Any:
            return self._region(functools.partial(call, module), module._orig_mod)(*args, **kwargs)

        self._patches.set(OptimizedModule, "__call__", self.around_modules(run))

    def _region(self, call: Callable[..., Any], module: nn.Module | None) -> Callable[..., Any]:
        """A compiled callable; `module` where it is called in the place of that module's own forward."""
        scope = self._virtual.scope

        @functools.wraps(call, updated=())
        def run(*args: Any, **kwargs: Any) -> Any:
            as_module = scope.within(module) if module is not None else contextlib.nullcontext()
            with as_module, scope.hooks_aside(), _suppressing_errors(), self.findings.region():
                return call(*args, **kwargs)

        return run


def other_torch(version: str) -> str:
    """Why code compiled by this version of torch cannot be followed; empty where it can."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if _OLDEST <= numbers <= _NEWEST:
        return ""
    tested = sorted({".".join(map(str, version)) for version in (_OLDEST, _NEWEST)})
    return f"compiled code was tested with torch {' to '.join(tested)} only, and {version} is installed"


def _suppressing_errors() -> Any:
    """What Dynamo cannot trace runs eagerly, and is told."""
    return torch._dynamo.config.patch(suppress_errors=True)
