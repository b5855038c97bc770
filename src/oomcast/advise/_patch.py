"""A change of the job file as a unified diff, where the change belongs into that file."""

from __future__ import annotations

import ast
import difflib
import re
from collections import defaultdict
from pathlib import Path

from ..trace import Phase, Trace
from ._optimizer_of import optimizer_call
from ._remedies import Remedy

__all__ = ["patch_for", "patched"]


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
        elif remedy.key == "checkpointing":
            text = _with_checkpointing(text, _blocks(trace))
    return text


def _with_optimizer(text: str, remedy: Remedy) -> str:
    tree = ast.parse(text)
    call = optimizer_call(tree)
    if call is None:
        if any(isinstance(node, ast.FunctionDef) and node.name == "optimizer" for node in tree.body):
            return text
        return text.rstrip("\n") + "\n\n\ndef optimizer(params):\n" + _new_optimizer(remedy) + "\n"
    function = ast.unparse(call.func)
    first = ast.unparse(call.args[0]) if call.args else "params"
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg}
    if remedy.key == "foreach-off":
        given = {**{k: v for k, v in given.items() if k not in ("fused", "foreach")}, "foreach": "False"}
    elif remedy.key == "fused":
        given = {**{k: v for k, v in given.items() if k not in ("fused", "foreach")}, "fused": "True"}
    elif remedy.key == "sgd":
        function = re.sub(r"\w+$", "SGD", function)
        given = {"lr": given.get("lr", "0.01"), "momentum": "0.9"}
    else:
        name = "AdamW8bit" if function.endswith("AdamW") else "Adam8bit"
        function = f"bitsandbytes.optim.{name}"
        given = {k: v for k, v in given.items() if k not in ("fused", "foreach", "capturable", "maximize")}
    others = [ast.unparse(argument) for argument in call.args[1:]] if remedy.key != "sgd" else []
    written = f"{function}({', '.join([first, *others, *(f'{k}={v}' for k, v in given.items())])})"
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


def _with_checkpointing(text: str, blocks: list[str]) -> str:
    """At the end of `model()`: its blocks by name, as the capture met them. A model's own switch is better still."""
    tree = ast.parse(text)
    function = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "model"), None)
    returned = function.body[-1] if function is not None else None
    if not isinstance(returned, ast.Return) or returned.value is None or not blocks:
        return text
    indent = " " * returned.col_offset
    names = ", ".join(f'"{name}"' for name in blocks)
    value = ast.unparse(returned.value)
    lines = text.splitlines(keepends=True)
    assert returned.end_lineno is not None
    lines[returned.lineno - 1 : returned.end_lineno] = [
        f"{indent}import functools\n",
        "\n",
        f"{indent}from torch.utils.checkpoint import checkpoint\n",
        "\n",
        f"{indent}built = {value}\n",
        f"{indent}for name in ({names},):\n",
        f"{indent}    block = built.get_submodule(name)\n",
        f"{indent}    block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)\n",
        f"{indent}return built\n",
    ]
    return "".join(lines)


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
