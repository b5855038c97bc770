"""Python code as a syntax tree, for one thread at a time.

CPython 3.11 counts how deep it is in a tree in one place for all threads: where the collector runs meanwhile and lets
another thread parse something, the first one ends in a SystemError ("AST constructor recursion depth mismatch").
"""

from __future__ import annotations

import ast
import threading

__all__ = ["syntax_tree"]

_ONE_AT_A_TIME = threading.Lock()


def syntax_tree(source: str | bytes, filename: str = "<unknown>") -> ast.Module:
    """`ast.parse`. Raises SyntaxError or ValueError, as that does."""
    with _ONE_AT_A_TIME:
        return ast.parse(source, filename=filename)
