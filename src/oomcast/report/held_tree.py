"""What is held at the peak as a tree: by module path, or by source line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..simulate import Action, History
from ..trace import Allocation
from .curve import CATEGORIES

__all__ = ["Held", "line_tree", "module_tree"]

_LEAST_SHARE = 0.0005
_OUTSIDE = "outside of any module"
_NO_LINE = "no line known"

_Path = tuple[str, ...]


@dataclass
class Held:
    """A module, a file or a line, with what is held by it."""

    name: str
    bytes: list[int] = field(default_factory=lambda: [0] * len(CATEGORIES))
    """By category, those of its children included."""
    children: list[Held] = field(default_factory=list)
    """Largest first; what is no child's is its own."""
    line: str = ""
    """Where it is a source line: the whole of it, with the file."""

    @property
    def total(self) -> int:
        return sum(self.bytes)

    def walk(self, depth: int) -> Iterator[tuple[int, str, Held]]:
        """Down to `depth`, with the level and the dotted path; the root itself is left out."""
        return self._below(0, "", depth)

    def _below(self, level: int, path: str, depth: int) -> Iterator[tuple[int, str, Held]]:
        if level == depth:
            return
        for child in self.children:
            whole = f"{path}.{child.name}" if path else child.name
            yield level, whole, child
            yield from child._below(level + 1, whole, depth)


def module_tree(history: History, with_lines: bool = False) -> Held:
    """Small siblings are put together, and a module with only one child is joined with it.

    `with_lines`: below each module the lines that took what it holds, where they are known.
    """

    def place(made: Allocation | None) -> tuple[_Path, str]:
        module = made.module if made is not None else ""
        return tuple(module.split(".")) if module else (_OUTSIDE,), made.source if made and with_lines else ""

    return _tree(history, place)


def line_tree(history: History) -> Held:
    """The files, in each of them its lines."""

    def place(made: Allocation | None) -> tuple[_Path, str]:
        source = made.source if made is not None else ""
        return (source.rpartition(":")[0] or source or _NO_LINE,), source

    return _tree(history, place)


def _tree(history: History, place: Callable[[Allocation | None], tuple[_Path, str]]) -> Held:
    root = Held("")
    known: dict[tuple[_Path, str], Held] = {((), ""): root}

    def node(path: _Path, line: str) -> Held:
        if (path, line) not in known:
            name = line.rpartition(":")[2] if line else path[-1]
            known[path, line] = Held(name, line=line)
            known[path if line else path[:-1], ""].children.append(known[path, line])
        return known[path, line]

    for action in history.live_at_peak():
        path, line = place(_made(history, action))
        nodes = [node(path[:length], "") for length in range(len(path) + 1)]
        if line:
            nodes.append(node(path, line))
        category = CATEGORIES.index(history.category_of(action).value)
        for holder in nodes:
            holder.bytes[category] += action.size
    return _tidy(root, int(root.total * _LEAST_SHARE))


def _made(history: History, action: Action) -> Allocation | None:
    return None if action.allocation is None else history.trace.allocations[action.allocation]


def _tidy(held: Held, least: int) -> Held:
    children = sorted((_tidy(child, least) for child in held.children), key=lambda child: -child.total)
    large = [child for child in children if child.total > least]
    small = children[len(large) :]
    if len(small) == 1:
        large += small
    elif small:
        sums = [sum(child.bytes[place] for child in small) for place in range(len(CATEGORIES))]
        large.append(Held(f"{len(small)} smaller ones", sums))
    is_one = len(large) == 1 and large[0].total == held.total and not small
    if held.name and is_one and not large[0].line:
        return Held(f"{held.name}.{large[0].name}", held.bytes, large[0].children)
    return Held(held.name, held.bytes, large, held.line)
