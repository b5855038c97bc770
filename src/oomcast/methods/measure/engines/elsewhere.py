"""A case as plain data for another machine, and `python -m oomcast.methods.measure.engines.elsewhere FILE`, which
measures one there."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from oomcast.errors import OomcastError
from oomcast.files import write_atomically

from ..case_run import Conditions, measure_case
from ..environment import check_framework
from ..measurement import CaseSpec, Limits

__all__ = ["ANSWER", "QUESTION", "main", "measure_plain", "plain_case", "plain_conditions"]

QUESTION, ANSWER = "case.json", "answer.json"
"""Files in the folder of a case: what is to be measured, and what came of it."""


def plain_case(case: CaseSpec) -> dict[str, Any]:
    return {**{field.name: getattr(case, field.name) for field in fields(case)}, "parameters": dict(case.parameters)}


def plain_conditions(conditions: Conditions) -> dict[str, Any]:
    return {
        "limits": {"seconds": conditions.limits.seconds, "bytes": conditions.limits.bytes},
        "threads": conditions.threads,
        "interpreters": dict(conditions.interpreters),
        "variables": dict(conditions.variables),
    }


def measure_plain(case: Mapping[str, Any], conditions: Mapping[str, Any], marker: str) -> dict[str, Any]:
    """Plain data goes both ways, so that no cluster need know our types."""
    there = Conditions(**{**conditions, "limits": Limits(**conditions["limits"])})
    spec = CaseSpec(**case)
    check_framework(spec.framework, there.interpreter(spec.framework))
    return measure_case(spec, there, marker=marker).as_dict()


def main(folder: Path) -> int:
    """Measure the case that lies in a folder; the answer lies there whole, or not at all."""
    question = json.loads((folder / QUESTION).read_text(encoding="utf-8"))
    answer: dict[str, Any]
    try:
        answer = {"measurement": measure_plain(question["case"], question["conditions"], question["marker"])}
    except OomcastError as error:
        answer = {"error": str(error), "exit_code": error.exit_code}
    write_atomically(folder / ANSWER, json.dumps(answer).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
