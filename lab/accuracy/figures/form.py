"""Cases as plain JSON data and back. Jobs are named by their class and spelled out; nothing in the file is executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from oomcast.methods.gpumemnet.published_plans import Block
from oomcast.spec import JobKind, Workload

from ..cases import Case, Measure
from ..decoder_jobs import DecoderJob, Lora, Shape
from ..gpumemnet_jobs import CnnJob, MlpJob, TransformerJob
from ..text_jobs import BertJob, GptJob, HfJob
from ..tune_jobs import TuneJob

__all__ = ["JOBS", "case_from_json", "case_to_json", "job_to_json"]

JOBS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (BertJob, CnnJob, DecoderJob, GptJob, HfJob, MlpJob, TransformerJob, TuneJob)
}
_PARTS: dict[tuple[str, str], type[Any]] = {
    ("CnnJob", "plan"): Block,
    ("DecoderJob", "shape"): Shape,
    ("DecoderJob", "lora"): Lora,
    ("TuneJob", "shape"): Shape,
    ("TuneJob", "lora"): Lora,
}
"""Fields that hold such objects, or tuples of them."""
_CASE = ("data", "campaign", "row", "family", "gpu", "stack", "measured", "ran", "cudnn_benchmark")


def job_to_json(workload: Workload) -> str | dict[str, Any]:
    """`zoo:vgg16`, or the class of a job with its settings."""
    if workload.job.kind is not JobKind.OBJECT:
        return workload.job.reference
    job = workload.job.target
    if type(job).__name__ not in JOBS:
        raise ValueError(f"{type(job).__name__} has no form in the table")
    settings = {one.name: getattr(job, one.name) for one in fields(job) if one.repr}
    return {"class": type(job).__name__, **{name: _plain(value) for name, value in settings.items()}}


def case_to_json(case: Case) -> dict[str, Any]:
    workload = {key: value for key, value in case.workload.as_dict().items() if key != "job"}
    usual = {key: value for key, value in Workload.create("zoo:mlp").as_dict().items() if key != "job"}
    plain = {key: getattr(case, key) for key in _CASE}
    return {
        **plain,
        "measure": case.measure.value,
        "job": job_to_json(case.workload),
        # Some options are written down only where they were set.
        "workload": {key: value for key, value in workload.items() if value != usual.get(key)},
    }


def case_from_json(plain: Mapping[str, Any]) -> Case:
    """Raises KeyError, TypeError or ValueError for what is not a case."""
    job = plain["job"]
    target = job if isinstance(job, str) else _job(job)
    return Case(
        **{key: plain[key] for key in _CASE},
        measure=Measure(plain["measure"]),
        workload=Workload.create(target, **plain["workload"]),
    )


def _job(plain: Mapping[str, Any]) -> Any:
    kind = JOBS[plain["class"]]
    settings = {key: value for key, value in plain.items() if key != "class"}
    return kind(**{name: _value(plain["class"], name, value) for name, value in settings.items()})


def _value(kind: str, name: str, value: Any) -> Any:
    part = _PARTS.get((kind, name))
    if isinstance(value, list):
        return tuple(part(**one) if part else _value(kind, name, one) for one in value)
    return part(**value) if part and value is not None else value


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value
