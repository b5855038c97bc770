"""What a batch refuses, in one sentence, and that the refusals are true."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from oomcast import zoo
from oomcast.errors import BadInput

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("resnet50", {"input_shape": (224, 224)}, "channels x height x width such as 3x224x224, not 224x224"),
    ("resnet50", {"input_shape": (3, 8, 224, 224)}, "not 3x8x224x224"),
    ("resnet50", {"input_shape": ()}, "not nothing"),
    ("resnet50", {"input_shape": (1, 224, 224)}, "takes 3 channels, not 1"),
    ("resnet50", {"input_shape": (3, 0, 224)}, "above zero for its input shape, not 0"),
    ("resnet50", {"input_shape": (3, 224.0, 224)}, "whole numbers above zero for its input shape, not 224.0"),
    ("resnet50", {"seq_len": 128}, "and no sequence length"),
    ("resnet50", {"batch_size": 0}, "whole numbers above zero for its batch size, not 0"),
    ("resnet50", {"batch_size": True}, "not True"),
    ("resnet50", {"batch_size": 1, "input_shape": (3, 32, 32)}, "a batch size of 2 or a larger input"),
    ("vgg16", {"input_shape": (3, 31, 224)}, "at least 32 on each side"),
    ("inception_v3", {"input_shape": (3, 298, 299)}, "at least 299 on each side"),
    ("inception_v3", {"batch_size": 1}, "one value per channel"),
    ("vit_b_16", {"input_shape": (3, 384, 384)}, "3x224x224 only"),
    ("unet2d", {"input_shape": (3, 15, 64)}, "at least 16"),
    ("unet3d", {"input_shape": (64, 64, 64)}, "channels x depth x height x width such as 1x128x128x128"),
    ("unet3d", {"input_shape": (4, 64, 64, 64)}, "takes 1 channel, not 4"),
    ("unet3d", {"batch_size": 1, "input_shape": (1, 16, 16, 31)}, "cannot train on a single input of 1x16x16x31"),
    ("mlp", {"input_shape": (28, 27)}, "784 values in any shape, not 28x27 (756 values)"),
    ("mlp", {"input_shape": ()}, "784 values"),
    ("mlp", {"seq_len": 3}, "and no sequence length"),
    ("gpt2", {"seq_len": 1025}, "has 1024 positions: a sequence length of 1025 is too long"),
    ("gpt2", {"seq_len": 1}, "at least 2 tokens"),
    ("gpt2", {"seq_len": -4}, "above zero for its sequence length, not -4"),
    ("gpt2", {"input_shape": (1024,)}, "a number of tokens) and no input shape"),
    ("gpt2", {"batch_size": -1}, "batch size, not -1"),
    ("bert-base", {"seq_len": 513}, "has 512 positions"),
    ("bert-base-mlm", {"seq_len": 513}, "has 512 positions"),
    ("llama-2-7b", {"seq_len": 4097}, "has 4096 positions"),
    ("llama-3-8b", {"seq_len": 8193}, "has 8192 positions"),
    ("lstm-lm", {"seq_len": 1}, "at least 2 tokens"),
]


@pytest.mark.parametrize(("name", "asked", "words"), REFUSED)
def test_a_refusal_names_the_model_and_what_to_change(name: str, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        zoo.find(name).load().batch(**{"batch_size": 2, **asked})
    text = str(refusal.value)
    assert text.startswith(f"zoo model {name} ")
    assert words in text
    assert text.endswith(".")
    assert "\n" not in text


ACCEPTED = [
    ("resnet18", 2, (3, 1, 1)),
    ("resnet18", 1, (3, 32, 33)),
    ("vgg11_bn", 1, (3, 32, 32)),
    ("mobilenet_v2", 2, (3, 1, 1)),
    ("mobilenet_v2", 1, (3, 33, 32)),
    ("efficientnet_b0", 1, (3, 33, 32)),
    ("inception_v3", 2, (3, 299, 299)),
    ("inception_v3", 1, (3, 299, 347)),
    ("unet2d", 1, (3, 32, 17)),
    ("unet3d", 2, (1, 16, 16, 16)),
    ("unet3d", 1, (1, 31, 32, 17)),
    ("mlp", 1, (1, 28, 28)),
]


@pytest.mark.parametrize(("name", "batch_size", "shape"), ACCEPTED)
def test_what_is_accepted_at_the_edge_trains(name: str, batch_size: int, shape: tuple[int, ...]) -> None:
    job = zoo.find(name).load()
    with torch.device("meta"):
        assert job.loss(job.model(), job.batch(batch_size, shape)).requires_grad


REALLY_IMPOSSIBLE = [
    ("resnet18", (1, 3, 32, 32)),
    ("vgg11", (2, 3, 31, 64)),
    ("mobilenet_v2", (1, 3, 32, 32)),
    ("efficientnet_b0", (1, 3, 32, 32)),
    ("inception_v3", (2, 3, 298, 299)),
    ("inception_v3", (1, 3, 299, 346)),
    ("unet2d", (2, 3, 15, 64)),
    ("unet3d", (1, 1, 16, 16, 31)),
]


@pytest.mark.parametrize(("name", "shape"), REALLY_IMPOSSIBLE)
def test_what_is_refused_could_not_have_trained(name: str, shape: tuple[int, ...]) -> None:
    job = zoo.find(name).load()
    with pytest.raises(BadInput):
        job.batch(shape[0], shape[1:])
    with torch.device("meta"), pytest.raises((ValueError, RuntimeError)):
        job.model()(torch.randn(shape))


@pytest.mark.parametrize("side", [32, 64, 128, 144, 200, 244])
def test_the_3d_u_net_takes_the_white_papers_sizes(side: int) -> None:
    job = zoo.find("unet3d").load()
    with torch.device("meta"):
        x, y = job.batch(1, (1, side, side, side))
        assert job.model()(x).shape == y.shape == (1, 1, side, side, side)
