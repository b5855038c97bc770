"""The process that has cuDNN loaded: questions come in as lines of JSON, answers go out the same way.

The first line out says which cuDNN this is, or why there is none: {"version": 92000} or {"error": "..."}.
A question is {"device": {...}, "tf32": true, "query": [...]}, perhaps with "deterministic": true; its answer
{"plans": [...], "largest": n} or an error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from .library import Library, LibraryError
from .query import Query

__all__ = ["main", "query_from"]


def query_from(values: list[Any]) -> Query:
    """A Query as JSON has it."""
    kind, x, w, y, channels_last, dtype, *how = values
    return Query(kind, tuple(x), tuple(w), tuple(y), channels_last, dtype, *map(tuple, how))


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the libraries print must not mix with the answers

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        library = Library()
    except (OSError, AttributeError) as problem:
        answer({"error": f"{type(problem).__name__}: {problem}"})
        return
    answer({"version": library.version})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            query, deterministic = query_from(asked["query"]), asked.get("deterministic", False)
            plans, largest = library.plans(json.dumps(asked["device"]), asked["tf32"], query, deterministic)
        except LibraryError as problem:
            answer({"error": str(problem)})
        else:
            answer({"plans": plans, "largest": largest})


if __name__ == "__main__":
    main()
