"""The Pythons that run cases: whether each has the framework, and which version."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Mapping
from typing import Any

from ..errors import BadInput

__all__ = ["check_framework", "facts_of"]

_MODULES = {"torch": ("torch",), "keras": ("keras", "tensorflow")}
"""What the Python that runs a framework's cases must have; other names (`python`) need nothing."""
_QUESTION = """
import importlib.metadata, importlib.util, json, os, platform, sys
missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
versions = {}
for name in sys.argv[1:]:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps({"python": platform.python_version(), "versions": versions, "missing": missing}))
"""


def check_framework(framework: str, interpreter: str) -> None:
    """Say now, and not by a hundred crashed cases, that a Python is missing or has not got the framework."""
    missing = facts_of(framework, interpreter)["missing"]
    if missing:
        raise BadInput(
            f"the Python for {framework} cases, {interpreter}, has no {' and no '.join(missing)}; "
            f"install it there, or name another Python for {framework}."
        )


@functools.cache
def facts_of(framework: str, interpreter: str) -> Mapping[str, Any]:
    """`python`, `versions` and `missing`, learnt without importing the framework."""
    command = [interpreter, "-c", _QUESTION, *_MODULES.get(framework, ())]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        facts = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it did not answer"
        raise BadInput(f"the Python for {framework} cases, {interpreter}, cannot be run: {reason}.") from error
    assert isinstance(facts, dict)
    return facts
