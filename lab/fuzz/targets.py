"""What is attacked: each kind of file as the command reads it that takes it, and the command line's own words."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from . import seeds
from .mutation import changed_bytes, changed_document, changed_pickle, changed_text, hostile_word

__all__ = ["TARGETS", "Target"]

Change = Callable[[tuple[bytes, ...], Random], bytes]
_MAGIC = b"oomlearn"


@dataclass(frozen=True)
class Target:
    """One kind of input."""

    seeds: Callable[[], tuple[bytes, ...]]
    change: Change
    """Of the seeds, into one input."""
    read: Callable[[Path], Any]
    """As a command would; raises OomcastError for what it refuses, and nothing else."""
    suffix: str = ""
    share: float = 1.0
    """How many of all inputs are for it, beside the others."""


# -- how content is changed --------------------------------------------------------------------------------------------


def _as_json(document: Any) -> bytes:
    return json.dumps(document, default=str).encode("utf-8", "surrogatepass")


def _changed_json(known: tuple[bytes, ...], random: Random) -> bytes:
    data = random.choice(known)
    if random.random() < 0.15:
        return changed_bytes(data, random)
    if random.random() < 0.1:
        return changed_text(data.decode(), random).encode("utf-8", "surrogatepass")
    return _as_json(changed_document(json.loads(data), random))


def _changed_trace(known: tuple[bytes, ...], random: Random) -> bytes:
    if random.random() < 0.1:
        return changed_bytes(known[0], random)
    return gzip.compress(_as_json(changed_document(json.loads(_unpacked(known[0])), random)), 1)


@cache
def _unpacked(data: bytes) -> bytes:
    return gzip.decompress(data)


def _changed_snapshot(known: tuple[bytes, ...], random: Random) -> bytes:
    data = random.choice(known)
    choice = random.random()
    if choice < 0.1:
        return changed_bytes(data, random)
    if choice < 0.3:
        return changed_pickle(_short(data), random)
    document = pickle.loads(_short(data))  # our own seed
    if choice < 0.5:
        changed = changed_document(document, random)
        plain = _as_json(changed)
        return gzip.compress(plain, 1) if random.random() < 0.5 else plain
    changed = changed_document(document, random, shared=True)
    with contextlib.suppress(RecursionError):
        return pickle.dumps(changed, protocol=random.choice((2, 4)))
    return data[: random.randrange(len(data))]


@cache
def _short(data: bytes) -> bytes:
    """A snapshot with a few events: most of a long one would never be changed."""
    document = pickle.loads(data)
    document["device_traces"] = [events[:12] for events in document["device_traces"]]
    document["segments"] = document["segments"][:3]
    return pickle.dumps(document, protocol=2)


def _changed_words(known: tuple[bytes, ...], random: Random) -> bytes:
    return changed_text(random.choice(known).decode(), random, *(one.decode() for one in known)).encode(
        "utf-8", "surrogatepass"
    )


def _changed_toml(known: tuple[bytes, ...], random: Random) -> bytes:
    """Mostly its content, so that more than the grammar is attacked; else its words."""
    import tomli_w

    if random.random() < 0.4:
        return _changed_words(known, random)
    changed = changed_document(_tables(random.choice(known)), random)
    try:
        return tomli_w.dumps(changed).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, AttributeError, RecursionError):  # what TOML cannot say
        return _changed_words(known, random)


def _tables(data: bytes) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(data.decode())


_TAGS = (
    '!!python/object/apply:os.system ["true"]',
    "!!python/name:os.system",
    "!!timestamp 9",
    "&a [*a]",
    "<<: *a",
    "? x",
)


def _changed_recipe(known: tuple[bytes, ...], random: Random) -> bytes:
    """As JSON, as YAML, in which the same part can stand in many places, or as the words of a command."""
    import yaml

    data = random.choice(known)
    if not data.startswith(b"{"):
        return _changed_words((data,), random)
    choice = random.random()
    if choice < 0.3:
        return _changed_json((data,), random)
    changed = changed_document(json.loads(data), random, shared=True)
    try:
        text = yaml.dump(changed, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))
    except (yaml.YAMLError, RecursionError, UnicodeError):
        return _as_json(list(range(random.randrange(9))))
    if choice > 0.8:
        text = changed_text(text, random, *_TAGS)
    return text.encode("utf-8", "surrogatepass")


def _changed_artifact(known: tuple[bytes, ...], random: Random) -> bytes:
    """Mostly its header, with the right digest, so that more than the digest is attacked."""
    data = random.choice(known)
    if random.random() < 0.2:
        return changed_bytes(data, random)
    start = len(_MAGIC) + 4
    (length,) = struct.unpack("<I", data[len(_MAGIC) : start])
    body = data[start + length :]
    if random.random() < 0.3:
        body = changed_bytes(body, random)
    header = changed_document(json.loads(data[start : start + length]), random)
    if isinstance(header, dict) and "digest" in header and random.random() < 0.9:
        header["digest"] = hashlib.sha256(body).hexdigest()
    text = _as_json(header)
    return _MAGIC + struct.pack("<I", len(text)) + text + body


def _changed_onnx(known: tuple[bytes, ...], random: Random) -> bytes:
    """A model whose fields were changed, or its bytes."""
    if random.random() < 0.4:
        return changed_bytes(known[0], random)
    import importlib

    from onnx import ModelProto

    as_json: Any = importlib.import_module("google.protobuf.json_format")
    changed = changed_document(as_json.MessageToDict(ModelProto.FromString(known[0])), random)
    try:
        return bytes(as_json.ParseDict(changed, ModelProto(), ignore_unknown_fields=True).SerializeToString())
    except Exception:  # what protobuf cannot say, in many ways
        return changed_bytes(known[0], random)


def _command_lines() -> tuple[bytes, ...]:
    """Every command with every option that its parser has: their words, one to a line."""
    import argparse

    from oomcast.cli.entry import COMMANDS
    from oomcast.cli.parser import Parser

    lines = []
    for name in COMMANDS:
        if name == "environment":  # it would make one
            continue
        parser = Parser(prog="oomcast")
        __import__(f"oomcast.cli.{name}", fromlist=["add_to"]).add_to(parser.add_subparsers(parser_class=Parser))
        choices = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction)).choices
        lines.append("\n".join([name, *choices[name].flags()]))
    return tuple(line.encode() for line in lines)


def _command_line(known: tuple[bytes, ...], random: Random) -> bytes:
    """Words that are separated by a character that no word can hold."""
    name, *flags = random.choice(known).decode().split("\n")
    words = [name]
    if random.random() < 0.7:
        words.append(hostile_word(random))
    for _ in range(random.randint(0, 5)):
        flag = random.choice(flags) if flags else "--json"
        form = random.random()
        words += (
            [f"{flag}={hostile_word(random)}"] if form < 0.3 else [flag, hostile_word(random)] if form < 0.8 else [flag]
        )
    if random.random() < 0.1:
        random.shuffle(words)
    if {"--port", "--run", "--output", "--html", "--figure", "--snapshot", "--svg", "--write-files"} & {
        word.partition("=")[0] for word in words
    }:
        words = [word for word in words if not word.startswith("--")]  # these write files, or serve
    return "\0".join(word.replace("\0", "") for word in words).encode("utf-8", "surrogatepass")


# -- how it is read ----------------------------------------------------------------------------------------------------


def _replay(path: Path) -> None:
    from oomcast.report import render_replay, replay_as_json
    from oomcast.simulate import read_snapshot, replay

    result = replay(read_snapshot(path))
    json.dumps(replay_as_json(result))
    _print(render_replay(result, path.name))


def _diff(path: Path) -> None:
    from oomcast.report import compare, read_side, render_difference

    side = read_side(str(path))
    _print(render_difference(compare(side, side)))


def _trace(path: Path) -> None:
    from oomcast.estimation import Target as Place
    from oomcast.estimation import estimate_trace
    from oomcast.report import estimate_as_json
    from oomcast.spec import Place as PlaceSpec
    from oomcast.trace import read_trace

    trace = read_trace(path)
    if len(trace.events) < 20_000:
        json.dumps(estimate_as_json(estimate_trace(trace, Place.of(PlaceSpec("a100-40gb", "torch-2.8-cu128")))))


def _calibration(path: Path) -> None:
    from oomcast.devices import find_gpu, stack_of
    from oomcast.estimation import read_calibration
    from oomcast.report import render_calibration

    known = read_calibration(path)
    known.constants(find_gpu(known.gpu), stack_of(None, "torch"), convolutions=True, batch_norm=True)
    _print(render_calibration(known))


def _campaign(path: Path) -> None:
    from oomcast.methods.tbem import plan_campaign, read_campaign

    campaign = read_campaign(path)
    plan_campaign(campaign)


def _gap(path: Path) -> None:
    from oomcast.methods.tbem import campaign_html, read_gap, render_gap

    gap = read_gap(path)
    _print(render_gap(gap))
    campaign_html([gap])


def _specification(path: Path) -> None:
    from oomcast.methods.tbem.specification import read_library

    library = read_library([path])
    for process in library.processes.values():
        str(process)


def _equation(path: Path) -> None:
    from oomcast.methods.equations import read_equation
    from oomcast.methods.equations.report import render_equation

    _print(render_equation(read_equation(path)))


def _artifact(path: Path) -> None:
    from oomcast.methods.gpumemnet import read_artifact

    read_artifact(path)


def _jobs(path: Path) -> None:
    from oomcast.advise.pack import read_jobs

    read_jobs(path)


def _configuration(path: Path) -> None:
    _capture("torch", f"hf:{path}")


def _recipe(path: Path) -> None:
    """As far as the job that it stands for. Its ending tells how a file is read."""
    from oomcast.spec import Spec

    with path.open("rb") as stream:
        start = stream.read(2)
    named = path.with_suffix(".json" if start.startswith(b"{") else ".sh" if start == b"#!" else ".yaml")
    path.rename(named)
    spec = Spec.read(str(named), device="8xh100-80gb", batch_size=1)
    json.dumps(spec.as_dict())
    str(spec)


def _onnx(path: Path) -> None:
    _capture("onnx", str(path))


def _capture(framework: str, job: str) -> None:
    """As the capture process does, but in this one, so that it is watched."""
    from oomcast.capture.hooks import hooks_of
    from oomcast.capture.messages import Request
    from oomcast.capture.worker import answer_request
    from oomcast.errors import BadInput
    from oomcast.spec import Spec

    spec = Spec.read(job, device="a100-40gb", batch_size=1, steps=1, environment="torch-2.8-cu128")
    answer = answer_request(hooks_of(framework), Request.of(spec))
    if answer.error is not None and "could not capture" in answer.message:
        raise AssertionError(answer.message)  # our own code failed, and said so
    if answer.error is not None:
        raise BadInput(answer.message)


def _options(path: Path) -> None:
    from oomcast.cli import main

    words = path.read_bytes().decode("utf-8", "surrogatepass").split("\0")
    said = io.StringIO()
    code: Any = None
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            code = main(words)
        except SystemExit as left:
            code = left.code
    if code not in (0, 1, 2, 3, None) or "Traceback" in said.getvalue():
        raise AssertionError(f"exit code {code}: {said.getvalue()[-300:]}")
    if code in (1, 2) and not said.getvalue().strip():
        raise AssertionError(f"exit code {code} without a word")


def _of_methods(kind: str) -> Callable[[], tuple[bytes, ...]]:
    """Loaded when it is attacked, so that ONNX files can be where the methods' packages are not installed."""

    def made() -> tuple[bytes, ...]:
        from . import method_seeds

        content: tuple[bytes, ...] = getattr(method_seeds, kind)()
        return content

    return made


_printed = 0


def _print(shown: Any) -> None:
    """Every eighth: laying out a table takes longer than reading the file."""
    from oomcast.cli.console import PlainConsole

    global _printed
    _printed += 1
    if _printed % 8:
        return
    PlainConsole(file=io.StringIO(), width=100).print(shown)


TARGETS: Mapping[str, Target] = {
    "snapshots": Target(seeds.snapshots, _changed_snapshot, _replay, ".pickle", 1.5),
    "traces": Target(seeds.traces, _changed_trace, _trace, ".trace", 1.5),
    "estimates": Target(seeds.estimates, _changed_json, _diff, ".json", 1.5),
    "calibrations": Target(seeds.calibrations, _changed_json, _calibration, ".json", 4.0),
    "campaigns": Target(_of_methods("campaigns"), _changed_toml, _campaign, ".toml", 0.3),
    "gaps": Target(_of_methods("gaps"), _changed_json, _gap, ".json", 0.7),
    "specifications": Target(_of_methods("specifications"), _changed_words, _specification, ".sofl", 0.9),
    "equations": Target(_of_methods("equations"), _changed_json, _equation, ".json", 0.7),
    "artifacts": Target(_of_methods("artifacts"), _changed_artifact, _artifact, ".bin", 1.0),
    "jobs": Target(seeds.job_lists, _changed_toml, _jobs, ".toml", 6.0),
    "recipes": Target(seeds.recipes, _changed_recipe, _recipe, ".config", 0.7),
    "onnx": Target(seeds.onnx_models, _changed_onnx, _onnx, ".onnx", 0.7),
    "options": Target(_command_lines, _command_line, _options, "", 0.1),
    "configurations": Target(seeds.configurations, _changed_json, _configuration, ".json", 0.03),
}
