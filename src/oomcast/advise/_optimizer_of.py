"""Which optimizer a job trains with, as far as that can be read without running it."""

from __future__ import annotations

import ast
from pathlib import Path

from ..workload import JobKind, Workload

__all__ = ["OPTIMIZER_CLASSES", "optimizer_call", "optimizer_of"]

OPTIMIZER_CLASSES = {
    "Adam": "adam",
    "AdamW": "adamw",
    "RMSprop": "rmsprop",
    "Adagrad": "adagrad",
    "Adafactor": "adafactor",
    "SGD": "sgd",
}
_VARIANTS = (("fused", True, "-fused"), ("foreach", True, "-foreach"), ("foreach", False, "-forloop"))


def optimizer_of(workload: Workload) -> str | None:
    """By the name oomcast has for it; None where the job's own cannot be read."""
    if workload.optimizer is not None:
        return workload.optimizer
    if workload.job.kind is JobKind.OBJECT:
        return None if getattr(workload.job.target, "optimizer", None) is not None else "adamw"
    if workload.job.kind is not JobKind.FILE:
        return "adamw"
    try:
        tree = ast.parse(Path(workload.job.name).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    if not any(isinstance(node, ast.FunctionDef) and node.name == "optimizer" for node in tree.body):
        return "adamw"
    call = optimizer_call(tree)
    return None if call is None else _name_of(call)


def optimizer_call(tree: ast.Module) -> ast.Call | None:
    """The one call of an optimizer's class within `def optimizer`."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "optimizer"]
    calls = [
        node
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and _class_of(node) in OPTIMIZER_CLASSES
    ]
    return calls[0] if len(calls) == 1 else None


def _class_of(call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _name_of(call: ast.Call) -> str:
    name = OPTIMIZER_CLASSES[_class_of(call)]
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if name == "sgd" and not (isinstance(momentum := given.get("momentum"), ast.Constant) and momentum.value == 0):
        name = "sgd-momentum" if "momentum" in given else name
    for option, value, suffix in _VARIANTS:
        told = given.get(option)
        if isinstance(told, ast.Constant) and told.value is value:
            return name + suffix
    return name
