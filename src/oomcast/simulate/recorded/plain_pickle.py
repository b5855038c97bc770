"""Reads pickles of plain data without unpickling: nothing a file says is ever looked up, called or built.

Only opcodes that make numbers, text, bytes, lists, tuples and dicts are known here, as protocols 2 to 5 write them;
any other one ends the reading. Memory stays in proportion to the file (at most some 80 times its size): claimed
lengths are checked against what is there, numbers are bounded, and what a byte or two can make, an empty list or an
entry of the memo, is counted. Nesting costs no recursion, and dict keys are text or numbers only, so that no
hash walks a structure that refers to itself a thousand times over.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

__all__ = ["NotPlainData", "read_plain_pickle"]

_LONGEST_NUMBER = 64
"""Bytes: ample for addresses and times."""
_BYTES_A_THING = 2
"""A list, dict or tuple takes a byte to make and one to put where it belongs; no more are remembered than there are."""
_SPARE_THINGS = 1000


_TOO_MANY = "it holds more lists than its size allows"
_MARK, _BININT1, _BINGET, _LONG_BINGET, _MEMOIZE = b"(Khj\x94"


class NotPlainData(ValueError):
    """The bytes are no pickle, a damaged one, or one that holds more than plain data."""


def read_plain_pickle(data: bytes) -> Any:
    """The value a pickle of plain data holds; raises `NotPlainData`."""
    return _Reader(data).read()


class _Stopped(Exception):
    pass


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.containers = 0
        self.most = _SPARE_THINGS + len(data) // _BYTES_A_THING

    def read(self) -> Any:
        data, opcodes = self.data, _OPCODES
        if data[:1] != b"\x80":
            raise NotPlainData("it does not begin like a pickle")
        stack, memo = self.stack, self.memo
        at = 0
        try:
            while True:
                code = data[at]
                at += 1
                # Nine of ten opcodes of a snapshot are these five; a call for each would take three times as long.
                if code == _MEMOIZE:
                    if len(memo) > self.most:
                        raise NotPlainData(_TOO_MANY)
                    memo[len(memo)] = stack[-1]
                elif code == _BINGET:
                    stack.append(memo[data[at]])
                    at += 1
                elif code == _LONG_BINGET:
                    stack.append(memo[data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24])
                    at += 4
                elif code == _BININT1:
                    stack.append(data[at])
                    at += 1
                elif code == _MARK:
                    self.marks.append(len(stack))
                else:
                    act = opcodes.get(code)
                    if act is None:
                        raise NotPlainData(f"it holds more than plain data (opcode {code:#04x} at byte {at - 1})")
                    self.at = at
                    act(self)
                    at = self.at
        except _Stopped:
            return self.stack[-1]
        except (IndexError, struct.error) as error:
            raise NotPlainData("it is truncated or damaged") from error
        except (KeyError, TypeError, AttributeError, UnicodeDecodeError, ValueError) as error:
            if isinstance(error, NotPlainData):
                raise
            raise NotPlainData("it is damaged") from error

    def take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self.data):
            raise NotPlainData("it is truncated, or claims to hold more than it does")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def push_container(self, container: Any) -> None:
        self.containers += 1
        if self.containers > self.most:
            raise NotPlainData(_TOO_MANY)
        self.stack.append(container)

    def unsigned(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def number(self, length: int) -> int:
        if length > _LONGEST_NUMBER:
            raise NotPlainData(f"it holds a number of {length} bytes")
        return int.from_bytes(self.take(length), "little", signed=True)

    def pop(self) -> Any:
        # Values below the last mark are not this operation's to take.
        if self.marks and len(self.stack) <= self.marks[-1]:
            raise NotPlainData("it is damaged")
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def top(self, kind: type) -> Any:
        value = self.stack[-1]
        if type(value) is not kind:
            raise NotPlainData("it is damaged")
        return value

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        if len(items) % 2:
            raise NotPlainData("it is damaged")
        for index in range(0, len(items), 2):
            key = items[index]
            if type(key) not in (str, int):
                raise NotPlainData("it holds a dict with keys other than text and numbers")
            target[key] = items[index + 1]


def _stop(r: _Reader) -> None:
    if len(r.stack) != 1 or r.marks:
        raise NotPlainData("it is damaged")
    raise _Stopped


def _protocol(r: _Reader) -> None:
    version = r.unsigned(1)
    if not 2 <= version <= 5:
        raise NotPlainData(f"it is of pickle protocol {version}, not 2 to 5")


def _pop(r: _Reader) -> None:
    r.pop()


def _pop_mark(r: _Reader) -> None:
    r.pop_to_mark()


def _duplicate(r: _Reader) -> None:
    r.stack.append(r.stack[-1])


def _push(value: Any) -> Callable[[_Reader], None]:
    def act(r: _Reader) -> None:
        r.stack.append(value)

    return act


def _list(r: _Reader) -> None:
    r.push_container([])


def _dict(r: _Reader) -> None:
    r.push_container({})


def _unsigned(width: int) -> Callable[[_Reader], None]:
    def act(r: _Reader) -> None:
        r.stack.append(r.unsigned(width))

    return act


def _int32(r: _Reader) -> None:
    r.stack.append(int.from_bytes(r.take(4), "little", signed=True))


def _long(width: int) -> Callable[[_Reader], None]:
    def act(r: _Reader) -> None:
        r.stack.append(r.number(r.unsigned(width)))

    return act


def _float(r: _Reader) -> None:
    r.stack.append(struct.unpack(">d", r.take(8))[0])


def _text(width: int) -> Callable[[_Reader], None]:
    def act(r: _Reader) -> None:
        r.stack.append(r.take(r.unsigned(width)).decode("utf-8", "surrogatepass"))

    return act


def _bytes(width: int) -> Callable[[_Reader], None]:
    def act(r: _Reader) -> None:
        r.stack.append(r.take(r.unsigned(width)))

    return act


def _tuple_of(count: int) -> Callable[[_Reader], None]:
    def act(r: _Reader) -> None:
        items = [r.pop() for _ in range(count)]
        r.push_container(tuple(reversed(items)))

    return act


def _tuple(r: _Reader) -> None:
    r.push_container(tuple(r.pop_to_mark()))


def _append(r: _Reader) -> None:
    value = r.pop()
    r.top(list).append(value)


def _appends(r: _Reader) -> None:
    items = r.pop_to_mark()
    r.top(list).extend(items)


def _set_item(r: _Reader) -> None:
    value, key = r.pop(), r.pop()
    r.set_items([key, value])


def _set_items(r: _Reader) -> None:
    r.set_items(r.pop_to_mark())


def _put(width: int) -> Callable[[_Reader], None]:
    # The memo is a dict, so a huge index costs nothing.
    def act(r: _Reader) -> None:
        if len(r.memo) > r.most:
            raise NotPlainData(_TOO_MANY)
        r.memo[r.unsigned(width)] = r.stack[-1]

    return act


def _skip_frame(r: _Reader) -> None:
    # A frame only tells how much to read ahead; the bytes are all here already.
    r.take(8)


_OPCODES: dict[int, Callable[[_Reader], None]] = {
    ord(code): act
    for code, act in {
        ".": _stop,
        "\x80": _protocol,
        "\x95": _skip_frame,
        "0": _pop,
        "1": _pop_mark,
        "2": _duplicate,
        "N": _push(None),
        "\x88": _push(True),
        "\x89": _push(False),
        ")": _push(()),
        "M": _unsigned(2),
        "J": _int32,
        "\x8a": _long(1),
        "\x8b": _long(4),
        "G": _float,
        "\x8c": _text(1),
        "X": _text(4),
        "\x8d": _text(8),
        "C": _bytes(1),
        "B": _bytes(4),
        "\x8e": _bytes(8),
        "]": _list,
        "}": _dict,
        "a": _append,
        "e": _appends,
        "s": _set_item,
        "u": _set_items,
        "\x85": _tuple_of(1),
        "\x86": _tuple_of(2),
        "\x87": _tuple_of(3),
        "t": _tuple,
        "q": _put(1),
        "r": _put(4),
    }.items()
}
