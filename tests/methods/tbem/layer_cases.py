"""Random cases for each kind of layer, and torch's own answer to them.

A case is drawn so that it would pass, then, half of the time, one or two of its values are moved to an edge: zero,
negative, one too many, a factor that does not divide. torch answers by building the layer and running it, on small real
tensors: its meta device takes what no real device does (a transposed convolution of the wrong channels, batch norm of
another number of features, a dilation of -1). oneDNN is off, since torch's own kernels check what CUDA's check.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

Case = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class LayerKind:
    """One kind of layer: its process, how a case is drawn, and what torch makes of it."""

    process: str
    draw: Callable[[Random], Case]
    answer: Callable[[Case], Shapes]


def torch_answer(kind: LayerKind, case: Case) -> Shapes | None:
    """The shapes of torch's outputs, or None if it refuses the case."""
    try:
        return kind.answer(case)
    except (RuntimeError, ValueError, AssertionError, IndexError, TypeError, ZeroDivisionError):
        return None


@contextmanager
def quick_layers() -> Iterator[None]:
    """Layers are built without their initial values, on which no shape depends; torch's warnings are not refusals."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        with (
            torch.backends.mkldnn.flags(enabled=False),
            patch.object(_ConvNd, "reset_parameters", lambda self: None),
            patch.object(nn.Linear, "reset_parameters", lambda self: None),
            patch.object(nn.RNNBase, "reset_parameters", lambda self: None),
            patch.object(nn.MultiheadAttention, "_reset_parameters", lambda self: None),
        ):
            yield


def meta(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def _spoil(random: Random, case: Case, names: list[str], kept: float = 0.45) -> Case:
    """A share of the cases is kept as it is; the others have one or two values moved to an edge."""
    if random.random() < kept:
        return case
    for name in random.choices(names, k=random.choice((1, 1, 2))):
        case[name] = _moved(random, case[name])
    return case


def _moved(random: Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return random.choice((-0.1, 0.0, 1.0, 1.1))
    if isinstance(value, int):
        return random.choice((-1, 0, 1, value - 1, value + 1, value + random.randint(2, 9), 2 * value))
    if not value or random.random() < 0.15:
        extra = random.randint(0, 4)
        return random.choice(((*value, extra), (extra, *value), value[:-1], value[1:]))
    place = random.randrange(len(value))
    return (*value[:place], _moved(random, value[place]), *value[place + 1 :])


def _several(random: Random, many: int, low: int, high: int) -> tuple[int, ...]:
    if random.random() < 0.5:
        return (random.randint(low, high),) * many
    return tuple(random.randint(low, high) for _ in range(many))


def _batch(random: Random) -> tuple[int, ...]:
    return random.choice(((), (1,), (2,), (3,), (0,)))


# Convolutions

_CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def _convolution_case(rank: int) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        groups = random.choice((1, 1, 2, 3))
        channels = groups * random.randint(1, 3)
        mode = random.choice(("explicit", "explicit", "explicit", "valid", "same"))
        case = {
            "x": (*_batch(random), channels, *_several(random, rank, 1, 14)),
            "in_channels": channels,
            "out_channels": groups * random.randint(1, 3),
            "kernel": _several(random, rank, 1, 4),
            "stride": (1,) * rank if mode == "same" else _several(random, rank, 1, 3),
            "padding": _several(random, rank, 0, 3),
            "dilation": _several(random, rank, 1, 2),
            "groups": groups,
        }
        return {"rank": rank, "mode": mode, **_spoil(random, case, list(case))}

    return draw


def _convolution(case: Case) -> Shapes:
    _one_each(case, "kernel", "stride", "padding", "dilation")
    layer = _CONV[case["rank"]](
        case["in_channels"],
        case["out_channels"],
        case["kernel"],
        case["stride"],
        case["padding"] if case["mode"] == "explicit" else case["mode"],
        case["dilation"],
        case["groups"],
    )
    return _run_convolution(layer, case)


def _transposed_case(rank: int) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        groups = random.choice((1, 1, 2, 3))
        channels = groups * random.randint(1, 3)
        stride = _several(random, rank, 1, 3)
        case = {
            "x": (*_batch(random), channels, *_several(random, rank, 1, 9)),
            "in_channels": channels,
            "out_channels": groups * random.randint(1, 3),
            "kernel": _several(random, rank, 1, 5),
            "stride": stride,
            "padding": _several(random, rank, 0, 2),
            "output_padding": tuple(random.randint(0, step - 1) for step in stride),
            "dilation": _several(random, rank, 1, 2),
            "groups": groups,
        }
        return {"rank": rank, **_spoil(random, case, list(case))}

    return draw


def _transposed(case: Case) -> Shapes:
    _one_each(case, "kernel", "stride", "padding", "output_padding", "dilation")
    layer = _TRANSPOSED[case["rank"]](
        case["in_channels"],
        case["out_channels"],
        case["kernel"],
        case["stride"],
        case["padding"],
        case["output_padding"],
        case["groups"],
        dilation=case["dilation"],
    )
    return _run_convolution(layer, case)


def _one_each(case: Case, *names: str) -> None:
    """torch takes a tuple of one number for all dimensions; a specification's case says each."""
    if any(len(case[name]) != case["rank"] for name in names):
        raise ValueError("one number for each dimension")


def _run_convolution(layer: nn.Module, case: Case) -> Shapes:
    """A convolution's output, by rules that hold for every kernel torch has.

    With an empty batch no kernel is called, so nothing is checked: the case must also pass with a batch of one. Of no
    channels torch makes no channels, whatever was asked for: that is no convolution.
    """
    if case["in_channels"] == 0:
        raise ValueError("no channels")
    x = case["x"]
    shape = tuple(layer(torch.zeros(x)).shape)
    if len(x) == case["rank"] + 2 and x[0] == 0:
        layer(torch.zeros(1, *x[1:]))
    return {"y": shape}


# Pooling

_MAX = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
_AVERAGE = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}
_ADAPTIVE = {
    (1, "average"): nn.AdaptiveAvgPool1d,
    (2, "average"): nn.AdaptiveAvgPool2d,
    (3, "average"): nn.AdaptiveAvgPool3d,
    (1, "max"): nn.AdaptiveMaxPool1d,
    (2, "max"): nn.AdaptiveMaxPool2d,
    (3, "max"): nn.AdaptiveMaxPool3d,
}


def _pooling_case(rank: int, dilated: bool) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        kernel = _several(random, rank, 1, 5)
        case = {
            "x": (*_batch(random), random.randint(1, 3), *_several(random, rank, 3, 14)),
            "kernel": kernel,
            "stride": _several(random, rank, 1, 5),
            "padding": tuple(random.randint(0, size // 2) for size in kernel),
            "ceil_mode": random.random() < 0.5,
        }
        if dilated:
            case["dilation"] = _several(random, rank, 1, 2)
        return {"rank": rank, **_spoil(random, case, list(case))}

    return draw


def _max_pooling(case: Case) -> Shapes:
    _one_each(case, "kernel", "stride", "padding", "dilation")
    layer = _MAX[case["rank"]](
        case["kernel"], case["stride"], case["padding"], case["dilation"], ceil_mode=case["ceil_mode"]
    )
    return {"y": tuple(layer(meta(case["x"])).shape)}


def _average_pooling(case: Case) -> Shapes:
    _one_each(case, "kernel", "stride", "padding")
    layer = _AVERAGE[case["rank"]](case["kernel"], case["stride"], case["padding"], ceil_mode=case["ceil_mode"])
    return {"y": tuple(layer(meta(case["x"])).shape)}


def _adaptive_case(how: str, rank: int) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        case = {
            "x": (*_batch(random), random.randint(1, 3), *_several(random, rank, 1, 9)),
            "size": _several(random, rank, 1, 9),
        }
        return {"how": how, "rank": rank, **_spoil(random, case, list(case), kept=0.1)}

    return draw


def _adaptive(case: Case) -> Shapes:
    """To size 1, torch's average is a mean over any shape; the case must also pass where it is not."""
    _one_each(case, "size")
    pool, x = _ADAPTIVE[case["rank"], case["how"]], torch.zeros(case["x"])
    pool((2,) * case["rank"])(x)
    return {"y": tuple(pool(case["size"])(x).shape)}


# Dense layers and the movement of shapes


def _shape(random: Random, low: int = 0, high: int = 4) -> tuple[int, ...]:
    return tuple(random.choice((0, 1, 2, 3, 4, 5)) for _ in range(random.randint(low, high)))


def _linear_case(random: Random) -> Case:
    features = random.randint(0, 9)
    case = {"x": (*_shape(random, 0, 3), features), "in_features": features, "out_features": random.randint(0, 9)}
    return _spoil(random, case, list(case))


def _linear(case: Case) -> Shapes:
    layer = nn.Linear(case["in_features"], case["out_features"])
    return {"y": tuple(layer(torch.zeros(case["x"])).shape)}


def _embedding_case(random: Random) -> Case:
    rows = random.randint(0, 9)
    case = {
        "x": _shape(random),
        "rows": rows,
        "width": random.randint(0, 9),
        "padding_index": random.randint(-rows, max(rows - 1, 0)),
    }
    return {"padded": random.random() < 0.7, **_spoil(random, case, ["x", "rows", "width", "padding_index"], kept=0.1)}


def _embedding(case: Case) -> Shapes:
    padding = case["padding_index"] if case["padded"] else None
    layer = nn.Embedding(case["rows"], case["width"], padding_idx=padding)
    return {"y": tuple(layer(torch.zeros(case["x"], dtype=torch.int64)).shape)}


def _flatten_case(random: Random) -> Case:
    x = _shape(random)
    rank = max(len(x), 1)
    return {
        "x": x,
        "first": random.randint(-rank - 1, rank),
        "last_dimension": random.choice((-1, rank - 1, random.randint(-rank - 1, rank))),
    }


def _flatten(case: Case) -> Shapes:
    return {"y": tuple(nn.Flatten(case["first"], case["last_dimension"])(torch.zeros(case["x"])).shape)}


def _concatenation_case(random: Random) -> Case:
    rank = random.randint(1, 4)
    axis = random.randint(-rank, rank - 1)
    shape = list(_shape(random, rank, rank))
    xs = []
    for _ in range(random.choice((0, 1, 2, 2, 3))):
        shape[axis] = random.randint(0, 4)
        xs.append((0,) if random.random() < 0.1 else tuple(shape))
    case = {"xs": tuple(xs), "axis": axis}
    if xs and random.random() < 0.5:
        place = random.randrange(len(xs))
        case["xs"] = (*xs[:place], _moved(random, xs[place]), *xs[place + 1 :])
    return _spoil(random, case, ["axis"]) if random.random() < 0.3 else case


def _concatenation(case: Case) -> Shapes:
    return {"y": tuple(torch.cat([torch.zeros(x) for x in case["xs"]], case["axis"]).shape)}


# Normalization

_BATCH_NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def _batch_norm_case(rank: int) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        features = random.randint(1, 5)
        sizes = () if rank == 1 and random.random() < 0.3 else _several(random, rank, 0, 3)
        case = {"x": (random.choice((0, 1, 1, 2, 3)), features, *sizes), "features": features, "training": True}
        return {"rank": rank, **_spoil(random, case, ["x", "x", "features", "training"])}

    return draw


def _batch_norm(case: Case) -> Shapes:
    """Nothing is checked on empty input, so that must pass with something in it too."""
    layer = _BATCH_NORM[case["rank"]](case["features"]).train(case["training"])
    x = case["x"]
    if 0 in x and len(x) > 1:
        layer(torch.zeros(x[0] or 2, x[1] or case["features"] + 1, *(size or 2 for size in x[2:])))
    return {"y": tuple(layer(torch.zeros(case["x"])).shape)}


def _layer_norm_case(random: Random) -> Case:
    normalized = _shape(random, 0, 3)
    case = {"x": (*_shape(random, 0, 2), *normalized), "normalized": normalized}
    return _spoil(random, case, list(case))


def _layer_norm(case: Case) -> Shapes:
    return {"y": tuple(nn.LayerNorm(case["normalized"])(torch.zeros(case["x"])).shape)}


def _group_norm_case(random: Random) -> Case:
    groups = random.randint(1, 4)
    channels = groups * random.randint(0, 4)
    case = {"x": (random.randint(0, 3), channels, *_shape(random, 0, 3)), "groups": groups, "channels": channels}
    return _spoil(random, case, list(case))


def _group_norm(case: Case) -> Shapes:
    layer = nn.GroupNorm(case["groups"], case["channels"])
    return {"y": tuple(layer(torch.zeros(case["x"])).shape)}


# Sequences


def _attention_case(random: Random) -> Case:
    heads = random.randint(1, 4)
    width = heads * random.randint(1, 3)
    query_length, length, batch = random.randint(0, 5), random.randint(0, 5), random.randint(0, 3)
    batch_first, batched = random.random() < 0.5, random.random() < 0.7

    def shape(positions: int) -> tuple[int, ...]:
        if not batched:
            return (positions, width)
        return (batch, positions, width) if batch_first else (positions, batch, width)

    case: Case = {
        "query": shape(query_length),
        "key": shape(length),
        "value": shape(length),
        "width": width,
        "heads": heads,
    }
    if random.random() < 0.1:
        deeper = random.choice((("query", "key", "value"), ("query",), ("key", "value")))
        case |= {name: (1, *case[name]) for name in deeper}
    return {"batch_first": batch_first, **_spoil(random, case, list(case))}


def _attention(case: Case) -> Shapes:
    """Without keys nothing is compared, so the case must also pass with something wherever it has nothing."""
    layer = nn.MultiheadAttention(case["width"], case["heads"], batch_first=case["batch_first"])
    query, key, value = (torch.zeros(case[name]) for name in ("query", "key", "value"))
    if 0 in case["key"]:
        layer(*(torch.zeros([size or 23 for size in case[name]]) for name in ("query", "key", "value")))
    return {"y": tuple(layer(query, key, value, need_weights=False)[0].shape)}


_CELLS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def _recurrent_case(cell: str) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        features, hidden = random.randint(1, 4), random.randint(1, 5)
        sizes = [random.randint(1, 4)] if random.random() < 0.3 else [random.randint(1, 4), random.randint(0, 3)]
        case = {
            "x": (*sizes, features),
            "in_features": features,
            "hidden": hidden,
            "layers": random.randint(1, 2),
            "projection": random.randint(0, hidden - 1) if cell == "lstm" and random.random() < 0.5 else 0,
            "dropout": random.choice((0.0, 0.3)),
        }
        flags = {"batch_first": random.random() < 0.5, "bidirectional": random.random() < 0.5}
        return {"cell": cell, **flags, **_spoil(random, case, list(case))}

    return draw


def _recurrent(case: Case) -> Shapes:
    extra = {"proj_size": case["projection"]} if case["cell"] == "lstm" or case["projection"] else {}
    layer = _CELLS[case["cell"]](
        case["in_features"],
        case["hidden"],
        case["layers"],
        batch_first=case["batch_first"],
        bidirectional=case["bidirectional"],
        dropout=case["dropout"],
        **extra,
    )
    y, state = layer(torch.zeros(case["x"]))
    h, c = state if case["cell"] == "lstm" else (state, torch.empty(0))
    return {"y": tuple(y.shape), "h": tuple(h.shape), "c": tuple(c.shape) if case["cell"] == "lstm" else ()}


KINDS: dict[str, LayerKind] = {
    **{f"conv{rank}d": LayerKind("Convolution", _convolution_case(rank), _convolution) for rank in (1, 2, 3)},
    **{
        f"conv_transpose{rank}d": LayerKind("TransposedConvolution", _transposed_case(rank), _transposed)
        for rank in (1, 2, 3)
    },
    **{f"max_pool{rank}d": LayerKind("MaxPooling", _pooling_case(rank, True), _max_pooling) for rank in (1, 2, 3)},
    **{
        f"avg_pool{rank}d": LayerKind("AveragePooling", _pooling_case(rank, False), _average_pooling)
        for rank in (1, 2, 3)
    },
    **{
        f"adaptive_{how}_pool{rank}d": LayerKind("AdaptivePooling", _adaptive_case(how, rank), _adaptive)
        for rank, how in _ADAPTIVE
    },
    "linear": LayerKind("Linear", _linear_case, _linear),
    **{
        f"batch_norm{rank}d": LayerKind("BatchNormalization", _batch_norm_case(rank), _batch_norm) for rank in (1, 2, 3)
    },
    "layer_norm": LayerKind("LayerNormalization", _layer_norm_case, _layer_norm),
    "group_norm": LayerKind("GroupNormalization", _group_norm_case, _group_norm),
    "embedding": LayerKind("Embedding", _embedding_case, _embedding),
    "attention": LayerKind("Attention", _attention_case, _attention),
    "concatenation": LayerKind("Concatenation", _concatenation_case, _concatenation),
    "flatten": LayerKind("Flatten", _flatten_case, _flatten),
    **{cell: LayerKind("Recurrent", _recurrent_case(cell), _recurrent) for cell in _CELLS},
}
