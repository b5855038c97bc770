"""Options declared once: a field of a description says its help, its flag and what it takes.

The command line, TOML tables, JSON and Python's keywords all derive from the fields, so that a new option is one new
field. A description is a frozen dataclass whose fields are made by `option`:

>>> @dataclass(frozen=True)
... class Workload:
...     batch_size: int = option(1, Whole("batch size"), help="samples per step and GPU", metavar="N")
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from ..errors import BadInput, UnknownName

__all__ = [
    "Flag",
    "Kind",
    "Number",
    "OneOf",
    "Option",
    "Size",
    "Switch",
    "Text",
    "Whole",
    "as_plain",
    "list_or_text",
    "option",
    "options_of",
    "read_description",
    "read_fields",
    "takes_options",
]

_KEY = "oomcast.option"
D = TypeVar("D")
F = TypeVar("F", bound=Callable[..., Any])


class Kind(ABC):
    """What an option takes. `read` is for values of Python, TOML and JSON, `parse` for words of a command line.

    Kinds are plain classes, since every command loads them: a frozen dataclass takes a millisecond to define.
    """

    words: str
    """What is expected, for the sentence that refuses something else."""
    is_closed = False
    """Whether its values are numbers and words of ours alone, in which nobody can name anything of their own."""

    @abstractmethod
    def read(self, value: Any) -> Any:
        """The value as the description holds it; raises BadInput."""

    def parse(self, text: str) -> Any:
        return self.read(text)

    def plain(self, value: Any) -> Any:
        """The value as JSON holds it."""
        return value.value if isinstance(value, Enum) else list(value) if isinstance(value, tuple) else value

    def spell(self, value: Any) -> str:
        """The value as a word of a command line, which `parse` reads."""
        plain = self.plain(value)
        return ",".join(map(str, plain)) if isinstance(plain, list) else str(plain)

    def schema(self) -> dict[str, Any]:
        """What `read` takes of JSON, as JSON Schema, for those who must describe it to programs."""
        return {"type": "string", "description": self.words}


class Whole(Kind):
    """A whole number that is not below `least`."""

    words = "a whole number"
    is_closed = True

    def __init__(self, what: str, least: int = 1) -> None:
        self.what, self.least = what, least

    def read(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < self.least:
            raise BadInput(f"the {self.what} must be a whole number of at least {self.least}, not {value!r}.")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least}

    def parse(self, text: str) -> int:
        try:
            return self.read(int(text))
        except ValueError:
            raise BadInput(
                f"the {self.what} must be a whole number of at least {self.least}, not {text[:40]!r}."
            ) from None


class Number(Kind):
    """A finite number above 0, and at most `most`."""

    words = "a number"
    is_closed = True

    def __init__(self, what: str, most: float = math.inf, unit: str = "") -> None:
        self.what, self.most, self.unit = what, most, unit

    def read(self, value: Any) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not (0 < value < math.inf and value <= self.most):
            limit = "" if math.isinf(self.most) else f" and at most {self.most:g}"
            shown = f"{value:g}" if isinstance(value, float) else repr(value)[:40]
            raise BadInput(f"the {self.what} must be above 0{self.unit}{limit}, not {shown}.")
        return float(value)

    def schema(self) -> dict[str, Any]:
        most = {} if math.isinf(self.most) else {"maximum": self.most}
        return {"type": "number", "exclusiveMinimum": 0, **most}

    def parse(self, text: str) -> float:
        try:
            return self.read(float(text))
        except ValueError:
            raise BadInput(f"the {self.what} must be a number, not {text[:40]!r}.") from None


class Switch(Kind):
    """True or false."""

    words = "true or false"
    is_closed = True

    def __init__(self, what: str) -> None:
        self.what = what

    def read(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise BadInput(f"{self.what} must be true or false, not {value!r}.")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Text(Kind):
    """A text that is not empty; a path is taken as its text."""

    words = "a text"

    def __init__(self, what: str = "text") -> None:
        self.what = what

    def read(self, value: Any) -> str:
        text = value if isinstance(value, str) else getattr(value, "__fspath__", lambda: None)()
        if not isinstance(text, str) or not text.strip():
            raise BadInput(f"the {self.what} must be a text that is not empty, not {value!r}.")
        return text


class Size(Kind):
    """Bytes: a whole number, or a text such as `8GiB`."""

    words = "a size such as '8GiB' or a number of bytes"
    is_closed = True

    def __init__(self, what: str) -> None:
        self.what = what

    def read(self, value: Any) -> int:
        from ..units import parse_bytes

        size = parse_bytes(value) if isinstance(value, str) else value
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise BadInput(f"the {self.what} must be {self.words}, not {value!r}.")
        return size

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}], "description": self.words}


class OneOf(Kind):
    """One of some names; upper case and underscores are taken as people write them."""

    words = "a text"
    is_closed = True

    def __init__(
        self, what: str, names: type[Enum] | tuple[str, ...], spellings: Mapping[str, str] | None = None
    ) -> None:
        self.what, self.names, self.spellings = what, names, spellings or {}

    @property
    def choices(self) -> tuple[str, ...]:
        return self.names if isinstance(self.names, tuple) else tuple(member.value for member in self.names)

    def read(self, value: Any) -> Any:
        if not isinstance(self.names, tuple) and isinstance(value, self.names):
            return value
        name = str(value).lower().replace("_", "-")
        name = self.spellings.get(name, name)
        if name not in self.choices:
            raise UnknownName(self.what, str(value), self.choices)
        return name if isinstance(self.names, tuple) else self.names(name)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.choices)}


def list_or_text(each: Mapping[str, Any], words: str) -> dict[str, Any]:
    """The schema of what may be written as a list or as one text."""
    return {"anyOf": [{"type": "array", "items": dict(each)}, {"type": "string"}], "description": words}


class Flag(NamedTuple):
    """One spelling of an option on the command line; `value` makes it a switch that sets that value."""

    name: str
    help: str
    metavar: str = ""
    value: Any = None

    @property
    def key(self) -> str:
        """How argparse keeps it."""
        return self.name.lstrip("-").replace("-", "_")


class Option(NamedTuple):
    """A field of a description, as whoever derives something from it sees it."""

    name: str
    kind: Kind
    default: Any
    flags: tuple[Flag, ...]
    """Several exclude each other; none where only Python has the option."""
    annotation: Any
    left_out_by_default: bool
    """Plain data leaves it out while it has its default, as data that was written before the option existed does."""

    def words(self, value: Any) -> list[str]:
        """A value of it as a command line has it; nothing where only Python has the option."""
        switch = next((flag for flag in self.flags if flag.value is not None and flag.value == value), None)
        if switch is not None:
            return [switch.name]
        flag = next((flag for flag in self.flags if flag.value is None), None)
        return [] if flag is None else [flag.name, self.kind.spell(value)]


def option(
    default: Any,
    kind: Kind,
    *,
    help: str,
    metavar: str = "",
    flags: Sequence[Flag] | None = None,
    left_out_by_default: bool = False,
) -> Any:
    """A field of a description. `flags` replaces the flag that follows from the field's name."""
    details = {"kind": kind, "help": help, "metavar": metavar, "flags": flags, "left_out": left_out_by_default}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={_KEY: details})
    return dataclasses.field(default=default, metadata={_KEY: details})


def options_of(*descriptions: type) -> tuple[Option, ...]:
    """The options of some descriptions, in the order of their fields."""
    return tuple(
        _option(field)
        for description in descriptions
        for field in dataclasses.fields(description)
        if _KEY in field.metadata
    )


def _option(field: dataclasses.Field[Any]) -> Option:
    details = field.metadata[_KEY]
    flags = details["flags"]
    if flags is None:
        value = True if isinstance(details["kind"], Switch) else None
        flags = (Flag("--" + field.name.replace("_", "-"), details["help"], details["metavar"], value),)
    return Option(field.name, details["kind"], field.default, tuple(flags), field.type, details["left_out"])


def read_description(description: type[D], values: Mapping[str, Any], **fields: Any) -> D:
    """The description with these options; None leaves one at its default. `fields` are those that are no options."""
    known = {declared.name: declared for declared in options_of(description)}
    for name in values:
        if name not in known:
            raise UnknownName("option", name, known)
    read = {name: known[name].kind.read(value) for name, value in values.items() if value is not None}
    missing = [
        declared.name
        for declared in known.values()
        if declared.default is dataclasses.MISSING and declared.name not in read
    ]
    if missing:
        raise BadInput(f"the option {missing[0]} is missing.")
    return description(**fields, **read)


def read_fields(described: Any) -> None:
    """For `__post_init__`: every option as its kind reads it, however the description was made."""
    for declared in options_of(type(described)):
        value = getattr(described, declared.name)
        if value is not None:
            object.__setattr__(described, declared.name, declared.kind.read(value))


def as_plain(described: Any) -> dict[str, Any]:
    """The options of a description as JSON data that `read_description` takes."""
    listed = ((declared, getattr(described, declared.name)) for declared in options_of(type(described)))
    return {
        declared.name: declared.kind.plain(value)
        for declared, value in listed
        if not (declared.left_out_by_default and value == declared.default)
    }


def takes_options(*descriptions: type, without: Collection[str] = ()) -> Callable[[F], F]:
    """For a function whose `**options` are the descriptions' options: `help()` shows each that is not in `without`."""

    def with_signature(function: F) -> F:
        signature = inspect.signature(function)
        own = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        taken = {*signature.parameters, *without}
        derived = [
            inspect.Parameter(
                declared.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if declared.default is dataclasses.MISSING else declared.default,
                annotation=declared.annotation,
            )
            for declared in options_of(*descriptions)
            if declared.name not in taken
        ]
        function.__signature__ = signature.replace(parameters=[*own, *derived])  # type: ignore[attr-defined]
        return function

    return with_signature
