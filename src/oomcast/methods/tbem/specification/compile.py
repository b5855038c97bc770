"""From the syntax tree of an expression to a function: checked types first, then closures over the tree.

Nothing of the text is ever executed as Python. A frame is a list with one slot for each variable of a process or
function; a closure reads and writes slots whose numbers were settled while compiling.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lark import Token, Tree

from .parse import Node, Source
from .types import (
    ANY,
    BOOL,
    BUILTINS,
    INT,
    NUMBERS,
    REAL,
    STRING,
    SpecificationError,
    Type,
    Undefined,
    UnknownInSpecification,
    joined,
    sequence_of,
)

__all__ = ["UNSET", "Compiled", "Frame", "Function", "Run", "Scope", "compile_expression"]

Frame = list[Any]
Run = Callable[[Frame], Any]

UNSET = object()
"""What a slot holds until its definition is first asked for."""


@dataclass(frozen=True)
class Compiled:
    """An expression ready to run, its type, and the variables of the process or function that it reads."""

    type: Type
    run: Run
    reads: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Function:
    """A function of the specification: called with the values of its parameters."""

    parameters: tuple[Type, ...]
    result: Type
    call: Callable[..., Any]


@dataclass
class Scope:
    """The names that an expression may use, and the frame's slots as they are given out."""

    source: Source
    constants: dict[str, Compiled]
    find_function: Callable[[str], Function | None]
    function_names: list[str]
    variables: dict[str, Compiled] = field(default_factory=dict)
    set_members: dict[str, Type] = field(default_factory=dict)
    """What `forall[x: set]` runs over: the members of the named sets that a process takes."""
    slots: int = 0

    def add_variable(self, name: str, type_: Type) -> int:
        slot = self.new_slot()
        self.variables[name] = Compiled(type_.widened(), operator.itemgetter(slot), frozenset((name,)))
        return slot

    def add_definition(self, name: str, value: Compiled) -> None:
        """A named expression, computed when first used and then kept in its slot."""
        slot, compute = self.new_slot(), value.run

        def run(frame: Frame) -> Any:
            found = frame[slot]
            if found is UNSET:
                found = frame[slot] = compute(frame)
            return found

        self.variables[name] = Compiled(value.type, run, frozenset((name,)))

    def new_slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def error(self, node: Node | Token, message: str) -> SpecificationError:
        return SpecificationError(self.source.place(node), message)


def compile_expression(node: Node, scope: Scope) -> Compiled:
    return _COMPILERS[node.data](node, scope)


def _typed(node: Node, scope: Scope, wanted: Type, what: str) -> Compiled:
    compiled = compile_expression(node, scope)
    both = joined(compiled.type, wanted)
    if both is None or (both == REAL and wanted == INT):
        raise scope.error(node, f"{what} must be {wanted}, but this is {compiled.type}.")
    return compiled


def _number(node: Node, scope: Scope, what: str) -> Compiled:
    compiled = compile_expression(node, scope)
    if compiled.type not in NUMBERS:
        raise scope.error(node, f"{what} must be a number, but this is {compiled.type}.")
    return compiled


def _elements(compiled: Compiled, node: Node, scope: Scope, what: str) -> Type:
    if compiled.type.name != "seq":
        raise scope.error(node, f"{what} must be a sequence, but this is {compiled.type}.")
    return compiled.type.parts[0]


# Values and names


def _literal(value: Callable[[str], Any], type_: Type) -> Callable[[Node, Scope], Compiled]:
    def compile_literal(node: Node, scope: Scope) -> Compiled:
        constant = value(str(node.children[0]) if node.children else "")
        return Compiled(type_, lambda frame: constant)

    return compile_literal


def _name(node: Node, scope: Scope) -> Compiled:
    token = _token(node.children[0])
    variable = scope.variables.get(token) or scope.constants.get(token)
    if variable is None:
        raise UnknownInSpecification(
            scope.source.place(token), "name", str(token), [*scope.variables, *scope.constants]
        )
    return variable


def _sequence(node: Node, scope: Scope) -> Compiled:
    items = [compile_expression(_node(child), scope) for child in node.children]
    element = ANY
    for child, item in zip(node.children, items, strict=True):
        both = joined(element, item.type)
        if both is None:
            raise scope.error(_node(child), f"a sequence of {element} cannot hold {item.type}.")
        element = both
    runs = [item.run for item in items]
    return Compiled(sequence_of(element), lambda frame: tuple([run(frame) for run in runs]), _reads(*items))


def _tuple(node: Node, scope: Scope) -> Compiled:
    items = [compile_expression(_node(child), scope) for child in node.children]
    runs = [item.run for item in items]
    type_ = Type("tuple", tuple(item.type for item in items))
    return Compiled(type_, lambda frame: tuple([run(frame) for run in runs]), _reads(*items))


# Application: a function's call, an element or a piece of a sequence, a place of a tuple


def _apply(node: Node, scope: Scope) -> Compiled:
    token, arguments = _token(node.children[0]), [_node(child) for child in node.children[1:]]
    variable = scope.variables.get(token) or scope.constants.get(token)
    if variable is not None:
        return _part(node, token, variable, arguments, scope)
    function = scope.find_function(str(token))
    if function is not None:
        return _call(node, str(token), function, arguments, scope)
    if token in BUILTINS:
        return _builtin(node, str(token), arguments, scope)
    known = [*scope.function_names, *BUILTINS, *scope.variables]
    raise UnknownInSpecification(scope.source.place(token), "function", str(token), known)


def _part(node: Node, name: str, variable: Compiled, arguments: list[Node], scope: Scope) -> Compiled:
    holder = variable.run
    if variable.type.name == "tuple":
        if len(arguments) != 1 or arguments[0].data != "integer":
            raise scope.error(node, f"a place of the tuple {name} is asked for by one number, as in {name}(1).")
        place = int(str(arguments[0].children[0]))
        if not 1 <= place <= len(variable.type.parts):
            raise scope.error(node, f"the tuple {name} has places 1 to {len(variable.type.parts)}, not {place}.")
        return Compiled(variable.type.parts[place - 1], lambda frame: holder(frame)[place - 1], variable.reads)
    element = _elements(variable, node, scope, f"{name}, which is given arguments here,")
    if len(arguments) > 2:
        raise scope.error(node, f"{name} is a sequence: {name}(i) is an element, {name}(i, j) a piece of it.")
    indices = [_typed(argument, scope, INT, "an index") for argument in arguments]
    reads = _reads(variable, *indices)
    first = indices[0].run
    if len(indices) == 1:

        def element_at(frame: Frame) -> Any:
            sequence, index = holder(frame), first(frame)
            if not 1 <= index <= len(sequence):
                raise Undefined(f"{name} has {len(sequence)} elements, none with the index {index}")
            return sequence[index - 1]

        return Compiled(element, element_at, reads)
    last = indices[1].run

    def piece(frame: Frame) -> Any:
        sequence, start, end = holder(frame), first(frame), last(frame)
        if start < 1 or end > len(sequence):
            raise Undefined(f"{name} has {len(sequence)} elements, not all from {start} to {end}")
        return sequence[start - 1 : end]

    return Compiled(variable.type, piece, reads)


def _call(node: Node, name: str, function: Function, arguments: list[Node], scope: Scope) -> Compiled:
    if len(arguments) != len(function.parameters):
        raise scope.error(node, f"{name} takes {len(function.parameters)} arguments, but {len(arguments)} are given.")
    compiled = [
        _typed(argument, scope, wanted.widened(), f"argument {number} of {name}")
        for number, (argument, wanted) in enumerate(zip(arguments, function.parameters, strict=True), 1)
    ]
    runs, call = [item.run for item in compiled], function.call
    return Compiled(function.result, lambda frame: call(*[run(frame) for run in runs]), _reads(*compiled))


def _builtin(node: Node, name: str, arguments: list[Node], scope: Scope) -> Compiled:
    builtin = BUILTINS[name]
    least, most = builtin.arity
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise scope.error(node, f"{name} takes {wanted} arguments, but {len(arguments)} are given.")
    compiled = [compile_expression(argument, scope) for argument in arguments]
    result = builtin.result([item.type for item in compiled])
    if result is None:
        raise scope.error(node, f"{name} takes {builtin.takes}, not {', '.join(str(item.type) for item in compiled)}.")
    runs, call = [item.run for item in compiled], builtin.call
    if len(runs) == 1:
        only = runs[0]
        return Compiled(result, lambda frame: call(only(frame)), compiled[0].reads)
    return Compiled(result, lambda frame: call(*[run(frame) for run in runs]), _reads(*compiled))


# Arithmetic and comparison


def _divided(by: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def divide(left: Any, right: Any) -> Any:
        if right == 0:
            raise Undefined(f"{left} is divided by zero")
        return by(left, right)

    return divide


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided(operator.truediv),
    "div": _divided(operator.floordiv),
    "mod": _divided(operator.mod),
}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _arithmetic(node: Node, scope: Scope) -> Compiled:
    sign = str(node.children[1])
    if sign in ("div", "mod"):
        left, right = (_typed(_node(node.children[i]), scope, INT, f"each side of {sign}") for i in (0, 2))
    else:
        left, right = (_number(_node(node.children[i]), scope, f"each side of {sign}") for i in (0, 2))
    type_ = REAL if sign == "/" or REAL in (left.type, right.type) else INT
    return _binary(_ARITHMETIC[sign], left, right, type_)


def _multiple(node: Node, scope: Scope) -> Compiled:
    """`2P`: a number and a name with nothing between."""
    factor, named = int(_token(node.children[0])), Tree("name", [node.children[1]], node.meta)
    number = _number(named, scope, "what a number stands before")
    run = number.run
    return Compiled(number.type, lambda frame: factor * run(frame), number.reads)


def _negative(node: Node, scope: Scope) -> Compiled:
    number = _number(_node(node.children[0]), scope, "what stands after -")
    run = number.run
    return Compiled(number.type, lambda frame: -run(frame), number.reads)


def _compare(node: Node, scope: Scope) -> Compiled:
    sign = str(node.children[1])
    left, right = (compile_expression(_node(node.children[i]), scope) for i in (0, 2))
    if joined(left.type, right.type) is None:
        raise scope.error(node, f"{left.type} cannot be compared with {right.type}.")
    if sign not in ("=", "<>") and left.type not in NUMBERS:
        raise scope.error(node, f"{sign} compares numbers, not {left.type}.")
    return _binary(_COMPARE[sign], left, right, BOOL)


def _member(node: Node, scope: Scope) -> Compiled:
    item, holder = (compile_expression(_node(child), scope) for child in node.children)
    element = _elements(holder, _node(node.children[1]), scope, "what stands after inset")
    if joined(item.type, element) is None:
        raise scope.error(node, f"{holder.type} cannot hold {item.type}.")
    return _binary(lambda one, many: one in many, item, holder, BOOL)


def _binary(operate: Callable[[Any, Any], Any], left: Compiled, right: Compiled, type_: Type) -> Compiled:
    first, second = left.run, right.run
    return Compiled(type_, lambda frame: operate(first(frame), second(frame)), _reads(left, right))


# Logic, from left to right and no further than needed


def _and(node: Node, scope: Scope) -> Compiled:
    left, right = (_typed(_node(child), scope, BOOL, "each side of and") for child in node.children)
    first, second = left.run, right.run
    return Compiled(BOOL, lambda frame: first(frame) and second(frame), _reads(left, right))


def _or(node: Node, scope: Scope) -> Compiled:
    left, right = (_typed(_node(child), scope, BOOL, "each side of or") for child in node.children)
    first, second = left.run, right.run
    return Compiled(BOOL, lambda frame: first(frame) or second(frame), _reads(left, right))


def _implies(node: Node, scope: Scope) -> Compiled:
    left, right = (_typed(_node(child), scope, BOOL, "each side of implies") for child in node.children)
    first, second = left.run, right.run
    return Compiled(BOOL, lambda frame: not first(frame) or second(frame), _reads(left, right))


def _not(node: Node, scope: Scope) -> Compiled:
    inner = _typed(_node(node.children[0]), scope, BOOL, "what stands after not")
    run = inner.run
    return Compiled(BOOL, lambda frame: not run(frame), inner.reads)


def _choice(node: Node, scope: Scope) -> Compiled:
    condition = _typed(_node(node.children[0]), scope, BOOL, "what stands after if")
    yes, no = (compile_expression(_node(child), scope) for child in node.children[1:])
    type_ = joined(yes.type, no.type)
    if type_ is None:
        raise scope.error(node, f"then gives {yes.type}, but else gives {no.type}.")
    test, first, second = condition.run, yes.run, no.run
    run: Run = lambda frame: first(frame) if test(frame) else second(frame)  # noqa: E731
    return Compiled(type_, run, _reads(condition, yes, no))


# What binds a variable of its own


def _let_in(node: Node, scope: Scope) -> Compiled:
    value = compile_expression(_node(node.children[1]), scope)
    slot, body = _within(_token(node.children[0]), value.type, _node(node.children[2]), scope)
    compute, inner = value.run, body.run

    def run(frame: Frame) -> Any:
        frame[slot] = compute(frame)
        return inner(frame)

    return Compiled(body.type, run, value.reads | body.reads)


def _quantified(node: Node, scope: Scope, what: str) -> tuple[Run, int, Compiled, frozenset[str]]:
    """The domain's elements, the slot of the bound variable, the body, and what both read."""
    binder, body = (_node(child) for child in node.children)
    domain, element = _domain(_node(binder.children[1]), scope)
    slot, inner = _within(_token(binder.children[0]), element, body, scope)
    if inner.type != BOOL:
        raise scope.error(body, f"{what} needs a condition, but this is {inner.type}.")
    return domain.run, slot, inner, domain.reads | inner.reads


def _forall(node: Node, scope: Scope) -> Compiled:
    domain, slot, body, reads = _quantified(node, scope, "forall")
    holds = body.run

    def run(frame: Frame) -> bool:
        return all(holds(frame) for frame[slot] in domain(frame))

    return Compiled(BOOL, run, reads)


def _exists(node: Node, scope: Scope) -> Compiled:
    domain, slot, body, reads = _quantified(node, scope, "exists")
    holds = body.run

    def run(frame: Frame) -> bool:
        return any(holds(frame) for frame[slot] in domain(frame))

    return Compiled(BOOL, run, reads)


def _comprehension(node: Node, scope: Scope) -> Compiled:
    body, binder, *filters = (_node(child) for child in node.children)
    domain, element = _domain(_node(binder.children[1]), scope)
    name = _token(binder.children[0])
    slot, inner = _within(name, element, body, scope)
    elements, value = domain.run, inner.run
    reads = domain.reads | inner.reads
    if not filters:

        def run(frame: Frame) -> tuple[Any, ...]:
            return tuple([value(frame) for frame[slot] in elements(frame)])

        return Compiled(sequence_of(inner.type), run, reads)
    chosen, condition = _within(name, element, filters[0], scope)
    if condition.type != BOOL:
        raise scope.error(filters[0], f"where needs a condition, but this is {condition.type}.")
    holds = condition.run

    def run_filtered(frame: Frame) -> tuple[Any, ...]:
        results = []
        for item in elements(frame):
            frame[slot] = frame[chosen] = item
            if holds(frame):
                results.append(value(frame))
        return tuple(results)

    return Compiled(sequence_of(inner.type), run_filtered, reads | condition.reads)


def _domain(node: Node, scope: Scope) -> tuple[Compiled, Type]:
    if node.data == "range":
        first, last = (_typed(_node(child), scope, INT, "each end of a range") for child in node.children)
        return _binary(lambda start, end: range(start, end + 1), first, last, sequence_of(INT)), INT
    if node.data == "all_sets":
        return _all_sets(node, scope)
    compiled = compile_expression(node, scope)
    return compiled, _elements(compiled, node, scope, "what a variable runs over")


def _all_sets(node: Node, scope: Scope) -> tuple[Compiled, Type]:
    if not scope.set_members:
        raise scope.error(node, "no named set is taken here; a process takes one as Name: set.")
    element = ANY
    for name, type_ in scope.set_members.items():
        both = joined(element, type_.widened())
        if both is None:
            raise scope.error(node, f"the sets have members of {element} and of {type_} ({name}).")
        element = both
    members = [scope.variables[name] for name in scope.set_members]
    runs = [member.run for member in members]
    return Compiled(sequence_of(element), lambda frame: [run(frame) for run in runs], _reads(*members)), element


def _within(name: Token, type_: Type, body: Node, scope: Scope) -> tuple[int, Compiled]:
    """The body compiled where the name stands for a variable of its own, and that variable's slot."""
    hidden = scope.variables.get(name)
    slot = scope.add_variable(name, type_)
    compiled = compile_expression(body, scope)
    del scope.variables[name]
    if hidden is not None:
        raise scope.error(name, f"{name} already has a meaning here; choose another name.")
    return slot, Compiled(compiled.type, compiled.run, compiled.reads - {str(name)})


def _reads(*parts: Compiled) -> frozenset[str]:
    return frozenset().union(*(part.reads for part in parts))


def _node(child: Node | Token) -> Node:
    assert not isinstance(child, Token)
    return child


def _token(child: Node | Token) -> Token:
    assert isinstance(child, Token)
    return child


_COMPILERS: dict[str, Callable[[Node, Scope], Compiled]] = {
    "integer": _literal(int, INT),
    "real": _literal(float, REAL),
    "string": _literal(lambda text: text[1:-1], STRING),
    "true": _literal(lambda _: True, BOOL),
    "false": _literal(lambda _: False, BOOL),
    "name": _name,
    "sequence": _sequence,
    "tuple": _tuple,
    "apply": _apply,
    "arithmetic": _arithmetic,
    "multiple": _multiple,
    "negative": _negative,
    "compare": _compare,
    "member": _member,
    "and_": _and,
    "or_": _or,
    "implies": _implies,
    "not_": _not,
    "choice": _choice,
    "let_in": _let_in,
    "forall": _forall,
    "exists": _exists,
    "comprehension": _comprehension,
}
