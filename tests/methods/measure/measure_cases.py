"""Cases for tests: plain Python without a framework, so that each takes as long as Python takes to start."""

from __future__ import annotations

from oomcast.methods.measure import CaseSpec, case_key


def python_case(source: str, number: int = 0, *, campaign: str = "test", device: str = "cpu", **parameters) -> CaseSpec:
    parameters = parameters or {"number": number}
    key = case_key("plain", parameters, "python", device, number, 1, source)
    return CaseSpec(key, campaign, "array", "plain", parameters, "python", device, number, 1, source)
