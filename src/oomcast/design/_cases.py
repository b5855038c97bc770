"""One test case: everything that decides one real run, with the file that will run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ._factors import Value

__all__ = ["CaseSpec", "Role", "case_key"]

Role = Literal["array", "held_out", "adaptive"]


@dataclass(frozen=True)
class CaseSpec:
    """A case of a campaign. Two cases with one key are the same run: measured once, never twice."""

    key: str
    campaign: str
    role: Role
    """Why the case is there: from the plan's array, kept aside for checking, or chosen after others had run."""
    template: str
    parameters: Mapping[str, Value] = field(hash=False)
    """All parameters of the template, those that the campaign does not vary too."""
    framework: str
    device: str
    repetition: int
    steps: int
    source: str
    """The rendered Python file."""


def case_key(
    template: str,
    parameters: Mapping[str, Value],
    framework: str,
    device: str,
    repetition: int,
    steps: int,
    source: str,
) -> str:
    """A name for what will run: the same in every process and on every machine, another if anything differs.

    The campaign's name and the role are left out: they do not change the run.
    """
    plain = [template, sorted(parameters.items()), framework, device, repetition, steps, source]
    return hashlib.sha256(json.dumps(plain, separators=(",", ":")).encode()).hexdigest()[:32]
