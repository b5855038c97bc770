"""A job file as source text: which optimizer it makes, and how a change looks as a unified diff of the file.

Nothing of it is run: the file is read as a syntax tree.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections import defaultdict
from pathlib import Path

from ..spec import DEFAULT_OPTIMIZER, OPTIMIZER_KINDS, VARIANTS, JobKind, Workload
from ..syntax import syntax_tree
from ..trace import Phase, Trace
from .remedies import Remedy

__all__ = ["optimizer_of", "patch_for", "patched"]

_OPTIMIZER_CLASSES = {
    kind.class_name: kind.name for kind in OPTIMIZER_KINDS.values() if kind.library == "torch" and not kind.momentum
}


def optimizer_of(workload: Workload) -> str | None:
    """By the name oomcast has for it; None where the job's own cannot be read."""
    if workload.optimizer is not None:
        return workload.optimizer
    if workload.job.kind is JobKind.OBJECT:
        return None if getattr(workload.job.target, "optimizer", None) is not None else DEFAULT_OPTIMIZER
    if workload.job.kind is not JobKind.FILE:
        return DEFAULT_OPTIMIZER
    try:
        tree = syntax_tree(Path(workload.job.name).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    if not any(isinstance(node, ast.FunctionDef) and node.name == "optimizer" for node in tree.body):
        return DEFAULT_OPTIMIZER
    call = _optimizer_call(tree)
    return None if call is None else _name_of(call)


def _optimizer_call(tree: ast.Module) -> ast.Call | None:
    """The one call of an optimizer's class within `def optimizer`."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "optimizer"]
    calls = [
        node
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and _class_of(node) in _OPTIMIZER_CLASSES
    ]
    return calls[0] if len(calls) == 1 else None


def _class_of(call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _name_of(call: ast.Call) -> str:
    name = _OPTIMIZER_CLASSES[_class_of(call)]
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if name == "sgd" and not (isinstance(momentum := keywords.get("momentum"), ast.Constant) and momentum.value == 0):
        name = "sgd-momentum" if "momentum" in keywords else name
    fixed = {option: value.value for option, value in keywords.items() if isinstance(value, ast.Constant)}
    for variant in ("fused", "foreach", "forloop"):  # torch, too, takes fused first
        if VARIANTS[variant].items() <= fixed.items():
            return f"{name}-{variant}"
    return name


def patch_for(path: str, remedies: tuple[Remedy, ...], trace: Trace) -> str:
    """A diff of the file, as `git apply` and `patch` take it; empty where nothing of it belongs there."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    changed = patched(text, remedies, trace)
    name = Path(path).name
    lines = difflib.unified_diff(
        text.splitlines(keepends=True), changed.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(lines)


def patched(text: str, remedies: tuple[Remedy, ...], trace: Trace) -> str:
    """The file's text with those of the changes that can be made in it."""
    for remedy in remedies:
        if remedy.part == "optimizer":
            text = _with_optimizer(text, remedy)
        elif "checkpointing" in remedy.changes:
            text = _with_checkpointing(text, _checkpoint_lines(remedy.changes["checkpointing"], trace))
    return text


def _with_optimizer(text: str, remedy: Remedy) -> str:
    tree = syntax_tree(text)
    call = _optimizer_call(tree)
    if call is None:
        if any(isinstance(node, ast.FunctionDef) and node.name == "optimizer" for node in tree.body):
            return text
        return text.rstrip("\n") + "\n\n\ndef optimizer(params):\n" + _new_optimizer(remedy) + "\n"
    function = ast.unparse(call.func)
    first = ast.unparse(call.args[0]) if call.args else "params"
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg}
    if remedy.key == "foreach-off":
        keywords = {**{k: v for k, v in keywords.items() if k not in ("fused", "foreach")}, "foreach": "False"}
    elif remedy.key == "fused":
        keywords = {**{k: v for k, v in keywords.items() if k not in ("fused", "foreach")}, "fused": "True"}
    elif remedy.key == "sgd":
        function = re.sub(r"\w+$", "SGD", function)
        keywords = {"lr": keywords.get("lr", "0.01"), "momentum": "0.9"}
    else:
        name = "AdamW8bit" if function.endswith("AdamW") else "Adam8bit"
        function = f"bitsandbytes.optim.{name}"
        keywords = {k: v for k, v in keywords.items() if k not in ("fused", "foreach", "capturable", "maximize")}
    others = [ast.unparse(argument) for argument in call.args[1:]] if remedy.key != "sgd" else []
    written = f"{function}({', '.join([first, *others, *(f'{k}={v}' for k, v in keywords.items())])})"
    text = _replaced(text, call, written)
    return "import bitsandbytes\n" + text if remedy.key == "8-bit" else text


def _new_optimizer(remedy: Remedy) -> str:
    lines = {
        "foreach-off": ("torch", "torch.optim.AdamW(params, foreach=False)"),
        "fused": ("torch", "torch.optim.AdamW(params, fused=True)"),
        "sgd": ("torch", "torch.optim.SGD(params, lr=0.01, momentum=0.9)"),
        "8-bit": ("bitsandbytes", "bitsandbytes.optim.AdamW8bit(params)"),
    }
    module, call = lines[remedy.key]
    return f"    import {module}\n\n    return {call}"


def _replaced(text: str, node: ast.expr, written: str) -> str:
    lines = text.encode().splitlines(keepends=True)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    before = lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :]
    lines[node.lineno - 1 : node.end_lineno] = [before + written.encode() + after]
    return b"".join(lines).decode()


def _with_checkpointing(text: str, written: list[str]) -> str:
    """At the end of `model()`, on what it returns."""
    tree = syntax_tree(text)
    function = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "model"), None)
    returned = function.body[-1] if function is not None else None
    if function is None or not isinstance(returned, ast.Return) or returned.value is None or not written:
        return text
    indent = " " * returned.col_offset
    value = ast.unparse(returned.value)
    lines = text.splitlines(keepends=True)
    assert returned.end_lineno is not None
    lines[returned.lineno - 1 : returned.end_lineno] = [
        f"{indent}built = {value}\n",
        *(f"{indent}{line}\n" for line in written),
        f"{indent}return built\n",
    ]
    if any("functools" in line for line in written):
        imports = [n for n in tree.body[: tree.body.index(function)] if isinstance(n, (ast.Import, ast.ImportFrom))]
        known = {ast.unparse(n) for n in imports}
        last = max((n.end_lineno or 0 for n in imports), default=0)
        wanted = ("import functools", "from torch.utils.checkpoint import checkpoint")
        lines[last:last] = [f"{line}\n" for line in wanted if line not in known]
    return "".join(lines)


def _checkpoint_lines(wanted: bool | tuple[str, ...], trace: Trace) -> list[str]:
    """The named modules, or the blocks that the capture met; a model's own switch where that is what was captured."""
    assumed = " ".join(trace.assumptions)
    if wanted is True and "gradient_checkpointing_enable" in assumed:
        return ['built.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})']
    if wanted is True and "set_grad_checkpointing" in assumed:
        return ["built.set_grad_checkpointing(True)"]
    names = wanted if isinstance(wanted, tuple) else _blocks(trace)
    if not names:
        return []
    listed = "".join(f'"{name}", ' for name in names)
    return [
        *(["built.config.use_cache = False"] if "use_cache off" in assumed else []),
        f"for name in ({listed.rstrip() if len(names) == 1 else listed.rstrip(', ')}):",
        "    module = built.get_submodule(name)",
        "    module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)",
    ]


def _blocks(trace: Trace) -> list[str]:
    """Members of the outermost numbered lists that hold modules themselves, from the modules that the capture met."""
    members: dict[str, set[int]] = defaultdict(set)
    for made in trace.allocations:
        found = re.match(r"((?:[^.\d][^.]*\.)*)(\d+)\.", made.module) if made.phase is Phase.FORWARD else None
        if found:
            members[found[1]].add(int(found[2]))
    return [
        f"{prefix}{number}" for prefix, numbers in members.items() if len(numbers) > 1 for number in sorted(numbers)
    ]
