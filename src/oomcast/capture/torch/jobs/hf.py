"""Models of transformers by type or configuration: built from the configuration, never from weights or the network."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from oomcast import zoo
from oomcast.errors import BadInput, UnknownName, UnreadableFile
from oomcast.spec import JobKind, JobPhase, Objective, Workload

from .equal_layers import EqualLayers, equal_layers, with_layers
from .hf_inputs import make_batch
from .loaded import LoadedJob
from .ppo import PolicyAndValues, Ppo
from .quantised import DTYPES, published_quantization
from .tuned import tuned
from .vision import import_library

__all__ = ["hf_layers", "load_hf"]

_ENCODER_DECODER = ("SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM")
_IMAGE_AND_TEXT = ("IMAGE_TEXT_TO_TEXT",)
_DECODER = ("CAUSAL_LM",)
_ENCODER = ("CTC", "MASKED_LM")
_OTHERS = (
    "ZERO_SHOT_IMAGE_CLASSIFICATION",
    "IMAGE_CLASSIFICATION",
    "VIDEO_CLASSIFICATION",
    "AUDIO_CLASSIFICATION",
    "SEQUENCE_CLASSIFICATION",
    "SEMANTIC_SEGMENTATION",
    "DEPTH_ESTIMATION",
    "TIME_SERIES_PREDICTION",
    "PRETRAINING",
    "",
)
"""Heads by transformers' own names; "" is the bare model."""
_HEADS = {
    "causal-lm": "CAUSAL_LM",
    "masked-lm": "MASKED_LM",
    "sequence-classification": "SEQUENCE_CLASSIFICATION",
    "token-classification": "TOKEN_CLASSIFICATION",
    "question-answering": "QUESTION_ANSWERING",
    "none": "",
}
"""The names of --head → transformers' own."""


def hf_layers(name: str, workload: Workload) -> EqualLayers | None:
    """The depths that tell everything about the whole model, where its layers are alike."""
    transformers = _import_transformers()
    config = _configuration(transformers, name, _published(transformers.CONFIG_MAPPING, name))
    _complete(config)
    return equal_layers(_model_class(transformers, config, _set_head(config, workload)), config, workload)


def load_hf(name: str, workload: Workload, layers: int | None = None) -> LoadedJob:
    """The job of a model type (`bert`), a public model, a `config.json`, or a folder that holds one; or of its first
    layers only.

    The workload decides the type of the parameters, not the one that the configuration was saved with.
    """
    transformers = _import_transformers()
    published = _published(transformers.CONFIG_MAPPING, name)
    config = _configuration(transformers, name, published)
    _complete(config)
    all_layers = config
    if layers is not None:
        config = with_layers(config, layers)
    model_class = _model_class(transformers, config, _set_head(config, workload))
    workload = _quantised_as_published(config, workload)

    def model(config: Any = config) -> torch.nn.Module:
        attention = {"flash": "sdpa"}.get(workload.attention or "", workload.attention)
        chosen = {"attn_implementation": attention} if attention else {}
        built = model_class._from_config(config, dtype=DTYPES[workload.weights or "fp32"], **chosen)
        if published is not None and published.get("tie_word_embeddings") is False:
            _untie(built)
        return built

    rows = workload.batch_size * (2 if workload.objective.learns_from_pairs else 1)
    asked = dataclasses.replace(workload, batch_size=rows, lengths=())
    prompts = None
    if workload.objective.generates:
        asked, prompts = _answers_and_prompts(config, model_class, asked)
    of_length = [dataclasses.replace(asked, seq_len=length) for length in workload.lengths]
    batch = partial(make_batch, config, model_class, of_length[0] if of_length else asked)
    sample = batch()
    if of_length and "input_ids" not in sample:
        raise BadInput(f"--lengths is for models that read tokens; {model_class.__name__} reads {', '.join(sample)}.")
    if workload.job.kind is JobKind.CONFIG and not (workload.seq_len or of_length) and "input_ids" in sample:
        raise BadInput(f"{workload.job.name} does not say how long its samples are; give --seq-len.")
    said = _assumptions(config, model_class, sample, is_followed=workload.quantization is not None)
    loader = (lambda: (make_batch(config, model_class, one) for one in of_length)) if of_length else None
    job = LoadedJob(model, batch, loader=loader, prompts=prompts, assumptions=said)
    judge_name = workload.reward_model or (name if workload.objective is Objective.PPO else None)
    if judge_name is None:
        return tuned(job, workload, partial(model, all_layers))
    judge = _RewardModel(judge_name, workload)
    job = tuned(dataclasses.replace(job, frozen=judge.frozen), workload, partial(model, all_layers))
    if workload.objective is Objective.PPO:
        return _with_values(job, judge)
    return dataclasses.replace(job, score=judge.score)


def _with_values(job: LoadedJob, judge: _RewardModel) -> LoadedJob:
    """PPO: a model of values, which is built like the reward model, is trained beside the policy."""
    tune, ppo = job.tune, job.loss
    assert tune is not None
    assert isinstance(ppo, Ppo)

    def score(model: Any) -> None:
        ppo.before_learning(model, judge.answers())
        judge.score(model)

    return dataclasses.replace(job, tune=lambda model: PolicyAndValues(tune(model), judge.built()), score=score)


def _answers_and_prompts(
    config: Any, model_class: Any, workload: Workload
) -> tuple[Workload, Callable[[], Any] | None]:
    """For a policy that learns from its own answers: what it is trained on, prompts with their answers, and the prompts
    that it answers before; none where a vLLM does that."""
    if workload.seq_len is None:
        raise BadInput(f"--objective {workload.objective.value} needs the length of the prompts; give --seq-len.")
    whole = dataclasses.replace(workload, seq_len=workload.seq_len + workload.new_tokens)
    rows = workload.rollouts or workload.batch_size * workload.accumulation
    asked = dataclasses.replace(workload, batch_size=rows)
    return whole, None if workload.vllm_share is not None else partial(make_batch, config, model_class, asked)


class _RewardModel:
    """A frozen model that gives each answer a number: all answers of a step at once, as TRL asks it."""

    def __init__(self, name: str, workload: Workload) -> None:
        transformers = _import_transformers()
        name = name.removeprefix("hf:")
        config = _configuration(transformers, name, _published(transformers.CONFIG_MAPPING, name))
        asked = dataclasses.replace(
            workload,
            objective=Objective.REWARD,
            batch_size=workload.rollouts or workload.batch_size * workload.accumulation,
            seq_len=(workload.seq_len or 0) + workload.new_tokens,
            rollouts=None,
            vllm_share=None,
            reward_model=None,
            kv_cache=None,
        )
        self.model_class = _model_class(transformers, config, _set_head(config, asked))
        self.config, self.asked = config, asked
        self.model: Any = None

    def built(self) -> Any:
        return self.model_class._from_config(self.config, dtype=DTYPES[self.asked.weights or "fp32"]).to("cuda")

    def frozen(self) -> Iterator[torch.nn.Module]:
        self.model = self.built().eval().requires_grad_(False)
        yield self.model

    def answers(self) -> dict[str, torch.Tensor]:
        batch = make_batch(self.config, self.model_class, self.asked)
        return {name: value.to("cuda") for name, value in batch.items() if name != "labels"}

    def score(self, policy: torch.nn.Module) -> None:
        answers = self.answers()
        with torch.no_grad():
            self.model(**answers)


def _set_head(config: Any, workload: Workload) -> str | None:
    """The head that the job asks for. A reward is one number for the whole text."""
    head = workload.head
    if workload.objective is Objective.REWARD:
        head, config.num_labels = "sequence-classification", 1
    if head == "sequence-classification" and getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0  # it reads the last token that is no padding
    return head


def _quantised_as_published(config: Any, workload: Workload) -> Workload:
    """With the weights that a `quantization_config` tells, where they can stay as they are: beside an adapter, or where
    nothing is trained."""
    told = getattr(config, "quantization_config", None)
    if not isinstance(told, dict) or workload.quantization is not None:
        return workload
    if workload.adapter is None and workload.phase is JobPhase.TRAINING:
        return workload
    name = published_quantization(told)
    return workload if name is None else dataclasses.replace(workload, quantization=name)


def _assumptions(config: Any, model_class: Any, batch: dict[str, Any], is_followed: bool) -> tuple[str, ...]:
    stated = [f"hf: {model_class.__name__} is trained on {', '.join(batch)}"]
    for part, fed in (("vision_config", "pixel_values"), ("audio_config", "input_features")):
        if getattr(config, part, None) is not None and fed not in batch:
            remedy = "; --input-shape 3x448x448 adds an image to each sample" if part == "vision_config" else ""
            stated.append(
                f"hf: it is fed no {fed}, so the memory of that encoder's activations is not in the figures{remedy}"
            )
    quantised = getattr(config, "quantization_config", None)
    if quantised and not is_followed:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else None
        stated.append(
            f"hf: the configuration asks for quantised weights ({method or 'quantization_config'}), which are not "
            "followed: all weights are counted in the precision of the job, so a quantised model takes less"
        )
    if "labels" not in batch:
        stated.append("hf: it computes no loss of its own, so the mean of its output is trained")
    return tuple(stated)


def _import_transformers() -> Any:
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    transformers = import_library("transformers")
    importlib.import_module(f"{__package__}.remote_code").register_remote_code()
    return transformers


def _published(known: Any, name: str) -> dict[str, Any] | None:
    """What a `config.json` says: the user's file, or the facts that ship. None for a model type."""
    path = Path(name)
    if os.path.isdir(path):
        path = path / "config.json"
    if path.suffix == ".json":
        return _read(path)
    model = None if name in known else zoo.find_public_model(name)
    return None if model is None else dict(model.facts)


def _configuration(transformers: Any, name: str, published: dict[str, Any] | None) -> Any:
    known = transformers.CONFIG_MAPPING
    if published is not None:
        kind = published["model_type"]
        if kind not in known:
            raise UnknownName("model type", kind, known.keys(), "A newer transformers may know it.")
        return _built(Path(name).name, lambda: known[kind].from_dict(dict(published)))
    if name in known:
        return _built(name, lambda: known[name]())
    try:
        return transformers.AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=False)
    except Exception:  # whatever the cache says of a name that it does not hold
        if zoo.find_diffusion_model(name) is not None:
            raise BadInput(f"{name} is a diffusion model; write diffusers:{name}.") from None
        public = [one for model in zoo.public_models() for one in model.names]
        hint = (
            "Its sizes do not ship with oomcast, and nothing is fetched from the network: save the config.json of the "
            "model's page and give its path, or name a model type."
        )
        raise UnknownName("hf model", name, [*known.keys(), *public], hint) from None


def _untie(model: Any) -> None:
    """transformers 5 says of every T5 that its head is its embedding, until it loads weights that say otherwise."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head is not None and head.weight is embedding.weight:
        head.weight = torch.nn.Parameter(torch.empty_like(embedding.weight))


def _read(path: Path) -> dict[str, Any]:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"there is no configuration {str(path)!r}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} is not a JSON configuration of transformers: {error}.") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("model_type"), str):
        raise UnreadableFile(f"{path} has no model_type; it is not a configuration of transformers.")
    return plain


def _built(name: str, build: Any) -> Any:
    """transformers checks what a configuration says when it is made."""
    try:
        return build()
    except Exception as error:  # its checks raise anything
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = (lines[-1] if lines else type(error).__name__).rstrip(".")
        raise BadInput(f"transformers rejects the configuration {name}: {reason}.") from None


def _complete(config: Any) -> None:
    """Encoder–decoders shift the labels with two ids that published configurations have and plain ones may lack."""
    if getattr(config, "is_encoder_decoder", False):
        if getattr(config, "pad_token_id", None) is None:
            config.pad_token_id = 0
        if getattr(config, "decoder_start_token_id", None) is None:
            config.decoder_start_token_id = config.pad_token_id


def _model_class(transformers: Any, config: Any, head: str | None) -> Any:
    """The class with the head that was asked for; the one that the configuration names; else the one that its type is
    trained with."""
    if head is not None:
        task = _HEADS[head]
        mapping = getattr(transformers, f"MODEL_FOR_{task}_MAPPING" if task else "MODEL_MAPPING", {})
        if type(config) not in mapping:
            raise BadInput(f"transformers has no {config.model_type} with the head {head}.")
        found = mapping[type(config)]
        return found[0] if isinstance(found, (tuple, list)) else found
    named = getattr(config, "architectures", None) or ()
    if not isinstance(named, (list, tuple)) or not all(isinstance(architecture, str) for architecture in named):
        raise BadInput("the configuration's architectures must be a list of names.")
    for architecture in named:
        found = getattr(transformers, str(architecture), None)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    for task in _tasks(config):
        mapping = getattr(transformers, f"MODEL_FOR_{task}_MAPPING" if task else "MODEL_MAPPING", {})
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, (tuple, list)) else found
    raise BadInput(f"transformers has no model for the type {config.model_type!r} that can be trained as it is.")


def _tasks(config: Any) -> tuple[str, ...]:
    """Many types have heads of several kinds: an encoder can be told to decode, an encoder–decoder to drop a half."""
    if getattr(config, "is_encoder_decoder", False):
        return (*_ENCODER_DECODER, *_IMAGE_AND_TEXT, *_ENCODER, *_DECODER, *_OTHERS)
    if getattr(config, "is_decoder", False):
        return (*_IMAGE_AND_TEXT, *_DECODER, *_ENCODER, *_ENCODER_DECODER, *_OTHERS)
    return (*_IMAGE_AND_TEXT, *_ENCODER, *_DECODER, *_ENCODER_DECODER, *_OTHERS)
