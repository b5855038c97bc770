"""What a configuration file says, in oomcast's own words: the frozen result, and what readers fill on the way to it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import BadInput
from .optimizer_names import optimizer_of

__all__ = ["SCRIPT", "Findings", "Recipe", "Setting", "as_count", "as_number", "as_switch", "weights_of"]


@dataclass(frozen=True)
class Recipe:
    """The options that a file stands for, and what must be said of it."""

    format: str
    """Whose file it is: axolotl, torchtune, …"""
    options: Mapping[str, Any]
    """By the names of the fields of `Workload`."""
    world_size: int = 1
    """How many GPUs the file asks for."""
    notes: tuple[str, ...] = ()
    """What was assumed where the file says nothing."""
    not_followed: tuple[str, ...] = ()
    """Keys with a value that no reader knows and that may matter."""

    def merged(self, other: Recipe) -> Recipe:
        """Both files together; what the other says of its own subject counts."""
        return Recipe(
            f"{self.format} and {other.format}",
            {**self.options, **other.options},
            max(self.world_size, other.world_size),
            (*self.notes, *other.notes),
            (*self.not_followed, *other.not_followed),
        )


Setting = tuple[str, Callable[[Any], Any]]
"""The option that a key sets, and how its value is read."""

_HARMLESS = re.compile(
    r"(?x) ^(?: .*(?:dataset|data_|tokenizer|wandb|mlflow|comet|tensorboard|swanlab|trackio|logging|log_|_log|logger"
    r"|hub|push_to|save|saving|checkpoint_(?:dir|files)|output|resume|seed|report|run_name|warmup|epoch|max_steps|schedule"
    r"r"
    r"|learning_rate|weight_decay|adam_|beta|eps|eval|val_|test_|metric|prompt|template|special_tokens|tokens$|plot"
    r"|workers|num_proc|preprocess|overwrite|timeout|revision|trust_remote|token$|group_by|shuffle|column|split|watchdo"
    r"g"
    r"|patience|early_stop|profiler|callback|docker|comment|_file$|_path$|_dir$|_name$|strict|debug|url|project|entity"
    r"|train_on|chat|conversation|roles|messages|prepared|lr$|lr_|min_lr|momentum|max_samples|max_examples|streaming"
    r"|unk_|pad_to|mask|steps_per|cache_dir|hf_|_id$|name$|description|tags|version|hash|license|interval|notes).*"
    r"| lr | do_.* | env | ddp_.* | remove_unused_columns | include_.* | label_.* | mixed_data | mix_.* | template"
    r"| adapter_name | bias | disable_tqdm | neftune.* | kwargs | type | tf32 | out_dir | access_token | dataloader_.*"
    r"| skip_.* | ignore_.* | use_auth_token | low_cpu_.* | main_.* | rdzv.* | same_network | tpu.*"
    r"| machine_rank | downcast_bf16 | compute_environment | command_file | commands"
    r" | enable_cpu_affinity | max_grad_norm"
    r"| clip_grad_norm | gradient_clipping | loraplus.* | lora_alpha | shuffle_.* | date.* | use_cpu"
    r" | device | auto_resume.* | world_size"
    r"| rank | wall_clock.* | steps_per_print | dump_state | prescale_gradients | train_batch_size_.* | no_cuda )$"
)
"""Keys that change no byte of the GPU: data sets, logs, learning rates, how often something is saved."""


SCRIPT = "(script)"
"""The key of the script that a command line calls, beside its flags."""


@dataclass
class Findings:
    """Filled by one reader from the data of one file."""

    data: Mapping[str, Any]
    given: frozenset[str] = frozenset()
    """Options that the user gave beside the file: what the file says of them need not be understood."""
    options: dict[str, Any] = field(default_factory=dict)
    world_size: int = 1
    notes: list[str] = field(default_factory=list)
    _used: set[str] = field(default_factory=set)

    def take(self, key: str, default: Any = None) -> Any:
        """The value of a key, which counts as followed; a key without a value is as one that is not there."""
        self._used.add(key)
        value = self.data.get(key)
        return default if value is None or value == "" else value

    def switch(self, key: str, default: bool = False) -> bool:
        return as_switch(self.take(key, default))

    def part(self, key: str) -> Mapping[str, Any]:
        """A table within the file; empty where there is none."""
        value = self.take(key, {})
        return value if isinstance(value, Mapping) else {}

    def follow(self, keys: Mapping[str, Setting]) -> None:
        """Keys that stand for one option each. `auto` leaves the option to others."""
        for key, (option, read) in keys.items():
            value = self.take(key)
            if value is not None and value != "auto" and option not in self.given:
                self.options[option] = _read(key, read, value)

    def set_optimizer(self, name: Any, fused: bool = False) -> None:
        if "optimizer" not in self.given:
            self.options["optimizer"] = optimizer_of(name, fused)

    def set_offloading(self) -> None:
        """Activations wait on the host; to be called once it is known whether the model is compiled."""
        if "compile" in self.options:
            self.assume("activations that are offloaded to the host are counted on the GPU, as the model is compiled")
        else:
            self.options["offload_activations"] = True

    def set_objective(self, name: str) -> None:
        """What is learnt, and what that means for the batch."""
        self.options["objective"] = name
        pair, beside = "a pair of answers a sample, both of full length", "the reference model is held beside it"
        self.assume(
            {
                "dpo": f"dpo: {pair}; {beside}",
                "orpo": f"orpo: {pair}",
                "reward": f"reward: {pair}; a head of one number",
                "kto": f"kto: answers of full length; {beside}",
                "grpo": "grpo: prompts and answers of full length",
                "ppo": f"ppo: prompts and answers of full length; {beside}",
                "rloo": f"rloo: prompts and answers of full length; {beside}",
            }[name]
        )

    def any_switch(self, *keys: str) -> bool:
        """Whether one of these is on: different scripts have different names for one thing."""
        return True in [self.switch(key) for key in keys]

    def first(self, *keys: str, default: Any = None) -> Any:
        """The value of the first of these keys that has one; all count as followed."""
        values = [self.take(key) for key in keys]
        return next((value for value in values if value is not None), default)

    def without_effect(self, keys: Iterable[str]) -> None:
        self._used.update(keys)

    def assume(self, sentence: str) -> None:
        self.notes.append(sentence)

    def not_followed(self) -> tuple[str, ...]:
        """Keys that nobody took and that may matter. What is off or empty does nothing."""
        idle: tuple[Any, ...] = (None, False, "", "no", "none", "None", "false", 0)
        return tuple(
            key
            for key, value in self.data.items()
            if key not in self._used and not _HARMLESS.match(str(key)) and not (value in idle or value in ([], {}))
        )

    def recipe(self, format: str) -> Recipe:
        options = {name: value for name, value in self.options.items() if value is not None}
        return Recipe(format, options, self.world_size, tuple(self.notes), self.not_followed())


def _read(key: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except BadInput as error:
        raise BadInput(f"{key}: {error}") from None
    except (TypeError, ValueError):
        raise BadInput(f"{key}: cannot read {value!r}.") from None


def as_switch(value: Any) -> bool:
    """Yes and no in the spellings that YAML, command lines and people have."""
    if isinstance(value, str):
        return value.strip().lower() in ("true", "yes", "1", "on", "auto")
    return bool(value)


def as_count(value: Any) -> int:
    """A whole number, also as text or as 1e3."""
    number = as_number(value)
    if number != int(number) or number < 1:
        raise BadInput(f"it must be a whole number of at least 1, not {value!r}.")
    return int(number)


def as_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise BadInput(f"it must be a number, not {value!r}.")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(f"it must be a number, not {str(value)[:60]!r}.")
    return number


_WEIGHTS = {
    "float32": "fp32", "fp32": "fp32", "32": "fp32", "32-true": "fp32", "full": "fp32", "float": "fp32",
    "bfloat16": "bf16", "bf16": "bf16", "bf16-true": "bf16",
    "float16": "fp16", "fp16": "fp16", "16-true": "fp16", "half": "fp16",
}  # fmt: skip


def weights_of(value: Any) -> str:
    """The type of weights as configurations write it, `torch.bfloat16` and the like."""
    name = str(value).lower().removeprefix("torch.")
    if name not in _WEIGHTS:
        raise BadInput(f"the type of weights {value!r} is not known; it is float32, bfloat16 or float16.")
    return _WEIGHTS[name]
