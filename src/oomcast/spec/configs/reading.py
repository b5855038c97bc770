"""A configuration file, whoever's it is: its text, whose it is by its keys, and the reader for it.

Reading is data only: YAML's plain types, JSON, or the words of a command. No class that a file names is ever made.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ...errors import BadInput, UnreadableFile
from .community import read_axolotl, read_llama_factory
from .found import SCRIPT, Findings, Recipe
from .hugging_face import read_adapter, read_arguments, read_trl
from .launchers import read_accelerate, read_deepspeed
from .native import read_lightning, read_litgpt, read_torchtune

__all__ = ["FORMATS", "library_of_configuration", "read_configuration"]

_MOST_BYTES = 500_000
_MOST_DEPTH = 50
_MOST_PARTS = 200_000
"""Values in one file, those that YAML's aliases repeat counted each time."""


def _has(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda data: any(key in data for key in keys)


def _is_torchtune(data: Mapping[str, Any]) -> bool:
    return any(
        isinstance(data.get(key), Mapping) and "_component_" in data[key] for key in ("model", "tokenizer", "dataset")
    )


def _is_litgpt(data: Mapping[str, Any]) -> bool:
    train = data.get("train")
    return isinstance(train, Mapping) and "micro_batch_size" in train


def _is_lightning(data: Mapping[str, Any]) -> bool:
    """By its trainer; without one by a class of the user's for the model and one for the data."""
    inner = data.get("fit")
    parts = inner if isinstance(inner, Mapping) else data
    classes = [parts.get(name) for name in ("model", "data")]
    return isinstance(parts.get("trainer"), Mapping) or all(
        isinstance(part, Mapping) and "class_path" in part for part in classes
    )


_TRL_KEYS = ("use_peft", "max_length", "max_seq_length", "packing", "beta", "lora_r", "dataset_mixture")
_TRL_COMMANDS = ("sft", "dpo", "orpo", "kto", "grpo", "reward", "rloo")
_ARGUMENT_KEYS = ("model_name_or_path", "per_device_train_batch_size", "config_name", "output_dir")
FORMATS: tuple[tuple[str, Callable[[Mapping[str, Any]], bool], Callable[[Findings], None]], ...] = (
    ("peft", _has("peft_type"), read_adapter),
    ("DeepSpeed", _has("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"), read_deepspeed),
    ("accelerate", _has("compute_environment", "distributed_type"), read_accelerate),
    ("axolotl", _has("base_model"), read_axolotl),
    ("torchtune", _is_torchtune, read_torchtune),
    ("litgpt", _is_litgpt, read_litgpt),
    ("Lightning", _is_lightning, read_lightning),
    ("LLaMA-Factory", _has("finetuning_type", "cutoff_len", "stage"), read_llama_factory),
    ("TRL", _has(*_TRL_KEYS, "dataset_text_field", "dataset_name"), read_trl),
    ("TrainingArguments", _has(*_ARGUMENT_KEYS), read_arguments),
)
"""Name, how its files are known, and their reader; the first that knows a file reads it."""


def read_configuration(path: str, given: Collection[str] = ()) -> Recipe:
    """What the file asks for, the given options aside. Raises BadInput with the reason in one sentence."""
    place = Path(path)
    data = _data(place)
    if place.suffix == ".sh":
        is_trl = data[SCRIPT] in _TRL_COMMANDS or _has("use_peft", "max_length", "packing")(data)
        named = "TRL" if is_trl else "TrainingArguments"
        return _read(named, next(read for name, _, read in FORMATS if name == named), data, place, given)
    for name, knows, read in FORMATS:
        if knows(data):
            return _read(name, read, data, place, given)
    names = ", ".join(name for name, _, _ in FORMATS)
    raise BadInput(f"{place.name} is no configuration of {names}; write a job file for it, with model() and batch().")


def _read(
    name: str, read: Callable[[Findings], None], data: Mapping[str, Any], place: Path, given: Collection[str]
) -> Recipe:
    found = Findings(data, frozenset(given))
    try:
        read(found)
    except BadInput as error:
        raise BadInput(f"{place.name}: {error}") from None
    except (TypeError, AttributeError, ValueError, LookupError, OverflowError) as error:
        reason = str(error)[:200] or type(error).__name__
        raise BadInput(
            f"{place.name}: a value is not of the kind that {name} has there ({reason}); compare it with {name}'s own "
            "documentation."
        ) from None
    return found.recipe(name)


def _data(place: Path) -> Mapping[str, Any]:
    try:
        if place.stat().st_size > _MOST_BYTES:
            raise UnreadableFile(f"{place} is too large for a configuration.")
        text = place.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot read {place}: {error.strerror}.") from None
    except ValueError:
        raise UnreadableFile(f"{place} is not text in UTF-8.") from None
    if place.suffix == ".sh":
        return _arguments(text, place)
    data = _json(text, place) if place.suffix == ".json" else _yaml(text, place)
    if not isinstance(data, Mapping):
        raise UnreadableFile(f"{place} holds no table of keys and values; it is no configuration of a training job.")
    _count_parts(data, {}, place)
    return {str(key): value for key, value in data.items()}


def _count_parts(data: Any, counted: dict[int, int], place: Path, depth: int = 0) -> int:
    """How many values there are. Forty lines of YAML, each naming the one before twice, are a million million."""
    if not isinstance(data, (Mapping, list, tuple, set)):
        return 1
    known = counted.get(id(data))
    if known == 0:
        raise UnreadableFile(f"{place} holds a part that contains itself; it is no configuration of a training job.")
    if known is None:
        if depth > _MOST_DEPTH:
            raise UnreadableFile(f"{place} is nested more than {_MOST_DEPTH} deep.")
        counted[id(data)] = 0
        inner = [*data, *data.values()] if isinstance(data, Mapping) else data
        known = counted[id(data)] = 1 + sum(_count_parts(part, counted, place, depth + 1) for part in inner)
        if known > _MOST_PARTS:
            raise UnreadableFile(f"{place} holds more than {_MOST_PARTS} values; it is too large for a configuration.")
    return known


def _json(text: str, place: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{place} is not JSON: {error}.") from None


def _yaml(text: str, place: Path) -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise BadInput("YAML files need PyYAML; install it with: pip install 'oomcast[configs]'") from None
    try:
        return yaml.safe_load(text)  # not the faster loader in C: deep nesting overflows its stack
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise UnreadableFile(
            f"{place} is not YAML{where}: {getattr(error, 'problem', None) or 'it cannot be read'}."
        ) from None
    except (RecursionError, ValueError) as error:
        raise UnreadableFile(f"{place} is not YAML: {error}.") from None


def _arguments(text: str, place: Path) -> Mapping[str, Any]:
    """The flags behind the first Python file, or behind `trl sft`, of a shell script."""
    joined = re.sub(r"\\\s*\n", " ", text)
    variables: dict[str, str] = {}
    for line in joined.splitlines():
        _note_assignment(line, variables)
        try:
            words = shlex.split(_with_values(line, variables), comments=True)
        except ValueError:
            continue
        starts = [number for number, word in enumerate(words) if word.endswith(".py") or word in _TRL_COMMANDS]
        if starts and any(word.startswith("--") for word in words[starts[-1] :]):
            return {**_flags(words[starts[-1] + 1 :]), SCRIPT: words[starts[-1]]}
    raise BadInput(f"{place.name} calls no Python file with --flags; a command such as python run_clm.py --… is read.")


_ASSIGNMENT = re.compile(r"(\s*)(?:export\s+)?([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[^\s;]*)\s*(?:#.*|;.*)?$")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{(\w+)(?::?-([^}]*))?\})")


def _note_assignment(line: str, variables: dict[str, str]) -> None:
    """`NAME=value` of a script. What stands in a branch (it is indented) counts where nothing was set before it; what
    depends on the script's own arguments does not count."""
    found = _ASSIGNMENT.match(line)
    if found is None:
        return
    indent, name, value = found.groups()
    value = _with_values(value.strip("\"'"), variables)
    if "$" not in value and "`" not in value and not (indent and name in variables):
        variables[name] = value


def _with_values(text: str, variables: Mapping[str, str]) -> str:
    """With the values of variables, or the defaults that `${NAME:-default}` tells; others stay as they are."""

    def value(found: re.Match[str]) -> str:
        named = variables.get(found[1] or found[2], found[3])
        return found[0] if named is None else named

    return _VARIABLE.sub(value, text)


def _flags(words: list[str]) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            flags[name] = _value(value) if equals else True
        elif name:
            held = flags[name]
            flags[name] = (
                _value(word) if held is True else [*(held if isinstance(held, list) else [held]), _value(word)]
            )
    return flags


def _value(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text


def library_of_configuration(path: str) -> str | None:
    """Whose `config.json` of a model a JSON file is: of transformers or diffusers; None for a training's configuration.
    A file that cannot be read is left to the reader of transformers'."""
    place = Path(path)
    try:
        if place.stat().st_size > _MOST_BYTES:
            return "transformers"
        data = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return "transformers"
    if not isinstance(data, Mapping) or "model_type" in data:
        return "transformers"
    if "_class_name" in data:
        return "diffusers"
    return None if any(knows(data) for _, knows, _ in FORMATS) else "transformers"
