"""Many architectures through `torch.compile` on the virtual GPU, one training step each: what is compiled, what breaks.

Models are small ones of timm and, from small configurations, of transformers. A model passes if no region of it had to
be taken as eager code; graph breaks are torch's own, and told with their places. `times_tracing` is what compiling took
in terms of what Dynamo and AOTAutograd took of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import oomcast
from oomcast.capture.torch.interpreter import load_sympy

__all__ = ["HF", "TIMM", "passed", "sweep", "sweep_here"]

_DEVICE = "a100-40gb"

TIMM = (
    "resnet18", "resnet26d", "resnext26ts", "seresnet18", "resnetv2_50", "res2net50_14w_8s", "wide_resnet50_2",
    "densenet121", "vgg11_bn", "mobilenetv2_050", "mobilenetv3_small_050", "mobilenetv4_conv_small", "efficientnet_b0",
    "efficientnetv2_rw_t", "tinynet_e", "mnasnet_small", "ghostnet_050", "fbnetc_100", "regnetx_002", "regnety_002",
    "rexnet_100", "repvgg_a0", "hardcorenas_a", "dla34", "dpn48b", "cspresnet50", "darknet53", "convnext_atto",
    "convnextv2_atto", "convmixer_768_32", "edgenext_xx_small", "mobileone_s0", "fastvit_t8", "inception_v3",
    "xception41", "hrnet_w18_small", "vit_tiny_patch16_224", "deit_tiny_patch16_224", "beit_base_patch16_224",
    "cait_xxs24_224", "coat_tiny", "crossvit_tiny_240", "levit_128s", "mixer_s32_224", "gmlp_s16_224",
    "poolformer_s12", "pvt_v2_b0", "swin_tiny_patch4_window7_224", "twins_pcpvt_small", "xcit_nano_12_p16_224",
)  # fmt: skip
_SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
          "vocab_size": 256}  # fmt: skip
_GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 256}
_ENCODER_DECODER = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
                    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 256,
                    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip
_KV = {**_SIZES, "num_key_value_heads": 2}
HF: Mapping[str, Mapping[str, Any]] = {
    "bert": _SIZES, "roberta": _SIZES, "electra": {**_SIZES, "embedding_size": 64}, "camembert": _SIZES,
    "xlm-roberta": _SIZES, "mpnet": _SIZES, "deberta-v2": _SIZES, "convbert": {**_SIZES, "embedding_size": 64},
    "albert": {**_SIZES, "embedding_size": 32}, "mobilebert": {**_SIZES, "embedding_size": 32},
    "distilbert": {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "vocab_size": 256},
    "funnel": {"d_model": 64, "n_head": 4, "d_head": 16, "d_inner": 128, "block_sizes": [1, 1], "vocab_size": 256,
               "architectures": ["FunnelModel"]},
    "gpt2": _GPT, "gpt_neox": _SIZES, "gptj": {**_GPT, "rotary_dim": 8}, "codegen": {**_GPT, "rotary_dim": 8},
    "bloom": {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 256},
    "opt": {**_SIZES, "ffn_dim": 128, "word_embed_proj_dim": 64}, "llama": _KV, "mistral": _KV, "qwen2": _KV,
    "qwen3": {**_KV, "head_dim": 16}, "gemma": {**_KV, "head_dim": 16}, "phi": _SIZES, "stablelm": _KV,
    "cohere": _KV, "olmo": _KV, "bart": _ENCODER_DECODER, "pegasus": _ENCODER_DECODER,
    "t5": {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_kv": 16, "d_ff": 128, "vocab_size": 256,
           "decoder_start_token_id": 0},
}  # fmt: skip


def _built(name: str) -> tuple[Any, Any]:
    """The model and how its step is called."""
    import torch

    from oomcast.capture.torch.vision_operators import prepare_torchvision

    library, _, kind = name.partition(":")
    prepare_torchvision()  # which both libraries load, and which may have been built for another torch
    if library == "timm":
        import timm

        model = timm.create_model(kind, num_classes=10)
        size = timm.data.config.resolve_model_data_config(model)["input_size"]
        images = torch.randn(2, *size)
        return model, lambda run, device: run(images.to(device))
    import transformers

    config = transformers.AutoConfig.for_model(kind, **HF[kind])
    config.use_cache = False
    model = transformers.AutoModel.from_config(config)
    tokens = torch.randint(3, 256, (2, 64))
    if config.is_encoder_decoder:
        return model, lambda run, device: run(input_ids=tokens.to(device), decoder_input_ids=tokens.to(device))[0]
    return model, lambda run, device: run(tokens.to(device))[0]


class _Clock:
    """Processor seconds within a call, however often it is entered; within itself, it is counted once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._depth += 1
        started = time.process_time()
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.seconds += time.process_time() - started


@contextlib.contextmanager
def _watched() -> Iterator[tuple[_Clock, _Clock]]:
    """What compiling takes, and what of it Inductor's lowering takes; the rest is Dynamo's and AOTAutograd's."""
    from oomcast.capture.torch.compiled import backend, findings

    lower, compiling = vars(backend)["inductor_code"], findings.Findings.compiling
    whole, lowering = _Clock(), _Clock()

    @contextlib.contextmanager
    def timed(self: findings.Findings) -> Iterator[None]:
        with whole.running(), compiling(self):
            yield

    with (
        mock.patch.object(backend, "inductor_code", lowering.running()(lower)),
        mock.patch.object(findings.Findings, "compiling", timed),
    ):
        yield whole, lowering


def _told(name: str) -> dict[str, Any]:
    import torch

    started = time.monotonic()
    try:
        with _watched() as (whole, lowering), oomcast.virtual_gpu(_DEVICE) as gpu:
            model, step = _built(name)
            model.train().cuda()
            step(torch.compile(model), "cuda").float().square().mean().backward()
            trace = gpu.trace()
    except Exception as error:  # whatever it is, it is what the sweep looks for
        return {"model": name, "failed": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    said = [sentence for sentence in trace.assumptions if sentence.startswith("torch.compile")]
    return {
        "model": name,
        "kernels": len({block.operator for block in trace.allocations if block.operator.startswith("triton_")}),
        "eager": [sentence for sentence in said if "taken as eager" in sentence],
        "breaks": [sentence for sentence in said if "graph breaks" in sentence],
        "seconds": round(time.monotonic() - started, 1),
        "compiling": round(whole.seconds, 1),
        "times_tracing": round(whole.seconds / max(whole.seconds - lowering.seconds, 1e-3), 2),
    }


def sweep_here(names: Sequence[str]) -> None:
    """A line of JSON for each, as it is done."""
    load_sympy()  # as the capture process does
    for name in names:
        print(json.dumps(_told(name)), flush=True)


def sweep(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """In a process of their own; what ends it is told of the model at hand, and the rest goes on in another."""
    left = list(names)
    while left:
        command = [sys.executable, "-m", "lab", "compiled", "--child", "sweep", "--sweep", *left]
        with (
            tempfile.TemporaryDirectory() as nothing_kept,  # what an earlier sweep has compiled would say nothing
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "OOMCAST_CACHE_DIR": nothing_kept},
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
                    left.pop(0)
        if left:
            yield {"model": left.pop(0), "failed": f"its process ended with code {process.returncode}"}


def passed(row: Mapping[str, Any]) -> bool:
    return not row.get("failed") and not row["eager"] and row["kernels"] > 0
