"""Parameter counts against published ones."""

from __future__ import annotations

import pytest
import torch

from oomcast import zoo

TORCHVISION = {
    "vgg11": 132_863_336,
    "vgg11_bn": 132_868_840,
    "vgg13": 133_047_848,
    "vgg13_bn": 133_053_736,
    "vgg16": 138_357_544,
    "vgg16_bn": 138_365_992,
    "vgg19": 143_667_240,
    "vgg19_bn": 143_678_248,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "inception_v3": 27_161_264,
    "mobilenet_v2": 3_504_872,
    "efficientnet_b0": 5_288_548,
    "vit_b_16": 86_567_656,
    "vit_l_16": 304_326_632,
}
TIMM = {"vit_t_16": 5_717_416, "vit_s_16": 22_050_664}
TRANSFORMERS = {
    "bert-base": 109_483_778,
    "bert-large": 335_143_938,
    "bert-base-mlm": 109_514_298,
    "bert-large-mlm": 335_174_458,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-3.2-1b": 1_235_814_400,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-70b": 70_553_706_496,
}
# The white paper's trainable parameters; without a library's number: from each description, by hand.
OTHERS = {
    "unet3d": 5_647_857,
    "unet2d": 31_037_698,
    "mlp": 784 * 2048 + 2048 + 2 * (2048 * 2048 + 2048) + 2048 * 10 + 10,
    "lstm-lm": 10_000 * 1500 + 2 * 4 * 1500 * (1500 + 1500 + 2) + 1500 * 10_000 + 10_000,
}
PUBLISHED = {**TORCHVISION, **TIMM, **TRANSFORMERS, **OTHERS}


def test_every_model_has_a_number() -> None:
    assert set(PUBLISHED) == set(zoo.names())


@pytest.mark.parametrize("name", zoo.names())
def test_parameters_are_the_published_ones(name: str) -> None:
    with torch.device("meta"):
        model = zoo.find(name).load().model()
    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED[name]
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.training


def test_the_3d_u_net_has_the_white_papers_running_values() -> None:
    with torch.device("meta"):
        model = zoo.find("unet3d").load().model()
    running = sum(buffer.numel() for buffer in model.buffers() if buffer.is_floating_point())
    assert running == 2_944
    assert PUBLISHED["unet3d"] + running == 5_650_801


def test_the_3d_u_net_follows_the_white_papers_equation_2() -> None:
    filters, conv, up, outputs = 16, 27, 8, 1
    terms = 475 * filters + conv * filters + 766 * conv * filters**2 + 170 * up * filters**2 + filters * outputs
    assert terms + outputs == 5_650_801
