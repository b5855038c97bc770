"""A question answered, in a worker process: what it asks for, in the form that the command line gives it."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..advise import memory_map, rank_gpus, sweep, what_to_change
from ..errors import BadInput
from ..estimation import estimate
from ..report import (
    compare,
    difference_as_json,
    estimate_as_json,
    estimate_html,
    read_side,
    replay_as_json,
    snapshot_as_pickle,
)
from ..report.advice import advice_as_json, gpus_as_json
from ..simulate import AllocatorSettings, read_snapshot, replay
from ..spec import Spec
from .questions import Limits, Question, check_spec

__all__ = ["JSON", "Content", "answer"]

JSON = "application/json"
_HTML = "text/html; charset=utf-8"


class Content(NamedTuple):
    media: str
    text: str


def answer(question: Question, limits: Limits) -> Content:
    """Raises OomcastError; the files of the question lie in the current folder."""
    if question.kind == "replay":
        return _replay(question)
    allowed = {"time_limit": limits.seconds, "memory_limit": limits.memory, "engine": limits.engine}
    options = {**allowed, **question.options}
    if question.kind == "gpus":
        options.pop("device", None)
        check_spec(Spec.read(question.job, **{**options, "device": "a100-40gb"}))
    else:
        check_spec(Spec.read(question.job, **options))
    return _ANSWERS[question.kind](question, options)


def _json(plain: Any) -> Content:
    """As the command line prints it, to the byte."""
    return Content(JSON, json.dumps(plain, indent=2) + "\n")


def _estimate(question: Question, options: Mapping[str, Any]) -> Content:
    return _json(estimate_as_json(estimate(question.job, **options)))


def _report(question: Question, options: Mapping[str, Any]) -> Content:
    return Content(_HTML, estimate_html(estimate(question.job, keep_history=True, **options)))


def _replay(question: Question) -> Content:
    with _recorded(question) as file:
        settings = question.options.get("alloc_conf")
        return _json(
            replay_as_json(replay(read_snapshot(file), AllocatorSettings.parse(settings) if settings else None))
        )


@contextlib.contextmanager
def _recorded(question: Question) -> Iterator[Path]:
    """The recording as a file, while it is read."""
    file = Path("recorded.pickle")
    try:
        file.write_bytes(base64.b64decode(question.snapshot or ""))
        yield file
    finally:
        file.unlink(missing_ok=True)


def _compare(question: Question, options: Mapping[str, Any]) -> Content:
    predicted = Path("predicted.pickle")
    with _recorded(question) as file:
        real = read_side(str(file))  # first what is told at once: a file that is no recording
        history = estimate(question.job, keep_history=True, **options).history
        if history is None:
            raise BadInput("this estimator follows no allocations, so there is nothing to compare with a recording.")
        try:
            predicted.write_bytes(snapshot_as_pickle(history))
            return _json(difference_as_json(compare(read_side(str(predicted)), real)))
        finally:
            predicted.unlink(missing_ok=True)


def _sweep(question: Question, options: Mapping[str, Any]) -> Content:
    return _json(dataclasses.asdict(sweep(question.job, parameter=question.parameter or "batch-size", **options)))


def _map(question: Question, options: Mapping[str, Any]) -> Content:
    return _json(dataclasses.asdict(memory_map(question.job, parameter=question.parameter or "seq-len", **options)))


def _gpus(question: Question, options: Mapping[str, Any]) -> Content:
    return _json(gpus_as_json(rank_gpus(question.job, **options)))


def _advise(question: Question, options: Mapping[str, Any]) -> Content:
    return _json(advice_as_json(what_to_change(question.job, **options)))


_ANSWERS: Mapping[str, Callable[[Question, Mapping[str, Any]], Content]] = {
    "estimate": _estimate,
    "report": _report,
    "compare": _compare,
    "sweep": _sweep,
    "map": _map,
    "gpus": _gpus,
    "advise": _advise,
}
