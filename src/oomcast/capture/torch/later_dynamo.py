"""torch's compiler is loaded when a job asks for it: it is a third of what a cold answer takes, and most jobs run eager
code.

torch imports `torch._dynamo` in places that need none of it: `FakeTensorMode` reads its settings, optimizers say what
must not be traced. Until something else is asked of it, a module stands there that has these alone; then it becomes the
real one, the same object. Only capture processes do so, whose torch is theirs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch._C import _len_torch_function_stack, _pop_torch_function_stack, _push_on_torch_function_stack
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["load_dynamo_later", "loading_dynamo_within"]

_NAME = "torch._dynamo"
_SETTINGS = f"{_NAME}.config"
_DISABLES, _BREAKS = "torch._compile", "torch.optim.optimizer"
"""torch's modules that keep functions from being traced, and step aside from a trace, in every optimizer's step."""
_CACHED_AS = "__dynamo_disable"
"""Where `_DISABLES` keeps what it was given for a function."""


def load_dynamo_later() -> None:
    """Nothing to do where it is loaded already, or where this torch has no such package."""
    spec = None if _NAME in sys.modules else importlib.util.find_spec(_NAME)
    if spec is None or spec.loader is None:
        return
    later = _Later(spec)
    sys.modules[_NAME] = later
    torch._dynamo = later  # as the import of a submodule would set it
    sys.meta_path.insert(0, _Parts(later))


class _Later(ModuleType):
    """`torch._dynamo` before it is loaded."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(_NAME)
        self.__spec__, self.__loader__, self.__package__ = spec, spec.loader, _NAME
        self.__path__ = spec.submodule_search_locations or []
        self.__file__ = spec.origin
        self._disabled: list[Callable[..., Any]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {_NAME!r} has no attribute {name!r}")
        # Whoever else asks may keep what it gets, and have it traced later.
        asks = sys._getframe(1).f_globals.get("__name__")
        if name == "disable" and asks == _DISABLES:
            return self._disable
        if name == "graph_break" and asks == _BREAKS:
            return _nothing_to_break
        load(self)
        return getattr(self, name)

    def _disable(self, fn: Any, *args: Any, **options: Any) -> Any:
        """Nothing is traced yet, so nothing has to be kept from it; torch is made to ask again later."""
        self._disabled.append(fn)
        return fn


def _nothing_to_break(msg: str = "") -> None:
    """A trace: there is none."""


_around: list[Callable[[], AbstractContextManager[None]]] = []


@contextlib.contextmanager
def loading_dynamo_within(context: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """If it is loaded meanwhile, then within `context`: it makes tables of torch's functions as it finds them."""
    _around.append(context)
    try:
        yield
    finally:
        _around.remove(context)


@contextlib.contextmanager
def _modes_aside() -> Iterator[None]:
    modes = [_pop_torch_function_stack() for _ in range(_len_torch_function_stack())]
    try:
        with _disable_current_modes():
            yield
    finally:
        for mode in reversed(modes):
            _push_on_torch_function_stack(mode)


def load(later: ModuleType) -> None:
    """Run the real package, in the module that stands in its place."""
    if not isinstance(later, _Later):
        return
    disabled, spec = later._disabled, later.__spec__
    later.__class__ = ModuleType  # type: ignore[assignment]
    del later._disabled
    for fn in disabled:
        vars(fn).pop(_CACHED_AS, None)
    assert spec is not None
    assert spec.loader is not None
    with contextlib.ExitStack() as contexts, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about itself
        contexts.enter_context(_modes_aside())
        for context in _around:
            contexts.enter_context(context())
        spec.loader.exec_module(later)


class _Parts(MetaPathFinder):
    """The package is loaded before any of its parts but the settings, as it would be without this file."""

    def __init__(self, later: _Later) -> None:
        self._later: ModuleType = later

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{_NAME}.") or fullname == _SETTINGS or not isinstance(self._later, _Later):
            return None
        load(self._later)
        loaded = sys.modules.get(fullname)
        return None if loaded is None else ModuleSpec(fullname, _Loaded(loaded))


class _Loaded(Loader):
    """Of a part that came with the package."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
