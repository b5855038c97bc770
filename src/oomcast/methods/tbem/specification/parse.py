"""From a specification's text to its syntax tree, with errors that say what was expected and where."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from .types import Place, SpecificationError

__all__ = ["Node", "Source", "parse"]

Node = Tree[Token]

_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_WORDS = {
    "NAME": "a name",
    "INTEGER": "a number",
    "COEFFICIENT": "a number",
    "REAL": "a number",
    "STRING": "a text in quotes",
    "TYPE_NAME": "a type",
    "COMPARISON": "a comparison",
    "PLUS_MINUS": "+ or -",
    "PRODUCT": "*, /, div or mod",
    "$END": "the end of the file",
}


class Source:
    """One file's text, which knows where each piece of its tree stands."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text

    def place(self, node: Node | Token) -> Place:
        if isinstance(node, Token):
            return Place(self.file, node.line or 1, node.column or 1)
        return Place(self.file, node.meta.line, node.meta.column)

    def text_of(self, node: Node) -> str:
        """The text from which the node was read, on one line and without comments."""
        return " ".join(_COMMENT.sub(" ", self.text[node.meta.start_pos : node.meta.end_pos]).split())


def parse(source: Source) -> Node:
    endless = _ENDLESS_NUMBER.search(source.text)
    if endless:
        before = source.text[: endless.start()]
        place = Place(source.file, before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise SpecificationError(place, f"this number has more than {_MOST_DIGITS} digits; write a smaller one.")
    try:
        return _parser().parse(_without_line_numbers(source.text))
    except UnexpectedInput as error:
        raise _explained(source, error) from None


_MOST_DIGITS = 300
_ENDLESS_NUMBER = re.compile(rf"[0-9]{{{_MOST_DIGITS + 1}}}")
_LINE_NUMBER = re.compile(r"^([0-9]+)(?= |$)", re.MULTILINE)


def _without_line_numbers(text: str) -> str:
    """A listing copied from a page with its numbers, 1, 2, 3 …: blanks in their place keep lines and columns."""
    numbers = [int(number) for number in _LINE_NUMBER.findall(text)]
    if not text.startswith("1 ") or numbers != list(range(1, len(numbers) + 1)):
        return text
    return _LINE_NUMBER.sub(lambda number: " " * len(number.group()), text)


@cache
def _parser() -> Lark:
    grammar = files(__package__).joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def _explained(source: Source, error: UnexpectedInput) -> SpecificationError:
    if isinstance(error, UnexpectedCharacters):
        met = repr(error.char)
        expected = error.allowed or set()
    elif isinstance(error, UnexpectedToken) and error.token.type != "$END":
        met = repr(str(error.token))
        expected = set(error.accepts or error.expected)
    else:
        assert isinstance(error, (UnexpectedToken, UnexpectedEOF))
        lines = source.text.rstrip("\n").split("\n")
        place = Place(source.file, len(lines), len(lines[-1]) + 1)
        return SpecificationError(place, f"the text ends too early; expected {_either(set(error.expected))}.")
    place = Place(source.file, error.line, error.column)
    return SpecificationError(place, f"did not expect {met}; expected {_either(expected)}.")


def _either(terminals: set[str]) -> str:
    patterns = {terminal.name: terminal.pattern.value for terminal in _parser().terminals}
    words = sorted({_WORDS.get(name) or repr(patterns.get(name, name)) for name in terminals})
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]
