"""The numbers of a job that `oomcast fit` can search over, and how a value of one becomes a workload.

These are the batch size, the sequence length, the side of an image, the accumulation, the rank of a LoRA adapter, and
every whole number that a job file gives a name to (`WIDTH = 512`): it is found in the source, and the file is run with
another value in its place.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ..errors import BadInput, UnknownName
from ..spec import Adapter, Job, JobKind, Workload
from ..syntax import syntax_tree

__all__ = ["ChangedFile", "Parameter", "constants_of_file", "find_parameter"]


def constants_of_file(path: str) -> dict[str, int]:
    """Whole numbers that are assigned to one name at the file's top level."""
    return {name: node.value for name, node in _assigned(_parse(path)).items() if isinstance(node.value, int)}


class ChangedFile:
    """A job file with one of its numbers changed; the file itself stays as it is. Its functions are the file's."""

    def __init__(self, path: str, name: str, value: int) -> None:
        self.path = path
        self.name = name
        self.value = value
        self._module: ModuleType | None = None

    def model(self) -> Any:
        return self._functions.model()

    def batch(self, batch_size: int, **sizes: Any) -> Any:
        return self._functions.batch(batch_size, **sizes)

    def __getattr__(self, attribute: str) -> Any:
        # `loss` and `optimizer` are there if the file has them.
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return getattr(self._functions, attribute)

    def __deepcopy__(self, memo: Any) -> ChangedFile:
        # A workload as plain data copies its job's parts; a module cannot be copied, and need not be.
        return self

    @property
    def _functions(self) -> ModuleType:
        if self._module is None:
            place = Path(self.path).resolve()
            sys.path.insert(0, str(place.parent))
            loader = _ChangingLoader("oomcast_job", str(place), self.name, self.value)
            specification = importlib.util.spec_from_loader("oomcast_job", loader)
            assert specification is not None
            self._module = sys.modules["oomcast_job"] = importlib.util.module_from_spec(specification)
            loader.exec_module(self._module)
        return self._module


class _ChangingLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, module: str, path: str, name: str, value: int) -> None:
        super().__init__(module, path)
        self._name = name
        self._value = value

    def get_code(self, fullname: str) -> CodeType:
        # Never from a cache of compiled files, which holds the number as it is written.
        return self.source_to_code(self.get_data(self.path), self.path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        tree = syntax_tree(data, filename=path)
        _assigned(tree)[self._name].value = self._value
        code: CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)
        return code


def _parse(path: str) -> ast.Module:
    try:
        return syntax_tree(Path(path).read_bytes(), filename=path)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}.") from error
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"{path} is not valid Python: {error}.") from error


def _assigned(tree: ast.Module) -> dict[str, ast.Constant]:
    """The constant nodes by the name they are given; bools are not numbers here."""
    found: dict[str, ast.Constant] = {}
    for node in tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Constant):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        is_number = isinstance(node.value.value, int) and not isinstance(node.value.value, bool)
        if is_number and len(targets) == 1 and isinstance(targets[0], ast.Name):
            found[targets[0].id] = node.value
    return found


_NAMES = ("batch-size", "seq-len", "input-size", "accumulation", "lora-rank")


@dataclass(frozen=True)
class Parameter:
    """`workload` puts a value in; the values asked for are multiples of `step`, from `smallest` on."""

    name: str
    workload: Callable[[int], Workload]
    start: int
    """Where the first capture is made: large enough for the kernels that larger values take."""
    step: int = 1
    smallest: int = 1
    degree: int = 1
    """Of what a step allocates, roughly, and of the extents of its tensors."""
    cautious: bool = False
    """Larger values may make a longer capture: the second one is not made far from the first."""


def find_parameter(name: str, workload: Workload, step: int | None = None) -> Parameter:
    """`batch-size`, `seq-len`, `input-size` (the side of an image), `accumulation`, `lora-rank`, or a number that the
    job file gives a name to."""
    known = _known(name.lower().replace("_", "-"), workload, step)
    if known is not None:
        return known
    constants = constants_of_file(workload.job.name) if workload.job.kind is JobKind.FILE else {}
    place = next((constant for constant in constants if constant.lower() == name.lower().replace("-", "_")), None)
    if place is None:
        hint = "" if workload.job.kind is JobKind.FILE else "Only a job file can have others, as NAME = 128."
        raise UnknownName("parameter", name, (*_NAMES, *constants), hint)
    return Parameter(
        place,
        lambda value: _with_constant(workload, place, value),
        start=max(constants[place], 1),
        step=step or 1,
        smallest=step or 1,
        cautious=True,
    )


def _known(name: str, workload: Workload, step: int | None) -> Parameter | None:
    def replaced(**changes: Any) -> Workload:
        return dataclasses.replace(workload, **changes)

    if name == "batch-size":
        by = step or 1
        return Parameter(name, lambda n: replaced(batch_size=n), _multiple(8, by), by, by)
    if name == "seq-len":
        # Attention kernels want lengths that divide by 8; with others they pad, or are not taken.
        by = step or 8
        start = workload.seq_len or 128
        return Parameter(name, lambda n: replaced(seq_len=n), _multiple(start, by), by, by)
    if name == "input-size":
        by = step or 32
        shape = workload.input_shape or (3, 224, 224)
        if len(shape) < 3:
            raise BadInput("an input size is the side of an image or volume; this job's input shape has none.")
        channels, sides = shape[0], len(shape) - 1

        def sized(side: int) -> Workload:
            return replaced(input_shape=(channels, *(side,) * sides))

        return Parameter(name, sized, _multiple(max(shape[1:]), by), by, by, degree=sides)
    if name == "accumulation":
        by = step or 1
        return Parameter(name, lambda n: replaced(accumulation=n), _multiple(4, by), by, by, cautious=True)
    if name == "lora-rank":
        adapter = workload.adapter
        if adapter is None or adapter.kind != "lora":
            raise BadInput("there is no LoRA whose rank could change; name one, like --adapter lora,r=16.")
        settings, kind, by = adapter.settings, adapter.kind, step or 1
        start = _multiple(settings["r"] if isinstance(settings.get("r"), int) else 8, by)
        return Parameter(name, lambda n: replaced(adapter=Adapter.create(kind, **{**settings, "r": n})), start, by, by)
    return None


def _multiple(value: int, step: int) -> int:
    return max(value // step, 1) * step


def _with_constant(workload: Workload, name: str, value: int) -> Workload:
    changed = ChangedFile(workload.job.name, name, value)
    framework = workload.framework or "torch"
    return dataclasses.replace(workload, job=Job(JobKind.OBJECT, workload.job.name, changed), framework=framework)
