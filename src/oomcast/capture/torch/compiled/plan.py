"""What compiled code does with memory, as plain data: the steps of the code that Inductor wrote for a graph.

Inductor writes Python. Nearly all of it is of a few kinds: a buffer is allocated, given another name or form, deleted;
a kernel is launched; an operator is called. `plan_of` reads these from the syntax of the code; code with anything else
has no plan. A plan is made of lists, words and numbers alone, so that it can be kept in a file (`kept.py`), and is
followed by `steps.py`: nothing of a file is ever run as code.
"""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["LAUNCH", "Plan", "kernel_of", "plan_of"]


@dataclass(frozen=True)
class Plan:
    """All that following a compiled graph needs, but for where its nodes come from."""

    slots: tuple[str, ...]
    """The names of the code; steps say them by their number."""
    steps: tuple[list[Any], ...]
    kernels: dict[str, tuple[str, str]]
    """By its name: a digest of a kernel's source, which equal kernels share, and how it is said to be launched."""

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


class _NoPlan(Exception):
    """Something that steps do not have."""


def plan_of(source: str) -> Plan | None:
    """None: the code does more than steps can say, and is to be run as it is."""
    try:
        return _Reader().module(ast.parse(source))
    except _NoPlan:
        return None


LAUNCH = re.compile(r"@triton_heuristics\.(\w+)\(\s*size_hints=\{([^}]*)\}(?:,\s*tile_hint=TileHint\.(\w+))?")
"""How a kernel's source says that it is launched: by which heuristic, over which sizes, in which tiles."""


def kernel_of(source: str) -> tuple[str, str]:
    """A digest, which equal kernels share, and how it is said to be launched; empty if in one way alone."""
    launch = LAUNCH.search(source)
    return hashlib.sha256(source.encode()).hexdigest()[:32], launch.group() if launch else ""


_EMPTY = {
    "empty_strided_cuda": "gpu",
    "empty_strided_cpu": "host",
    "empty_strided_cpu_pinned": "pinned",
}
_IGNORED = re.compile(r"assert_\w+|run_intermediate_hooks")
_ALIASES = {"aten": "torch.ops.aten", "inductor_ops": "torch.ops.inductor", "_quantized": "torch.ops._quantized"}
_NUMBERS = ("inf", "nan")


class _Reader:
    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._kernels: dict[str, tuple[str, str]] = {}
        self._steps: list[list[Any]] = []

    def module(self, module: ast.Module) -> Plan:
        found: ast.FunctionDef | None = None
        for statement in module.body:
            function = _called(statement)
            if function is not None:
                if found is not None:
                    raise _NoPlan("two functions")
                found = function
            elif not self._is_kernel(statement) and not _is_frame(statement):
                raise _NoPlan(ast.dump(statement)[:80])
        if found is None:
            raise _NoPlan("no function")
        for statement in found.body:
            self._statement(statement)
        return Plan(tuple(self._slots), tuple(self._steps), self._kernels)

    def _is_kernel(self, statement: ast.stmt) -> bool:
        """`name = async_compile.triton('name', '''source''', …)`."""
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            return False
        function, target = statement.value.func, statement.targets[0]
        if not isinstance(function, ast.Attribute) or _path(function.value) != "async_compile":
            return False
        text = next((_word(a) for a in statement.value.args[::-1] if isinstance(a, ast.Constant)), "")
        if not isinstance(target, ast.Name) or not text:
            raise _NoPlan("a kernel without a name or a source")
        self._kernels[target.id] = kernel_of(text)
        return True

    # -------- Statements

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.With):
            if any(not _path(i.context_expr).startswith("torch.cuda._DeviceGuard") for i in statement.items):
                raise _NoPlan("a context")
            for inner in statement.body:
                self._statement(inner)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._assign(statement.targets[0], statement.value)
        elif isinstance(statement, ast.Delete):
            self._steps.append(["drop", [self._slot(target) for target in statement.targets]])
        elif isinstance(statement, ast.Expr):
            self._call(statement.value)
        elif isinstance(statement, ast.Return) and statement.value is not None:
            self._steps.append(["return", self._value(statement.value)])
        elif not isinstance(statement, ast.Pass):
            raise _NoPlan(type(statement).__name__)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and _path(value) == "args":
            self._steps.append(["unpack", [self._new_slot(name) for name in target.elts]])
            return
        if isinstance(value, ast.Call) and _path(value.func) == "get_raw_stream":
            return
        if not isinstance(target, ast.Name):
            raise _NoPlan("a target")
        made = self._value(value)
        label = target.id if target.id.startswith("buf") and isinstance(value, ast.Call) else ""
        self._steps.append(["set", self._new_slot(target), made, label])

    def _call(self, value: ast.expr) -> None:
        if not isinstance(value, ast.Call):
            raise _NoPlan("an expression")
        path = _path(value.func)
        if _IGNORED.fullmatch(path) or path in ("torch.cuda.set_device", "args.clear"):
            return
        kernel, _, method = path.partition(".")
        if kernel in self._kernels and method in ("run", ""):
            self._steps.append(["launch", kernel])
        else:
            self._steps.append(["do", self._value(value)])

    # -------- Values

    def _value(self, value: ast.expr) -> Any:
        if isinstance(value, ast.Constant) and isinstance(value.value, (int, float, str, bool, type(None))):
            return value.value
        if isinstance(value, (ast.Tuple, ast.List)):
            return ["tuple" if isinstance(value, ast.Tuple) else "list", [self._value(item) for item in value.elts]]
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
            negated = self._value(value.operand)
            if not isinstance(negated, (int, float)):
                raise _NoPlan("a sign")
            return -negated
        if isinstance(value, ast.Name):
            return float(value.id) if value.id in _NUMBERS else ["name", self._slot(value)]
        if isinstance(value, ast.Subscript):
            index = self._value(value.slice)
            if type(index) is not int:
                raise _NoPlan("an index")
            return ["item", self._value(value.value), index]
        if isinstance(value, ast.Attribute):
            owner, _, name = _path(value).rpartition(".")
            if owner == "torch":
                return ["torch", name]
        if isinstance(value, ast.Call):
            return self._called(value)
        raise _NoPlan(ast.dump(value)[:80])

    def _called(self, call: ast.Call) -> Any:
        path = _path(call.func)
        root, _, rest = path.partition(".")
        options = {_word_or(k.arg): self._value(k.value) for k in call.keywords}
        given = [self._value(argument) for argument in call.args]
        if path in _EMPTY and len(given) == 3 and not options:
            return ["empty", _EMPTY[path], *given]
        if path == "reinterpret_tensor" and len(given) == 4 and not options:
            return ["view", *given]
        if path == "device":
            named = dict(zip(("type", "index"), given, strict=False)) | options
            return ["device", named.get("type"), named.get("index")]
        if root == "extern_kernels":
            return ["extern", rest, given, options]
        path = ".".join([_ALIASES.get(root, root), rest])
        if path.startswith("torch.ops.") and path.count(".") == 4:
            return ["op", path.removeprefix("torch.ops."), given, options]
        raise _NoPlan(path)

    def _slot(self, name: ast.expr) -> int:
        if not isinstance(name, ast.Name) or name.id not in self._slots:
            raise _NoPlan("an unknown name")
        return self._slots[name.id]

    def _new_slot(self, name: ast.expr) -> int:
        if not isinstance(name, ast.Name):
            raise _NoPlan("a target")
        return self._slots.setdefault(name.id, len(self._slots))


def _called(statement: ast.stmt) -> ast.FunctionDef | None:
    """`def call(args)`, or the method of that name of the one class."""
    if isinstance(statement, ast.ClassDef):
        methods = [inner for inner in statement.body if isinstance(inner, ast.FunctionDef) and inner.name == "call"]
        return methods[0] if len(methods) == 1 else None
    return statement if isinstance(statement, ast.FunctionDef) and statement.name == "call" else None


def _is_frame(statement: ast.stmt) -> bool:
    """What stands around it in all of Inductor's code, and does nothing by itself."""
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.If)):
        return True
    if isinstance(statement, ast.FunctionDef):
        return statement.name.startswith(("benchmark_", "get_args"))
    if isinstance(statement, (ast.Delete, ast.Expr)):
        return "async_compile" in ast.dump(statement) or isinstance(getattr(statement, "value", None), ast.Constant)
    if isinstance(statement, ast.Assign):
        value = statement.value
        return _path(value).startswith(("torch.", "runner.")) or _path(getattr(value, "func", value)) in _MAKERS
    return False


_MAKERS = ("AsyncCompile", "Runner")


def _path(value: ast.expr | None) -> str:
    """`a.b.c`, or empty; of a call, what is called."""
    if isinstance(value, ast.Call):
        value = value.func
    if isinstance(value, ast.Attribute):
        owner = _path(value.value)
        return f"{owner}.{value.attr}" if owner else ""
    return value.id if isinstance(value, ast.Name) else ""


def _word(constant: ast.Constant) -> str:
    return constant.value if isinstance(constant.value, str) else ""


def _word_or(name: str | None) -> str:
    if name is None:
        raise _NoPlan("options of any name")
    return name
