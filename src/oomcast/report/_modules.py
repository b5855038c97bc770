"""What is in use at the peak as a tree of modules, each with its bytes by category."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..simulate import History
from ._curve import CATEGORIES

__all__ = ["Module", "module_tree"]

_LEAST_SHARE = 0.0005
_OUTSIDE = "outside of any module"


@dataclass
class Module:
    name: str
    bytes: list[int] = field(default_factory=lambda: [0] * len(CATEGORIES))
    """By category, those of its children included."""
    children: list[Module] = field(default_factory=list)
    """Largest first; what is no child's is the module's own."""

    @property
    def total(self) -> int:
        return sum(self.bytes)

    def walk(self, depth: int) -> Iterator[tuple[int, str, Module]]:
        """Down to `depth`, with the level and the dotted path; the root itself is left out."""
        return self._below(0, "", depth)

    def _below(self, level: int, path: str, depth: int) -> Iterator[tuple[int, str, Module]]:
        if level == depth:
            return
        for child in self.children:
            whole = f"{path}.{child.name}" if path else child.name
            yield level, whole, child
            yield from child._below(level + 1, whole, depth)


def module_tree(history: History) -> Module:
    """Small siblings are put together, and a module with only one child is joined with it."""
    root = Module("")
    known: dict[tuple[str, ...], Module] = {(): root}
    for action in history.live_at_peak():
        module = "" if action.allocation is None else history.trace.allocations[action.allocation].module
        path = tuple(module.split(".")) if module else (_OUTSIDE,)
        place = CATEGORIES.index(history.category_of(action).value)
        for length in range(len(path) + 1):
            key = path[:length]
            if key not in known:
                known[key] = Module(path[length - 1])
                known[key[:-1]].children.append(known[key])
            known[key].bytes[place] += action.size
    return _tidy(root, int(root.total * _LEAST_SHARE))


def _tidy(module: Module, least: int) -> Module:
    children = sorted((_tidy(child, least) for child in module.children), key=lambda child: -child.total)
    large = [child for child in children if child.total > least]
    small = children[len(large) :]
    if len(small) == 1:
        large += small
    elif small:
        sums = [sum(child.bytes[place] for child in small) for place in range(len(CATEGORIES))]
        large.append(Module(f"{len(small)} smaller ones", sums))
    if module.name and len(large) == 1 and large[0].total == module.total and not small:
        return Module(f"{module.name}.{large[0].name}", module.bytes, large[0].children)
    return Module(module.name, module.bytes, large)
