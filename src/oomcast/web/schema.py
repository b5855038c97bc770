"""The options of `oomcast.spec` as JSON Schema, for /openapi.json, and as a list, for a page's controls."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from ..spec import Option
from .questions import OFFERED, PARAMETER

__all__ = ["option_schemas", "question_schema"]

_JOB = {"type": "string", "description": "zoo:NAME, timm:NAME, torchvision:NAME, hf:NAME, or the name of a file"}
_FILES = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "description": "texts of configuration files by name: config.json, axolotl.yml, ds.json, …",
}


_SNAPSHOT = {
    "type": "string",
    "contentEncoding": "base64",
    "description": "what torch.cuda.memory._dump_snapshot() wrote, plain or gzipped; it is read, never executed",
}


def question_schema(kind: str) -> dict[str, Any]:
    """Of the body of a request."""
    if kind == "replay":
        settings = {"type": "string", "description": "what if PYTORCH_CUDA_ALLOC_CONF had been this"}
        recording = {"snapshot": _SNAPSHOT, "alloc_conf": settings}
        return {"type": "object", "properties": recording, "required": ["snapshot"]}
    properties: dict[str, Any] = {"job": _JOB}
    for option in OFFERED:
        if not (kind == "gpus" and option.name == "device"):
            properties[option.name] = _schema(option)
    if kind in ("sweep", "map"):
        properties["parameter"] = {**PARAMETER.schema(), "description": "what the answer goes over"}
    if kind == "compare":
        properties["snapshot"] = _SNAPSHOT
    required = ["job"] if kind == "gpus" else ["job", "device"]
    return {"type": "object", "properties": {**properties, "files": _FILES}, "required": required}


def option_schemas(options: Iterable[Option]) -> list[dict[str, Any]]:
    return [
        {"name": option.name, "flags": [flag.name for flag in option.flags], "schema": _schema(option)}
        for option in options
    ]


def _schema(option: Option) -> dict[str, Any]:
    told = {**option.kind.schema(), "description": option.flags[0].help}
    default = option.default
    return told if default in (None, (), dataclasses.MISSING) else {**told, "default": option.kind.plain(default)}
