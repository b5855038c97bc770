from __future__ import annotations

import pytest
from convolutions import convolution, strides

from oomcast.simulate.cudnn.query import Query, native_columns, query_of, takes_cudnn
from oomcast.trace import KernelCall, Operand

AMPERE, TURING, PASCAL = (8, 0), (7, 5), (6, 1)
NEW = (9, 20)


def query(*args: int, **how: object) -> Query:
    found = query_of(convolution("conv_fprop", *args, **how))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_one_dimension_is_asked_as_two() -> None:
    found = query(4, 16, 100, 32, 3, spatial=1)
    assert (found.x, found.w, found.y) == ((4, 16, 1, 100), (32, 16, 1, 3), (4, 32, 1, 100))
    assert (found.stride, found.padding, found.dilation) == ((1, 1), (0, 1), (1, 1))


def test_the_weight_alone_can_make_it_channels_last() -> None:
    call = convolution("conv_wgrad", 4, 16, 10, 32, 3)
    x, w, y = call.operands
    mixed = KernelCall(call.operator, (x, w._replace(stride=strides(w.shape, True)), y), call.attributes)
    assert query_of(mixed).channels_last  # type: ignore[union-attr]
    assert not query_of(call).channels_last  # type: ignore[union-attr]


def test_ambiguous_strides_are_the_plain_layout() -> None:
    assert not query(4, 1, 10, 32, 3, channels_last=False).channels_last
    x = Operand((4, 64, 1, 1), (64, 1, 1, 1), "float32")
    w = Operand((8, 64, 1, 1), (64, 1, 1, 1), "float32")
    call = convolution("conv_fprop", 4, 64, 1, 8, 1)
    assert not query_of(KernelCall("conv_fprop", (x, w, x), call.attributes)).channels_last  # type: ignore[union-attr]


def test_other_kernels_are_no_convolutions() -> None:
    assert query_of(KernelCall("aten.mm", ())) is None


@pytest.mark.parametrize(
    ("how", "capability", "cudnn"),
    [
        ({}, AMPERE, True),
        ({"dtype": "bfloat16"}, AMPERE, True),
        ({"dtype": "bfloat16"}, TURING, False),
        ({"dtype": "float64"}, AMPERE, True),
        ({"groups": 4}, AMPERE, True),
        ({"groups": 64}, AMPERE, False),  # fp32 depthwise: torch's own kernel
        ({"groups": 64, "channels_last": True}, AMPERE, True),
        ({"groups": 64, "dtype": "float16"}, AMPERE, True),
        ({"groups": 64, "dtype": "float16"}, PASCAL, False),
        ({"groups": 64, "dtype": "bfloat16"}, AMPERE, False),
        ({"groups": 64, "dtype": "float16", "dilation": 2}, AMPERE, False),
    ],
)
def test_who_runs_it(how: dict[str, object], capability: tuple[int, int], cudnn: bool) -> None:
    assert takes_cudnn(query(8, 64, 28, 64, 3, **how), capability, NEW) is cudnn


@pytest.mark.parametrize(
    ("shape", "cudnn"),
    [
        ((8, 64, 28, 64, 3, 1), True),
        ((8, 64, 28, 64, 7, 1), False),  # only 1, 3 and 5
        ((8, 64, 6, 64, 3, 1), False),  # too narrow
        ((8, 64, 28, 64, 3, 2), False),  # too few channels for a stride
        ((8, 512, 14, 512, 3, 2), True),
        ((1, 64, 28, 64, 3, 2), True),
        ((8, 16, 28, 16, 3, 1), False),  # fewer than 32 channels
    ],
)
def test_half_precision_depthwise(shape: tuple[int, ...], cudnn: bool) -> None:
    assert takes_cudnn(query(*shape, groups=shape[1], dtype="float16"), AMPERE, NEW) is cudnn


def test_a_transposed_depthwise_convolution_is_cudnns() -> None:
    assert takes_cudnn(query(8, 64, 28, 64, 3, groups=64), AMPERE, NEW, transposed=True)


def test_torchs_own_convolution_unfolds_one_image() -> None:
    assert native_columns(query(8, 64, 28, 32, 3, dtype="bfloat16"), 2) == 64 * 9 * 28 * 28 * 2
    assert native_columns(query(8, 64, 28, 32, 1, dtype="bfloat16"), 2) == 0
    assert native_columns(query(8, 64, 28, 64, 3, groups=64), 4) == 0
