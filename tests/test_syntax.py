"""Python code is parsed while other threads parse, too."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import pytest

from oomcast.syntax import syntax_tree

SOURCE = Path(__file__).read_bytes() * 20


class _Cycle:
    """Garbage that only the collector finds, and whose end lets other threads run."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0)


def test_threads_parse_beside_each_other() -> None:
    """Without a lock, one of a few hundred trees fails on CPython 3.11."""
    failures: list[BaseException] = []

    def parse() -> None:
        try:
            for _ in range(20):
                for _ in range(30):
                    _Cycle()
                syntax_tree(SOURCE)
        except BaseException as error:
            failures.append(error)

    before = gc.get_threshold()
    gc.set_threshold(200)
    try:
        threads = [threading.Thread(target=parse) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*before)
    assert not failures


def test_what_is_no_python_is_said_so() -> None:
    with pytest.raises(SyntaxError):
        syntax_tree("def (", "job.py")
