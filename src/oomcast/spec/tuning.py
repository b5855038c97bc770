"""What fine-tuning adds to a job: an adapter, quantised weights, the type of the weights, what the loss is.

Values as a person or a configuration file writes them; the libraries that know them (peft, bitsandbytes, transformers)
are asked when the model is built.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..errors import BadInput, UnknownName
from .options import Kind, list_or_text

__all__ = [
    "ATTENTIONS",
    "HEADS",
    "KV_CACHES",
    "PRECOMPUTED",
    "QAT",
    "QUANTIZATIONS",
    "WEIGHTS",
    "WITHOUT_DERIVATIVE",
    "Adapter",
    "AdapterText",
    "JobPhase",
    "Loading",
    "Names",
    "Objective",
    "Sentences",
    "TrainingLoop",
]

WEIGHTS: tuple[str, ...] = ("fp32", "bf16", "fp16")
QUANTIZATIONS: tuple[str, ...] = ("nf4", "nf4-double", "fp4", "fp4-double", "int8",
                                  "gptq-int4", "gptq-int8", "awq-int4", "hqq-int4",
                                  "nf4-torchao", "int8-torchao", "fp8-torchao", "int4-torchao", "int8-dynamic-torchao",
                                  "int8-int4-torchao", "fp8-dynamic-torchao")  # fmt: skip
"""Of bitsandbytes: 4 bits in blocks of 64, whose scales may be quantised too (double), and LLM.int8; then weights that
were packed before, as GPTQ, AWQ and HQQ do; then torchao's, of which the dynamic ones quantise activations too."""
WITHOUT_DERIVATIVE: tuple[str, ...] = ("int4-torchao", "fp8-dynamic-torchao")
"""Products with these raise when a gradient is asked for (`_weight_int4pack_mm`, `_scaled_mm`)."""
QAT: tuple[str, ...] = ("int4", "int8-int4", "fp8-int4", "fp8-fp8")
"""What torchao trains as if it were quantised: weights, or the activations before the dash and the weights after it."""
ATTENTIONS: tuple[str, ...] = ("eager", "sdpa", "flash")
KV_CACHES: tuple[str, ...] = ("fp8", "int4", "int2")
"""Quantised caches of transformers: its own fp8, and optimum-quanto's two."""
PRECOMPUTED: tuple[str, ...] = ("latents", "text")
"""What a diffusion model's frozen parts give, and may have given before: the autoencoder, the text encoders."""
HEADS: tuple[str, ...] = ("causal-lm", "masked-lm", "sequence-classification", "token-classification",
                          "question-answering", "none")  # fmt: skip
"""What stands on a model of transformers; none is the model by itself, as embeddings are trained."""


class Objective(str, Enum):
    """What is learnt: the next token; from pairs of answers which is better (dpo, orpo, reward), from single ones
    whether they are good (kto); or from answers that the model itself has generated (grpo, rloo, ppo)."""

    SFT = "sft"
    DPO = "dpo"
    ORPO = "orpo"
    KTO = "kto"
    REWARD = "reward"
    GRPO = "grpo"
    RLOO = "rloo"
    PPO = "ppo"

    @property
    def learns_from_pairs(self) -> bool:
        return self in (Objective.DPO, Objective.ORPO, Objective.REWARD)

    @property
    def has_reference(self) -> bool:
        """Whether it is compared with the model as it was, unless the job says otherwise."""
        return self in (Objective.DPO, Objective.KTO, Objective.RLOO, Objective.PPO)

    @property
    def generates(self) -> bool:
        """Whether it learns from what the model itself answers."""
        return self in (Objective.GRPO, Objective.RLOO, Objective.PPO)


class Loading(str, Enum):
    """How weights come onto the GPU. Without any of these each comes, and is quantised, after the other."""

    DEVICE_MAP = "device-map"
    """As transformers' `from_pretrained` with a device map does it, which it has for weights that it quantises."""
    WHOLE = "whole"
    """All of them, in the type of --weights, before they are quantised."""


class TrainingLoop(str, Enum):
    """Who holds the tensors between the steps: a plain loop, or Hugging Face's Trainer with accelerate."""

    PLAIN = "plain"
    HF_TRAINER = "hf-trainer"


class JobPhase(str, Enum):
    """What the job does with the model."""

    TRAINING = "training"
    EVAL = "eval"
    INFERENCE = "inference"
    GENERATE = "generate"


@dataclass(frozen=True)
class Adapter:
    """A method of peft with its settings: `lora,r=16,target_modules=q_proj+v_proj`."""

    kind: str
    """peft's own name in small letters: lora, ia3, boft, …"""
    settings_json: str = "{}"

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = json.loads(self.settings_json)
        return settings

    @classmethod
    def create(cls, kind: str, **settings: Any) -> Adapter:
        return cls(kind.strip().lower(), json.dumps(settings, sort_keys=True))

    def __str__(self) -> str:
        written = (f"{name}={_written(value)}" for name, value in self.settings.items() if value is not None)
        return ",".join((self.kind, *written))


class AdapterText(Kind):
    """A text such as `lora,r=16`, or a table with `kind` (or peft's `peft_type`) beside the settings."""

    words = "an adapter such as lora,r=16"

    def read(self, value: Any) -> Adapter:
        if isinstance(value, Adapter):
            return value
        if isinstance(value, Mapping):
            settings = dict(value)
            kind = settings.pop("kind", None) or settings.pop("peft_type", None)
            if not isinstance(kind, str):
                raise BadInput("an adapter needs its kind, like {'kind': 'lora', 'r': 16}.")
            return Adapter.create(kind, **settings)
        if not isinstance(value, str) or not value.strip():
            raise BadInput(f"cannot read {value!r} as an adapter; write it like lora,r=16.")
        kind, *parts = value.split(",")
        settings = {}
        for part in parts:
            name, equals, text = part.partition("=")
            if not equals or not name.strip():
                raise BadInput(f"cannot read {part!r} of the adapter {value!r}; write settings like r=16.")
            settings[name.strip()] = _read(text.strip())
        return Adapter.create(kind, **settings)

    def plain(self, value: Any) -> Any:
        return None if value is None else {"kind": value.kind, **value.settings}

    def spell(self, value: Any) -> str:
        return str(value)

    def schema(self) -> dict[str, Any]:
        table = {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}
        return {"anyOf": [{"type": "string"}, table], "description": self.words}


def _read(text: str) -> Any:
    """Numbers, true, false and none as JSON has them; lists are joined by +."""
    if "+" in text.strip("+"):
        return [part for part in text.split("+") if part]
    try:
        return json.loads({"none": "null", "None": "null", "True": "true", "False": "false"}.get(text, text))
    except ValueError:
        return text


def _written(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(str(part) for part in value)
    return value if isinstance(value, str) else json.dumps(value)


class Names(Kind):
    """Some texts: a list, or one text with commas."""

    words = "a list of names"

    def __init__(self, what: str, of: tuple[str, ...] = ()) -> None:
        self.what, self.known = what, of

    def read(self, value: Any) -> tuple[str, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, Iterable):
            raise BadInput(f"the {self.what} must be a list of texts, not {value!r}.")
        names = tuple(getattr(part, "__fspath__", lambda part=part: part)() for part in parts)
        if not all(isinstance(name, str) and name.strip() for name in names):
            raise BadInput(f"the {self.what} must be a list of texts, not {value!r}.")
        for name in names:
            if self.known and name.strip() not in self.known:
                raise UnknownName(self.what.removesuffix("s"), name.strip(), self.known)
        return tuple(name.strip() for name in names)

    def schema(self) -> dict[str, Any]:
        return list_or_text({"type": "string"}, self.words)


class Sentences(Names):
    """Sentences, which may have commas."""

    words = "a list of sentences"

    def read(self, value: Any) -> tuple[str, ...]:
        return super().read([value] if isinstance(value, str) else value)
