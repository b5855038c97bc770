"""What differs between two records, figure by figure, and which of it a mended defect of 0.1.0 explains."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

from oomcast.errors import BadInput, UnreadableFile

from .figures import ABSENT
from .reasons import reason_for

__all__ = ["KIND", "compare", "differences", "read_record"]

KIND = "same bytes"
_OLD = "oomcast 0.1.0"
"""Only against its figures there is something to explain: between two records of today nothing may differ."""
_MOST_SHOWN = 400


def read_record(path: Path) -> dict[str, Any]:
    """A record as `same-bytes record` writes it, compressed or not."""
    try:
        content = path.read_bytes()
        record = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    except (OSError, EOFError) as error:
        raise BadInput(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    except ValueError as error:
        raise UnreadableFile(f"{path} is not JSON: {error}.") from None
    if not isinstance(record, dict) or record.get("kind") != KIND:
        raise UnreadableFile(f"{path} is no record of same-bytes; make one with: python -m lab same-bytes record FILE")
    return record


def differences(before: Any, after: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Every leaf that differs, by its path."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            leaf
            for key in keys
            for leaf in differences(before.get(key, ABSENT), after.get(key, ABSENT), f"{path}.{key}" if path else key)
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [leaf for number, (old, new) in pairs for leaf in differences(old, new, f"{path}[{number}]")]
    same = before == after and isinstance(before, bool) == isinstance(after, bool)
    return [] if same else [(path, before, after)]


def compare(first: Path, second: Path) -> int:
    """Print what differs; the exit code is 1 if a figure does without a reason, or if a job is missing.

    Jobs that a record leaves out on purpose are not missing. Against 0.1.0, figures that a mended defect explains are
    counted by that reason instead of shown.
    """
    before, after = read_record(first), read_record(second)
    for name, old, new in differences(before["meta"]["versions"], after["meta"]["versions"]):
        print(f"note: {name} was {old} and is {new}")
    print(f"before: {before['meta']['code']}, after: {after['meta']['code']}")
    jobs_before, jobs_after = before["jobs"], after["jobs"]
    missing = 0
    for name in (name for name in jobs_before if name not in jobs_after):
        on_purpose = name in after["meta"]["left_out"]
        missing += not on_purpose
        if not on_purpose:
            print(f"{name}: only in {first}: MISSING")
    for name in (name for name in jobs_after if name not in jobs_before):
        print(f"{name}: only in {second}")
    common = [name for name in jobs_before if name in jobs_after]
    reasons: Counter[str] = Counter()
    different = 0
    for name in common:
        answers = jobs_before[name], jobs_after[name]
        unexplained = []
        for path, old, new in differences(*answers):
            is_old = str(before["meta"]["code"]).startswith(_OLD)
            reason = reason_for(name, path, old, new, answers) if is_old else None
            if reason is None:
                unexplained.append((path, old, new))
            else:
                reasons[reason] += 1
        different += bool(unexplained)
        if unexplained:
            print(f"{name}: {len(unexplained)} differ")
        for path, old, new in unexplained:
            print(f"    {path}: {_short(old)} -> {_short(new)}")
    for reason, count in reasons.most_common():
        print(f"{count} figures differ on purpose: {reason}")
    print(f"{len(common)} jobs compared, {different} differ, {missing} missing")
    return 1 if different or missing or not common else 0


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + " …"
