"""Specifications read from files: all their constants, functions and processes are one name space."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from lark import Token

from oomcast.errors import UnknownName, UnreadableFile

from .compile import UNSET, Compiled, Frame, Function, Scope, compile_expression
from .parse import Node, Source, parse
from .process import Condition, Process, Scenario
from .types import BOOL, BUILTINS, INT, REAL, SpecificationError, Type, joined

__all__ = ["Library", "layer_specifications", "read_library"]


class Library:
    """Every process, by name. All of it is compiled when the library is made, so its errors show at once."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._constants: dict[str, Compiled] = {}
        self._sets: dict[str, tuple[Type, list[str]]] = {}
        self._functions: dict[str, tuple[Source, Node]] = {}
        self._compiled: dict[str, Function | None] = {}
        definitions: list[tuple[Source, Node]] = [
            (source, node) for source in sources for node in parse(source).children if not isinstance(node, Token)
        ]
        self._refuse_twice(definitions)
        self._sets = {
            _name(node): (_type(_child(node, 1)), [str(name) for name in node.children[2:]])
            for _, node in definitions
            if node.data == "named_set"
        }
        self._functions = {_name(node): (source, node) for source, node in definitions if node.data == "function"}
        for source, node in definitions:
            if node.data == "constant":
                self._constants[_name(node)] = compile_expression(_child(node, 1), self._scope(source))
        for name in self._functions:
            self._function(name)
        self.processes: dict[str, Process] = {
            _name(node): self._process(source, node) for source, node in definitions if node.data == "process"
        }

    def process(self, name: str) -> Process:
        if name not in self.processes:
            raise UnknownName("process", name, self.processes)
        return self.processes[name]

    def _refuse_twice(self, definitions: list[tuple[Source, Node]]) -> None:
        places: dict[str, str] = {}
        for source, node in definitions:
            token, place = _token(node, 0), source.place(_token(node, 0))
            if token in places:
                raise SpecificationError(place, f"{token} is already defined at {places[token]}.")
            if token in BUILTINS:
                raise SpecificationError(place, f"{token} is an operator of the language; choose another name.")
            places[str(token)] = str(place)

    def _scope(self, source: Source) -> Scope:
        return Scope(source, self._constants, self._function, list(self._functions))

    def _function(self, name: str) -> Function | None:
        """Compiled on first use; a function that needs itself would not end, and is refused."""
        if name not in self._functions:
            return None
        if name in self._compiled:
            compiled = self._compiled[name]
            if compiled is None:
                source, node = self._functions[name]
                raise SpecificationError(source.place(node), f"the function {name} calls itself.")
            return compiled
        self._compiled[name] = None
        source, node = self._functions[name]
        scope = self._scope(source)
        parameters = _declared(scope, _child(node, 1))
        result = _type(_child(node, 2))
        body = compile_expression(_child(node, 3), scope)
        _must_fit(scope, _child(node, 3), body.type, result, f"the function {name}")
        run, extra = body.run, scope.slots - len(parameters)

        def call(*arguments: Any) -> Any:
            frame: Frame = [*arguments, *([UNSET] * extra)]
            return run(frame)

        function = Function(tuple(type_ for _, type_ in parameters), result.widened(), call)
        self._compiled[name] = function
        return function

    def _process(self, source: Source, node: Node) -> Process:
        scope = self._scope(source)
        inputs = _declared(scope, _child(node, 1), self._sets)
        *definitions, pre, post = node.children[3:]
        for definition in definitions:
            assert not isinstance(definition, Token)
            token = _token(definition, 0)
            if token in scope.variables:
                raise scope.error(token, f"{token} already has a meaning here; choose another name.")
            scope.add_definition(str(token), compile_expression(_child(definition, 1), scope))
        preconditions = tuple(_condition(part, scope) for part in _parts(pre, "and_"))
        outputs = _parameters(_child(node, 2))
        scenarios = _scenarios(list(_parts(post, "or_")), outputs, scope)
        place = source.place(_token(node, 0))
        return Process(_name(node), source.file, place.line, inputs, outputs, preconditions, scenarios, scope.slots)


def read_library(paths: Iterable[Path]) -> Library:
    """The specifications in some files, together."""
    sources = []
    for path in paths:
        try:
            sources.append(Source(path.name, path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise UnreadableFile(f"cannot read the specification {path}: {error}.") from None
    return Library(sources)


@cache
def layer_specifications() -> Library:
    """oomcast's own processes: one for each kind of layer."""
    folder = files(__package__).joinpath("processes")
    specifications = sorted(
        (item for item in folder.iterdir() if item.name.endswith(".sofl")), key=lambda item: item.name
    )
    return Library(Source(item.name, item.read_text(encoding="utf-8")) for item in specifications)


def _scenarios(parts: list[Node], outputs: tuple[tuple[str, Type], ...], scope: Scope) -> tuple[Scenario, ...]:
    """The disjuncts of a postcondition.

    One that defines no output shares the definitions of the next that does: in `A and y = true or B or C and y = false`
    B is another guard of `y = false`, as Definition 3 of the TBEM paper reads its listing 1.
    """
    types, scenarios = dict(outputs), []
    shared: list[Node] = []
    for part in parts:
        defines = any(_defined_output(conjunct, types) for conjunct in _parts(part, "and_"))
        if not defines and part is not parts[-1]:
            shared.append(part)
            continue
        scenario = _scenario(part, outputs, scope)
        for guard in shared:
            guards = tuple(_condition(conjunct, scope, outputs=types) for conjunct in _parts(guard, "and_"))
            scenarios.append(Scenario(guards, scenario.defines))
        scenarios.append(scenario)
        shared = []
    return tuple(scenarios)


def _scenario(node: Node, outputs: tuple[tuple[str, Type], ...], scope: Scope) -> Scenario:
    """The conjuncts without an output are guards; the others define one output each, as `output = expression`."""
    types = dict(outputs)
    guards: list[Condition] = []
    defines: dict[str, tuple[str, int, Condition]] = {}
    hidden = {name: scope.variables.pop(name) for name in types if name in scope.variables}
    if hidden:
        raise scope.error(node, f"{next(iter(hidden))} is both an input and an output.")
    for part in _parts(node, "and_"):
        output = _defined_output(part, types)
        if output is None:
            guards.append(_condition(part, scope, outputs=types))
            continue
        if output in defines:
            raise scope.error(part, f"{output} is defined twice in one scenario.")
        value = compile_expression(_child(part, 2), scope)
        _must_fit(scope, part, value.type, types[output], f"the output {output}")
        condition = _explained(part, value, scope)
        defines[output] = (output, scope.add_variable(output, types[output]), condition)
    missing = [name for name in types if name not in defines]
    for name in defines:
        del scope.variables[name]
    if missing:
        raise scope.error(node, f"this scenario does not define {missing[0]}; write {missing[0]} = … in it.")
    return Scenario(tuple(guards), tuple(defines.values()))


def _defined_output(part: Node, outputs: dict[str, Type]) -> str | None:
    if part.data != "compare" or str(part.children[1]) != "=":
        return None
    left = _child(part, 0)
    name = str(left.children[0]) if left.data == "name" else ""
    return name if name in outputs else None


def _condition(part: Node, scope: Scope, outputs: Iterable[str] = ()) -> Condition:
    for token in part.scan_values(lambda value: isinstance(value, Token) and value.type == "NAME"):
        if token in outputs:
            raise scope.error(token, f"an output is defined as {token} = …; a guard cannot use it.")
    compiled = compile_expression(part, scope)
    if compiled.type != BOOL:
        raise scope.error(part, f"a condition must be bool, but this is {compiled.type}.")
    return _explained(part, compiled, scope)


def _explained(part: Node, compiled: Compiled, scope: Scope) -> Condition:
    reads = tuple((name, scope.variables[name].run) for name in scope.variables if name in compiled.reads)
    return Condition(scope.source.text_of(part), scope.source.place(part).line, compiled.run, reads)


def _must_fit(scope: Scope, node: Node, type_: Type, declared: Type, what: str) -> None:
    wanted = declared.widened()
    both = joined(type_, wanted)
    if both is None or both != wanted or (type_ == REAL and wanted == INT):
        raise scope.error(node, f"{what} is declared as {declared}, but this is {type_}.")


def _parts(node: Node | Token, operator: str) -> Iterator[Node]:
    """The operands of a chain of one operator, in order."""
    assert not isinstance(node, Token)
    if node.data != operator:
        yield node
        return
    for child in node.children:
        yield from _parts(child, operator)


def _declared(
    scope: Scope, node: Node, sets: Mapping[str, tuple[Type, list[str]]] | None = None
) -> tuple[tuple[str, Type], ...]:
    """The parameters; in the place of a named set, its members."""
    parameters: list[tuple[str, Type]] = []
    for name, type_ in _parameters(node):
        if type_.name != "set":
            parameters.append((name, type_))
            continue
        if sets is None or name not in sets:
            raise scope.error(node, f"{name} is no named set; declare it before as {name} = set of nat = [a, b].")
        element, members = sets[name]
        parameters += [(member, element) for member in members]
        scope.set_members.update(dict.fromkeys(members, element))
    for name, type_ in parameters:
        if name in scope.variables:
            raise scope.error(node, f"{name} is declared twice.")
        scope.add_variable(name, type_)
    return tuple(parameters)


def _parameters(node: Node) -> tuple[tuple[str, Type], ...]:
    return tuple(
        (str(name), _type(_child(group, -1)))
        for group in (_child(node, index) for index in range(len(node.children)))
        for name in group.children[:-1]
    )


def _type(node: Node) -> Type:
    if node.data == "plain_type":
        return Type(str(node.children[0]))
    if node.data == "named_set_type":
        return Type("set")
    name = "seq" if node.data == "sequence_type" else "tuple"
    return Type(name, tuple(_type(_child(node, index)) for index in range(len(node.children))))


def _name(node: Node) -> str:
    return str(_token(node, 0))


def _token(node: Node, index: int) -> Token:
    child = node.children[index]
    assert isinstance(child, Token)
    return child


def _child(node: Node, index: int) -> Node:
    child = node.children[index]
    assert not isinstance(child, Token)
    return child
