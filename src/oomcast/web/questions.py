"""What may be asked over the network: a question as frozen data, read from JSON, or refused in a sentence.

Options are those of `oomcast.spec`, as everywhere. Left out are those that name a file of the machine or let a job
write there. A job is a name (`zoo:`, `timm:`, `torchvision:`, `hf:`) or a configuration whose text comes along.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..advise.sweeps import stops_of
from ..errors import BadInput, UnknownName
from ..simulate import AllocatorSettings
from ..spec import DESCRIPTIONS, Option, Spec, options_of
from ..spec.options import OneOf

__all__ = [
    "KINDS",
    "MOST_BYTES",
    "MOST_SNAPSHOT",
    "OFFERED",
    "PARAMETER",
    "Limits",
    "Question",
    "check_spec",
    "read_json",
    "read_question",
]

MOST_BYTES = 256 * 1024
"""Of a request's body, its files included."""
MOST_SNAPSHOT = 12 * 1024 * 1024
"""The same for a question that brings a memory snapshot along. Those pack to a twentieth."""
_MOST_FILES = 8
_LARGEST_NUMBER = 10**12
_LONGEST_TEXT = 2_000

KINDS: Mapping[str, str] = {
    "estimate": "how much a training job will hold, and whether it fits: the JSON of oomcast estimate --json",
    "report": "the same as a page: timeline, modules, tensors (HTML)",
    "compare": "the predicted run against a recorded memory snapshot: the JSON of oomcast diff --json",
    "replay": "a recorded memory snapshot through the simulated allocator: the JSON of oomcast replay --json",
    "sweep": "memory over one number of the job, interpolated between captures, or over the number of GPUs",
    "map": "which batch sizes fit with which sequence lengths or image sizes",
    "gpus": "the GPUs that are enough, with prices: the JSON of oomcast gpus --json",
    "advise": "what to change so that the job fits: the JSON of oomcast advise --json",
}
"""What can be asked, in the order in which waiting questions are answered."""
_OF_A_SWEEP = ("sweep", "map")

_REFUSED = {
    "calibration": "names a file of the server",
    "write_files": "lets a job write to the server",
    "engine": "decides where the server works",
    "store": "names a file of the server",
}
OFFERED: tuple[Option, ...] = tuple(
    option for option in options_of(*DESCRIPTIONS) if option.flags and option.name not in _REFUSED
)
"""The options of a question: all that the command line has but for those that reach the server's files."""
PARAMETER = OneOf("parameter", ("batch-size", "seq-len", "input-size", "lora-rank", "gpus"))

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_MODEL = re.compile(rf"{_PART}(/{_PART})?")
_NAMED = re.compile(rf"(zoo|timm|torchvision|hf|diffusers):({_PART}(/{_PART})?)")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\.(json|ya?ml|sh)")
_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_.*|()\[\]\\^$+?, -]{0,400}")
_READS_ELSEWHERE = re.compile(r"path|token|mapping|runtime|config$|revision|loftq|eva|corda", re.IGNORECASE)
"""Settings of adapters by which peft would look for files or code."""


@dataclass(frozen=True)
class Limits:
    """What one question may cost the server."""

    seconds: float = 300.0
    memory: int = 8 << 30
    """Bytes of host memory, of the capture as of the worker."""
    engine: str = "local"
    """Where captures are made."""


@dataclass(frozen=True)
class Question:
    """`options` are plain data, without defaults that say nothing, so that equal questions are equal."""

    kind: str
    job: str
    options: Mapping[str, Any]
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    parameter: str | None = None
    """Of a sweep or a map."""
    snapshot: str | None = None
    """What is replayed, or what a prediction is compared with: a recording's bytes, in base64."""

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Question:
        return cls(**plain)

    def id(self, versions: str) -> str:
        """The same for the same question to the same software."""
        told = json.dumps([self.as_dict(), versions], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:32]


def read_json(body: bytes) -> Any:
    """Strict JSON of bounded depth; its size was bounded at the gate. Raises BadInput."""
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadInput('the request is not JSON; send an object like {"job": "zoo:resnet50", …}.') from None


def _no_constant(text: str) -> Any:
    raise ValueError(text)


def read_question(kind: str, given: Any, limits: Limits) -> Question:
    """From the JSON of a request; raises BadInput with the reason."""
    if not isinstance(given, dict):
        raise BadInput('the request must be an object like {"job": "zoo:resnet50", "device": "a100-40gb"}.')
    values = {name: value for name, value in given.items() if value is not None}
    _check_values(values)
    if kind == "replay":
        return _replay(values)
    files = _files(values.pop("files", {}))
    job = _job(values.pop("job", None), files)
    parameter = None
    if kind in _OF_A_SWEEP:
        parameter = PARAMETER.read(values.pop("parameter", "batch-size" if kind == "sweep" else "seq-len"))
        stops_of(parameter)
    snapshot = _snapshot(values.pop("snapshot", None)) if kind == "compare" else None
    options = _options(values, files, limits)
    question = Question(kind, job, options, files, parameter, snapshot)
    if not files:
        # What is wrong with it is told at once; what files say is read by the worker, which is bounded.
        check_spec(_spec(question))
    return question


def _replay(values: dict[str, Any]) -> Question:
    """Of a recording alone: there is no job."""
    snapshot, settings = _snapshot(values.pop("snapshot", None)), values.pop("alloc_conf", None)
    if values:
        raise UnknownName("option of a replay", next(iter(values)), ("snapshot", "alloc_conf"))
    if settings is not None:
        if not isinstance(settings, str):
            raise BadInput("alloc_conf must be a text as in PYTORCH_CUDA_ALLOC_CONF.")
        AllocatorSettings.parse(settings)
    return Question("replay", "", {} if settings is None else {"alloc_conf": settings}, snapshot=snapshot)


def _spec(question: Question) -> Spec:
    options = dict(question.options)
    if question.kind == "gpus":
        options.setdefault("device", "a100-40gb")  # any: the ranking has all of them
    if question.kind in _OF_A_SWEEP:
        return Spec.read(question.job, **options)
    return Spec.read_sized(question.job, options.pop("batch_size", None), **options)


def check_spec(spec: Spec) -> None:
    """What a file said counts as what a request says: names only, no paths, no code. Raises BadInput."""
    workload = spec.workload
    for model in (workload.model, workload.reward_model):
        if model is not None and not (_MODEL.fullmatch(model.removeprefix("hf:")) or _FILE.fullmatch(model)):
            raise BadInput(f"the model {model[:100]!r} is no name; the service reads no paths of its machine.")
    if workload.adapter is not None:
        for name, value in workload.adapter.settings.items():
            if value in (None, False, "", [], {}):
                continue  # off: files of peft list everything
            if _READS_ELSEWHERE.search(name) or not _is_harmless(value):
                raise BadInput(f"the adapter's setting {name[:60]!r} is not taken over the network.")


def _is_harmless(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= 200 and all(_is_harmless(part) for part in value)
    if isinstance(value, str):
        return _PLAIN_TEXT.fullmatch(value) is not None
    return value is None or isinstance(value, (bool, int, float))


def _check_values(values: Mapping[str, Any]) -> None:
    """No number that nothing can have, and no text that nobody would write."""
    for name, value in values.items():
        if name in ("files", "snapshot"):
            continue  # read by rules of their own
        for part in _parts(value):
            if isinstance(part, (int, float)) and abs(part) > _LARGEST_NUMBER:
                raise BadInput(f"{name[:60]!r} holds a number beyond {_LARGEST_NUMBER:,}.")
            if isinstance(part, str) and (len(part) > _LONGEST_TEXT or not part.isprintable()):
                raise BadInput(f"{name[:60]!r} holds a text that is too long, or has characters that cannot be shown.")


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [part for pair in value.items() for one in pair for part in _parts(one)]
    if isinstance(value, list):
        return [part for one in value for part in _parts(one)]
    return [value]


def _files(given: Any) -> dict[str, str]:
    if not isinstance(given, dict) or len(given) > _MOST_FILES:
        raise BadInput(f'files must be an object of at most {_MOST_FILES} texts, like {{"config.json": "…"}}.')
    for name, text in given.items():
        if not _FILE.fullmatch(name):
            raise BadInput(
                f"the file {name[:100]!r} is not taken: configurations are (.json, .yml, .yaml, .sh), by a plain name; "
                "job files, scripts and models are code, which the service never runs. Use oomcast on your machine."
            )
        if not isinstance(text, str) or "\0" in text:
            raise BadInput(f"the file {name} must be a text.")
    return dict(given)


def _snapshot(given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise BadInput(
            "the snapshot is missing: the bytes of torch.cuda.memory._dump_snapshot(), or gzip of them, in base64."
        )
    try:
        base64.b64decode(given, validate=True)
    except ValueError:
        raise BadInput("the snapshot is no base64.") from None
    return given


def _job(given: Any, files: Mapping[str, str]) -> str:
    if not isinstance(given, str) or not given:
        raise BadInput('the job is missing; name it like "job": "zoo:resnet50".')
    named = _NAMED.fullmatch(given)
    if named is not None:
        prefix, name = named[1], named[2]
        if "/" in name and prefix not in ("hf", "diffusers"):
            raise UnknownName(f"{prefix} model", name, ())
        return given
    if given in files:
        return given
    raise BadInput(
        f"the job {given[:100]!r} is not taken: give zoo:NAME, timm:NAME, torchvision:NAME, hf:NAME or diffusers:NAME, "
        "or the name of a configuration whose text is in files. Job files and scripts are code, which the service "
        "never runs, and it reads no paths of its machine; use oomcast on your own."
    )


def _options(values: Mapping[str, Any], files: Mapping[str, str], limits: Limits) -> dict[str, Any]:
    known = {option.name: option for option in OFFERED}
    read: dict[str, Any] = {}
    for name, value in values.items():
        if name in _REFUSED:
            raise BadInput(f"the option {name} is not taken over the network: it {_REFUSED[name]}.")
        option = known.get(name)
        if option is None:
            raise UnknownName("option", name, known)
        found = option.kind.read(value)
        if name == "configs" and any(file not in files for file in found):
            raise BadInput("configs must name texts that are in files.")
        if name in ("model", "reward_model") and not (found in files or _MODEL.fullmatch(found.removeprefix("hf:"))):
            raise BadInput(f"the model {found[:100]!r} is no name; the service reads no paths of its machine.")
        # Beside a file, a default that is given stands against what the file says.
        if files or found != option.default or name == "batch_size":
            read[name] = option.kind.plain(found)
    if read.get("time_limit", 0) > limits.seconds:
        raise BadInput(f"the time limit may be at most {limits.seconds:g} seconds here.")
    if read.get("memory_limit", 0) > limits.memory:
        raise BadInput(f"the memory limit may be at most {limits.memory} bytes here.")
    return read
