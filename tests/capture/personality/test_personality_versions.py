"""What changed with torch's, CUDA's and cuDNN's versions is followed as they were; sources stand beside the rules."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from oomcast.capture.torch.personality import (
    AttentionCall,
    Backend,
    Mask,
    Personality,
    Platform,
    Switches,
    choose_backend,
)
from oomcast.capture.torch.personality import autocast as autocast_lists
from oomcast.devices import find_gpu, find_stack

BF16, FP16 = torch.bfloat16, torch.float16
SHAPE = (2, 4, 128, 64)


def platform(gpu: str, environment: str) -> Platform:
    return Platform.of(find_gpu(gpu), find_stack(environment))


@pytest.mark.parametrize(
    ("environment", "torch_version", "cudnn", "cuda"),
    [
        ("torch-2.13-cu130", (2, 13), 92000, "13.0"),
        ("torch-2.8-cu128", (2, 8), 91000, "12.8"),
        ("torch-2.6", (2, 6), 90100, "12.4"),
        ("torch-2.4-cu121-eager", (2, 4), 90100, "12.1"),
        ("torch-1.12-cu113", (1, 12), 8300, "11.3"),
    ],
)
def test_the_platform_is_made_from_the_stack(environment, torch_version, cudnn, cuda):
    made = platform("h100-80gb", environment)

    assert made.compute_capability == (9, 0)
    assert (made.torch, made.cudnn, made.cuda_text) == (torch_version, cudnn, cuda)


def call(shape=SHAPE, dtype=BF16, **changes) -> AttentionCall:
    return AttentionCall(**{"query": shape, "key": shape, "value": shape, "dtype": dtype, **changes})


WIDE, MASKED = call((2, 4, 128, 192)), call(mask=Mask((128, 128)))


@pytest.mark.parametrize(
    ("gpu", "environment", "case", "expected"),
    [
        ("h100-80gb", "torch-2.13-cu130", call(), Backend.CUDNN),
        ("h100-80gb", "2.11", call(), Backend.CUDNN),
        ("h100-80gb", "2.10", call(), Backend.FLASH),
        ("h100-80gb", "2.9", call(), Backend.CUDNN),
        ("h100-80gb", "2.9", WIDE, Backend.CUDNN),
        ("h100-80gb", "torch-2.8-cu128", call(), Backend.FLASH),
        ("h100-80gb", "2.5", call(), Backend.FLASH),
        ("h100-80gb", "torch-2.4-cu121", call(), Backend.FLASH),
        ("h100-80gb", "1.13", call(), Backend.MATH),
        ("a100-40gb", "torch-2.13-cu130", call(), Backend.FLASH),
        ("a100-40gb", "torch-1.12-cu113", call(), Backend.MATH),
        ("a100-40gb", "2.1", MASKED, Backend.EFFICIENT),
        ("a100-40gb", "2.0", MASKED, Backend.MATH),
        ("v100-16gb", "2.1", call(dtype=FP16, dropout=0.1), Backend.EFFICIENT),
        ("v100-16gb", "2.0", call(dtype=FP16, dropout=0.1), Backend.MATH),
        ("rtx-5090", "2.7", call(), Backend.FLASH),
        ("rtx-5090", "2.6", call(), Backend.MATH),
    ],
)
def test_the_attention_kernel_is_that_of_the_version(gpu, environment, case, expected):
    assert choose_backend(case, platform(gpu, environment), Switches()) is expected


def test_before_torch_2_5_cudnn_attention_is_off_even_where_it_is_all_that_is_allowed():
    only_cudnn = Switches(flash=False, efficient=False, math=False)

    assert choose_backend(call(), platform("h100-80gb", "2.5"), only_cudnn) is Backend.CUDNN
    with pytest.raises(RuntimeError, match="no attention kernel"):
        choose_backend(call(), platform("h100-80gb", "2.4"), only_cudnn)


def dtypes_of(recorder, operator):
    return [recorded.outputs[0][1] for recorded in recorder.calls if recorded.operator == operator]


def test_written_out_attention_keeps_halves_until_torch_2_5(record, gpu):
    def softmaxes(environment):
        with record(platform("t4", environment)) as recorder:
            query = gpu(*SHAPE, dtype=BF16)
            F.scaled_dot_product_attention(query, query, query)
        return dtypes_of(recorder, "_safe_softmax"), dtypes_of(recorder, "_softmax")

    assert softmaxes("2.5") == ([torch.float32], [])
    assert softmaxes("2.4") == ([], [BF16])


@pytest.mark.parametrize(
    ("environment", "width", "copied"),
    [
        ("torch-2.1", 100, (2, 4, 128, 112)),
        ("2.2", 100, (128, 104)),
        ("torch-2.1", 112, None),
        ("2.2", 112, None),
    ],
)
def test_torch_2_1_pads_a_mask_for_each_head(record, gpu, environment, width, copied):
    """pytorch#104310 expands the mask before it is padded, pytorch#114173 after."""
    with record(platform("a100-40gb", environment)) as recorder:
        key = gpu(2, 4, width, 64, dtype=FP16)
        bias = gpu(128, width, dtype=FP16).detach()
        F.scaled_dot_product_attention(gpu(*SHAPE, dtype=FP16), key, key, bias)

    assert "_scaled_dot_product_efficient_attention" in recorder.operators
    padded = recorder.one("constant_pad_nd").outputs[0][0] if "constant_pad_nd" in recorder.operators else None
    assert padded == copied


def test_before_torch_2_0_attention_is_the_operators_that_code_writes_out(record, gpu):
    with record(platform("a100-40gb", "torch-1.12-cu113")) as recorder:
        query = gpu(*SHAPE, dtype=FP16)
        F.scaled_dot_product_attention(query, query, query, dropout_p=0.1)

    computing = ("mul.Tensor", "bmm", "_softmax", "native_dropout")
    assert [name for name in recorder.operators if name in computing] == [
        "mul.Tensor",
        "bmm",
        "_softmax",
        "native_dropout",
        "bmm",
    ]


def test_before_torch_2_0_keys_of_grouped_queries_are_repeated(record, gpu):
    with record(platform("a100-40gb", "torch-1.12-cu113")) as recorder:
        shared = gpu(2, 2, 128, 64, dtype=FP16)
        F.scaled_dot_product_attention(gpu(*SHAPE, dtype=FP16), shared, shared, is_causal=True, enable_gqa=True)

    assert "_softmax" in recorder.operators


def test_before_torch_2_0_autocast_sees_the_parts_of_attention(record, gpu):
    def weights(environment):
        with record(platform("t4", environment)) as recorder, torch.autocast("cpu", dtype=BF16):
            query = gpu(*SHAPE)
            F.scaled_dot_product_attention(query, query, query)
        return dtypes_of(recorder, "_softmax")

    assert weights("torch-1.12-cu113") == [torch.float32]
    assert weights("torch-2.4-cu121") == [BF16]


@pytest.mark.parametrize(("environment", "fused"), [("2.9", True), ("torch-2.8-cu128", False)])
def test_rms_norm_is_one_kernel_since_torch_2_9(record, gpu, environment, fused):
    with record(platform("a100-40gb", environment)) as recorder:
        F.rms_norm(gpu(4, 64, dtype=BF16), (64,), gpu(64, dtype=BF16))

    assert ("_fused_rms_norm" in recorder.operators) is fused
    assert ("rsqrt" in recorder.operators) is not fused


@pytest.mark.parametrize(
    ("name", "environment", "dtype"),
    [
        ("rms_norm", "torch-2.13-cu130", torch.float32),
        ("rms_norm", "2.12", torch.float32),
        ("rms_norm", "2.11", BF16),
        ("upsample", "2.4", torch.float32),
        ("upsample", "2.2", BF16),
    ],
)
def test_autocast_treats_only_what_was_on_its_list(record, gpu, name, environment, dtype):
    with record(platform("a100-40gb", environment)), torch.autocast("cpu", dtype=BF16):
        if name == "rms_norm":
            out = F.rms_norm(gpu(4, 64, dtype=BF16), (64,), gpu(64, dtype=BF16))
        else:
            out = F.interpolate(gpu(1, 3, 8, 8, dtype=BF16), scale_factor=2)

    assert out.dtype is dtype


def test_the_dates_are_of_operators_on_the_lists():
    assert set(autocast_lists.SINCE) <= {*autocast_lists.LOWER_PRECISION, *autocast_lists.FP32}


def differences(followed: Platform, run) -> tuple[str, ...]:
    personality = Personality(followed)
    with personality, torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        run()
    return personality.differences


def test_a_difference_from_the_installed_torch_is_noted_where_it_is_met(gpu):
    def attention():
        query = gpu(*SHAPE, dtype=BF16)
        F.scaled_dot_product_attention(query, query, query)

    def norm():
        F.rms_norm(gpu(4, 64), (64,), gpu(64))

    def nothing_new():
        F.dropout(F.relu(gpu(4, 64)))

    installed = platform("a100-40gb", torch.__version__.split("+")[0])
    old = platform("a100-40gb", "torch-1.12-cu113")
    assert differences(installed, attention) == differences(installed, norm) == differences(old, nothing_new) == ()
    assert differences(old, attention) == ("scaled_dot_product_attention",)
    assert differences(old, norm) == ("RMS norm",)
    # Flash attention in both: the versions differ, what runs does not.
    assert differences(dataclasses.replace(installed, cudnn=90100), attention) == ()
