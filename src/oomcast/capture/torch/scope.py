"""Where the job is: whose forward, which line of the user's code; in backward, those of the forward operator."""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as _module

__all__ = ["COMPILED_PREFIX", "Scope", "is_building_a_module", "is_user_file"]

COMPILED_PREFIX = "_orig_mod."
"""What torch.compile puts into the names of the modules that it wraps."""

_OURS = str(Path(__file__).parents[2])
_ZOO = str(Path(_OURS) / "zoo")
_NOT_THE_USERS = (_OURS, str(Path(torch.__file__).parent), str(Path(contextlib.__file__).parent) + os.sep)
_INSTALLED = os.sep + "site-packages" + os.sep
_CALL_OF_A_MODULE = nn.Module.__call__
"""As torch has it: this file is loaded before anything is put around it."""


def is_user_file(filename: str) -> bool:
    """The zoo's models are user code: they are what the user asked about."""
    if filename.startswith("<") and not filename.startswith("<ipython"):
        return False
    if filename.startswith(_ZOO):
        return True
    if filename.startswith(_NOT_THE_USERS[:2]):
        return False
    # The standard library is nobody's line; packages installed beneath it (timm, transformers) are model code.
    return _INSTALLED in filename or not filename.startswith(_NOT_THE_USERS[2])


def is_building_a_module() -> bool:
    """Whether the code at hand was called from the `__init__` of some `nn.Module`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), nn.Module):
            return True
        frame = frame.f_back
    return False


class Scope:
    """Follows the modules by global forward hooks and remembers for each autograd node where it was made."""

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._names: dict[int, tuple[weakref.ref[nn.Module], str]] = {}
        """By the module's id, which another may have when this one is gone: none is kept alive, nor is its memory."""
        self._roots: weakref.WeakValueDictionary[int, nn.Module] = weakref.WeakValueDictionary()
        self._handles: list[Any] = []
        self._user_files: dict[str, bool] = {}
        self._made_at: dict[int, tuple[str, str]] = {}
        self.on_root: list[Any] = []
        """Called with each outermost module before its forward."""
        self.pinned: tuple[str, str] | None = None
        """Module and line of what is allocated now, where compiled code says it."""

    def __enter__(self) -> Scope:
        self._handles = [
            _module.register_module_forward_pre_hook(self._before),
            _module.register_module_forward_hook(self._after, always_call=True),
        ]
        return self

    def __exit__(self, *exc: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._roots.clear()

    def _before(self, module: nn.Module, args: Any) -> None:
        # What a checkpoint runs again in backward is part of a model whose names are known, not a model of its own.
        if not self._stack and torch._C._current_autograd_node() is None:
            for call in self.on_root:
                call(module)
            if id(module) not in self._roots:
                self._roots[id(module)] = module
                for name, child in module.named_modules():
                    self._names[id(child)] = weakref.ref(child), name.replace(COMPILED_PREFIX, "")
        known = self._names.get(id(module))
        name = known[1] if known is not None and known[0]() is module else ""
        self._stack.append(name or type(module).__name__)

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._stack:
            self._stack.pop()

    @contextlib.contextmanager
    def within(self, module: nn.Module) -> Iterator[None]:
        """That module runs, called in a way that hooks do not see."""
        self._before(module, ())
        try:
            yield
        finally:
            self._after(module, (), None)

    @contextlib.contextmanager
    def hooks_aside(self) -> Iterator[None]:
        """Nothing stands around modules meanwhile: a compiler that traces them would trace it as well."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        call, nn.Module.__call__ = nn.Module.__call__, _CALL_OF_A_MODULE  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.__call__ = call  # type: ignore[method-assign]
            if handles and not self._handles:
                self.__enter__()

    @property
    def inside_module(self) -> bool:
        return bool(self._stack)

    def module_stack_reset(self) -> None:
        self._stack.clear()

    def remember_node(self) -> None:
        """Called beneath autograd in forward: the node of the operator at hand was the last one numbered."""
        number = torch._C._autograd._get_sequence_nr() - 1
        if number not in self._made_at:
            self._made_at[number] = self.here()

    def forget_nodes(self) -> None:
        self._made_at.clear()

    def here(self) -> tuple[str, str]:
        """Module path and source line to which an allocation made now belongs."""
        if self.pinned is not None:
            return self.pinned
        if not self._stack:
            node = torch._C._current_autograd_node()
            if node is not None:
                made = self._made_at.get(node._sequence_nr())
                if made is not None:
                    return made
        return (self._stack[-1] if self._stack else "", self.user_line())

    def user_line(self) -> str:
        frame: FrameType | None = sys._getframe(1)
        files = self._user_files
        while frame is not None:
            filename = frame.f_code.co_filename
            is_user = files.get(filename)
            if is_user is None:
                is_user = files[filename] = is_user_file(filename)
            if is_user:
                return f"{filename}:{frame.f_lineno}"
            frame = frame.f_back
        return ""
