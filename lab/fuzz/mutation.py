"""Changed content: documents, texts, pickles and bytes that are almost what a reader expects."""

from __future__ import annotations

import copy
import pickletools
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

__all__ = ["changed_bytes", "changed_document", "changed_pickle", "changed_text", "hostile_value", "hostile_word"]

_SCALARS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63),
    10**40,
    10**400,
    0.0,
    -0.0,
    0.5,
    1e308,
    -1e308,
    5e-324,
    float("nan"),
    float("inf"),
    float("-inf"),
    "",
    " ",
    "0",
    "-1",
    "1e999",
    "nan",
    "cuda:0",
    "../../etc/passwd",
    "/dev/zero",
    "file:///etc/passwd",
    "\x00",
    "\x1b[2J\x1b]0;owned\x07",
    "\ud800",
    "[/x]",
    "[bold]",
    "{0.__class__}",
    "%s%n",
    "__import__('os').system('true')",
    "<script>alert(1)</script>",
    "é" * 3000,
    "9" * 5000,
    "x" * 100_000,
)
_MOST_CHANGES = 4
_WORDS = (
    "--",
    "-",
    "=",
    "--=",
    "--device=--",
    "-1",
    "0",
    "nan",
    "inf",
    "1e30",
    "1e999",
    "9" * 400,
    "2147483648",
    "18446744073709551616",
    "",
    " ",
    "\n",
    "\x1b[31m",
    "[/x]",
    "[bold]",
    "@",
    "~",
    "/",
    "/dev/null",
    "/dev/zero",
    "..",
    "a" * 5000,
    "zoo:",
    "zoo:mlp",
    "zoo:nope",
    "hf:",
    "hf:/nowhere",
    "template:",
    "template:mlp,depth=",
    "template:mlp,depth=99999999999",
    "a100",
    "a100-40gb",
    "8xh100-80gb",
    "t4",
    "3x224x224",
    "3x0x224",
    "1x" * 500,
    "x",
    "fp32",
    "amp-bf16",
    "adam",
    "adam-fused-fused",
    "expandable_segments:True",
    "max_split_size_mb:1",
    "max_split_size_mb:99999999999999999999",
    "roundup_power2_divisions:[256:1,512:2",
    "garbage_collection_threshold:2",
    "torch-2.6",
    "torch-99",
    "torch-2.6-cu0",
    "8GiB",
    "-8GiB",
    "1e400GiB",
    "layers.*",
    "layers.0,,",
)
_OPCODES = (
    b"cos\nsystem\n",
    b"cbuiltins\neval\n",
    b"\x8c\x02os\x8c\x06system\x93",
    b"S'touch ran'\n",
    b"R",
    b"\x81",
    b"\x92",
    b"b",
    b"o",
    b"ios\nsystem\n",
    b"P0\n",
    b"Q",
    b"\x82\x01",
    b"\x84\xff\xff\xff\x7f",
    b"(",
    b"0",
    b"1",
    b"2",
    b"t",
    b"l",
    b"d",
    b"}",
    b"]",
    b")",
    b"a",
    b"e",
    b"s",
    b"u",
    b"\x90",
    b"\x91",
    b"\x94",
    b"h\x00",
    b"j\x00\x00\x00\x00",
    b"r\xff\xff\xff\x7f",
    b"p999999999999\n",
    b"g0\n",
    b"X\xff\xff\xff\x7f",
    b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x8b\xff\xff\xff\x7f",
    b"\x95\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x96\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x97",
    b"\x98",
    b"I" + b"9" * 5000 + b"\n",
    b"L" + b"9" * 5000 + b"L\n",
    b"F1e999\n",
    b"\x80\xff",
    b".",
)


def hostile_value(random: Random) -> Any:
    """A scalar, or something nested."""
    choice = random.random()
    if choice < 0.8:
        return random.choice(_SCALARS)
    if choice < 0.9:
        value: Any = random.choice(_SCALARS)
        for _ in range(random.choice((3, 60, 400))):
            value = [value]
        return value
    return random.choice(([], {}, [[]], {"": {}}, [None] * 1000, {str(n): n for n in range(100)}))


def hostile_word(random: Random) -> str:
    return random.choice(_WORDS)


# -- documents ---------------------------------------------------------------------------------------------------------


def changed_document(document: Any, random: Random, *, shared: bool = False) -> Any:
    """A document of lists, dictionaries and scalars, with some of its parts changed, moved, repeated or gone.

    It is changed in place. `shared`: for formats in which the same part can stand in many places and be written once.
    """
    for _ in range(random.randint(1, _MOST_CHANGES)):
        places = _places(document, random)
        if not places:
            return hostile_value(random)
        holder, key = random.choice(places)
        random.choice((*_CHANGES, _share) if shared else _CHANGES)(holder, key, random, places)
    return document


def _places(document: Any, random: Random) -> list[tuple[Any, Any]]:
    """Where a part stands: its holder and its key. Of a long list, only some."""
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting and len(found) < 400:
        holder = waiting.pop()
        keys: Sequence[Any] = (
            list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        )
        for key in random.sample(keys, min(len(keys), 12)):
            found.append((holder, key))
            waiting.append(holder[key])
    return found


def _replace(holder: Any, key: Any, random: Random, places: Any) -> None:
    holder[key] = hostile_value(random)


def _nudge(holder: Any, key: Any, random: Random, places: Any) -> None:
    value = holder[key]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            holder[key] = random.choice(
                (value + 1, value - 1, -value, value * 2, value * 10**9, float(value), str(value))
            )
        except OverflowError:
            holder[key] = 0
    elif isinstance(value, str):
        holder[key] = changed_text(value, random)
    else:
        holder[key] = hostile_value(random)


def _remove(holder: Any, key: Any, random: Random, places: Any) -> None:
    if isinstance(holder, dict):
        holder.pop(key, None)
    elif len(holder) > 1:
        holder.pop(min(key, len(holder) - 1))


def _rename(holder: Any, key: Any, random: Random, places: Any) -> None:
    if isinstance(holder, dict) and key in holder:
        holder[changed_text(str(key), random)] = holder.pop(key)


def _repeat(holder: Any, key: Any, random: Random, places: Any) -> None:
    """The same object many times over: a small pickle can say that."""
    part = holder.get(key) if isinstance(holder, dict) else holder[key] if key < len(holder) else None
    is_short = not isinstance(part, (list, dict)) and len(str(part)) < 100  # else: files of gigabytes
    times = random.choice((1, 10, 3000 if is_short else 30))
    if isinstance(holder, list) and key < len(holder):
        holder.extend([part] * times)
    else:
        holder[key] = [part] * times if isinstance(holder, dict) else None


def _move(holder: Any, key: Any, random: Random, places: Any) -> None:
    other, place = random.choice(places)
    try:
        holder[key] = copy.deepcopy(other[place])
    except (LookupError, TypeError, RecursionError):  # gone by an earlier change, or too deep
        return


def _share(holder: Any, key: Any, random: Random, places: Any) -> None:
    """Nested lists of shared parts: 2 to the power of 40 leaves in 40 lists."""
    value: Any = ["x"]
    for _ in range(random.choice((5, 17, 40))):
        value = [value, value]
    holder[key] = value


_CHANGES: tuple[Callable[[Any, Any, Random, Any], None], ...] = (
    _replace,
    _replace,
    _nudge,
    _nudge,
    _remove,
    _rename,
    _repeat,
    _move,
)


# -- texts, bytes, pickles ---------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s+|\w+|.", re.DOTALL)


def changed_text(text: str, random: Random, *others: str) -> str:
    """By tokens, which may come from other texts too."""
    tokens = _TOKEN.findall(text)
    pool = _TOKEN.findall(random.choice(others)) if others and random.random() < 0.4 else tokens
    for _ in range(random.randint(1, _MOST_CHANGES)):
        place = random.randrange(len(tokens) + 1)
        kind = random.randrange(7)
        if kind == 0:
            tokens[place : place + random.choice((1, 1, 5, 50))] = []
        elif kind == 1 and pool:
            start = random.randrange(len(pool))
            tokens[place:place] = pool[start : start + random.choice((1, 3, 30))]
        elif kind == 2:
            tokens[place : place + 1] = [_as_text(random)]
        elif kind == 3:
            tokens[place:place] = [random.choice("[({<\"'/*#-=.,;:|&!") * random.choice((1, 2, 300, 5000))]
        elif kind == 4 and place < len(tokens):
            tokens[place] = tokens[place] * random.choice((2, 100))
        elif kind == 5 and len(tokens) > 1:
            other = random.randrange(len(tokens))
            place = min(place, len(tokens) - 1)
            tokens[place], tokens[other] = tokens[other], tokens[place]
        else:
            tokens[place:] = [] if random.random() < 0.3 else tokens[place:][::-1][:200]
    return "".join(tokens)


def _as_text(random: Random) -> str:
    value = random.choice(_SCALARS)
    return value if isinstance(value, str) else repr(value).lower()


def changed_bytes(data: bytes, random: Random, *others: bytes) -> bytes:
    content = bytearray(data)
    for _ in range(random.randint(1, _MOST_CHANGES)):
        place = random.randrange(len(content) + 1)
        kind = random.randrange(6)
        if kind == 0 and place < len(content):
            content[place] ^= 1 << random.randrange(8)
        elif kind == 1:
            del content[place : place + random.choice((1, 4, 100, 10_000))]
        elif kind == 2:
            content[place:place] = random.randbytes(random.choice((1, 4, 100)))
        elif kind == 3:
            content[place : place + 4] = random.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f"))
        elif kind == 4:
            other = random.choice(others) if others else data
            start = random.randrange(len(other) + 1)
            content[place:] = other[start:]
        else:
            content[place:place] = content[place : place + 50] * random.choice((1, 100))
    return bytes(content)


def changed_pickle(data: bytes, random: Random) -> bytes:
    """By operations: some gone, some twice, some that would run code or ask for memory without end."""
    try:
        starts = [position for _, _, position in pickletools.genops(data) if position is not None]
    except (ValueError, IndexError):
        return changed_bytes(data, random)
    if len(starts) > 3000:
        return changed_bytes(data, random)
    operations = [data[start:end] for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]
    for _ in range(random.randint(1, _MOST_CHANGES)):
        place = random.randrange(len(operations) + 1)
        kind = random.randrange(4)
        if kind == 0:
            del operations[place : place + random.choice((1, 1, 10))]
        elif kind == 1:
            operations[place:place] = operations[place : place + random.choice((1, 5, 50))]
        else:
            operations[place:place] = [random.choice(_OPCODES)] * random.choice((1, 1, 1, 2, 500))
    return b"".join(operations)
