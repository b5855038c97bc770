"""Extensions in C++ or CUDA that code compiles while it runs: `torch.utils.cpp_extension.load` and `load_inline`.

They would be built for the machine at hand, into the user's own cache of extensions, and they read the memory of
tensors, of which the virtual GPU's have none. So they are refused in a sentence. Libraries that catch the error and go
on without (peft's BOFT) do so here, too; the answer says it.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from ...errors import BadInput
from .patches import Patches

__all__ = ["extensions_refused"]

_MODULE = "torch.utils.cpp_extension"


@contextlib.contextmanager
def extensions_refused(patches: Patches, assume: Callable[[str], None], line: Callable[[], str]) -> Iterator[None]:
    """Within, nothing is compiled. `line` tells where the code is that asks for it."""

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        """Told even if the code catches it and goes on otherwise than it would have on the GPU."""
        place = line()
        sentence = (
            f"the job compiles the extension {name!r}{f' at {place}' if place else ''}: "
            "what its C++ or CUDA code allocates cannot be followed"
        )
        assume(f"{sentence}, nor what else the job does with it")
        raise BadInput(f"{sentence}; run the job with its plain PyTorch code, if it has any.")

    def install(module: ModuleType) -> None:
        for name in ("load", "load_inline"):
            patches.set(module, name, refuse)

    if _MODULE in sys.modules:
        install(sys.modules[_MODULE])
        yield
        return
    # Few jobs load the module, which takes longer than a small job's capture.
    finder = _Installing(install)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Installing:
    """Finds that one module where it is, and has it changed once it is loaded."""

    def __init__(self, install: Callable[[ModuleType], None]) -> None:
        self._install = install

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _MODULE:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        if found is not None and found.loader is not None:
            loader: Any = found.loader
            execute = loader.exec_module

            def execute_and_install(module: ModuleType) -> None:
                execute(module)
                self._install(module)

            loader.exec_module = execute_and_install
        return found
