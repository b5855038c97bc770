"""Compiled steps against the truth that can be had without a GPU: Inductor's own code on the CPU, really run.

The same machinery that follows `torch.compile` for a GPU is aimed at the CPU. What it says a compiled step holds at its
peak, above what was there before, is compared with the bytes that torch's CPU allocator reports for a real compiled
step. Needs a C++ compiler, as `torch.compile` itself does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import oomcast
from oomcast.errors import UnknownName
from oomcast.units import format_bytes

from .compiled_sweep import HF, TIMM, passed, sweep, sweep_here

__all__ = ["MODELS", "add_to"]

_WITHIN = 0.02
_LIMIT = 300.0
"""Seconds for a model: g++ is slow."""


def _sequential(*sizes: int) -> Callable[[Any], Any]:
    def build(torch: Any) -> Any:
        nn, layers = torch.nn, []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), nn.GELU()]
        return nn.Sequential(*layers), torch.randn(64, sizes[0])

    return build


def _encoder(norm_first: bool, activation: str, width: int = 128) -> Callable[[Any], Any]:
    def build(torch: Any) -> Any:
        layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, activation, 1e-5, True, norm_first)
        return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(4, 64, width)

    return build


def _convolutions(norm: str, activation: str) -> Callable[[Any], Any]:
    def build(torch: Any) -> Any:
        nn, layers = torch.nn, []
        for before, after in ((3, 16), (16, 32), (32, 32)):
            layers.append(nn.Conv2d(before, after, 3, padding=1))
            layers.append(nn.BatchNorm2d(after) if norm == "batch" else nn.GroupNorm(4, after))
            layers.append(getattr(nn, activation)())
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)), torch.randn(
            8, 3, 32, 32
        )

    return build


def _from_config(kind: str, **sizes: Any) -> Callable[[Any], Any]:
    def build(torch: Any) -> Any:
        from oomcast.capture.torch.vision_operators import prepare_torchvision

        prepare_torchvision()  # which transformers loads, and which may have been built for another torch
        import transformers

        config = transformers.AutoConfig.for_model(kind, **sizes)
        config._attn_implementation = "eager"  # the CPU's attention kernels take memory that is not torch's to report
        model = transformers.AutoModel.from_config(config)
        return model, torch.randint(0, config.vocab_size, (2, 64))

    return build


_SMALL = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 512,
}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

MODELS: dict[str, Callable[[Any], Any]] = {
    "mlp": _sequential(256, 512, 512, 256),
    "mlp-wide": _sequential(512, 2048, 512),
    "mlp-deep": _sequential(*[256] * 9),
    "mlp-bottleneck": _sequential(1024, 64, 1024),
    "encoder": _encoder(False, "relu"),
    "encoder-pre-norm": _encoder(True, "relu"),
    "encoder-gelu": _encoder(False, "gelu"),
    "encoder-pre-norm-gelu": _encoder(True, "gelu", 256),
    "cnn-batch-relu": _convolutions("batch", "ReLU"),
    "cnn-batch-silu": _convolutions("batch", "SiLU"),
    "cnn-batch-hardswish": _convolutions("batch", "Hardswish"),
    "cnn-group-relu": _convolutions("group", "ReLU"),
    "cnn-group-gelu": _convolutions("group", "GELU"),
    "cnn-group-mish": _convolutions("group", "Mish"),
    "bert": _from_config("bert", **_SMALL, **_NO_DROPOUT),
    "roberta": _from_config("roberta", **_SMALL, **_NO_DROPOUT, max_position_embeddings=514),
    "llama": _from_config("llama", **_SMALL, use_cache=False),
    "qwen2": _from_config("qwen2", **_SMALL, num_key_value_heads=2, use_cache=False),
    "mistral": _from_config("mistral", **_SMALL, num_key_value_heads=2, use_cache=False),
    "gpt2": _from_config(
        "gpt2", n_embd=128, n_layer=2, n_head=4, vocab_size=512, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        use_cache=False,
    ),
}  # fmt: skip


def _step(model: Any, batch: Any) -> None:
    out = model(batch)
    out = out if hasattr(out, "square") else out[0]
    out.square().mean().backward()


def _measured(name: str) -> int:
    """Bytes above those before the step, as the CPU's allocator reports each allocation and release to the profiler."""
    import torch

    torch.manual_seed(0)
    model, batch = MODELS[name](torch)
    compiled = torch.compile(model)
    for _ in range(2):
        _step(compiled, batch)
        model.zero_grad(set_to_none=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        _step(compiled, batch)
    live = peak = 0
    for nbytes in _changes(profile.profiler.kineto_results.experimental_event_tree()):
        live += nbytes
        peak = max(peak, live)
    return peak


_CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward")


def _changes(roots: Iterable[Any]) -> list[int]:
    """Bytes that are taken and given back, in order, without what a convolution takes for itself and gives back.

    oneDNN copies gradients into other layouts inside of its backward, up to three times their size. That is the CPU's
    kernel, not Inductor's plan, and a GPU has workspaces of its own instead.
    """
    found: list[tuple[int, int, int, int]] = []

    def look(event: Any, convolution: int) -> None:
        if event.name in _CONVOLUTIONS and not convolution:
            convolution = id(event)
        fields = event.extra_fields
        if hasattr(fields, "alloc_size"):
            found.append((event.start_time_ns, fields.alloc_size, fields.ptr, convolution))
        for child in event.children:
            look(child, convolution)

    for root in roots:
        look(root, 0)
    found.sort()
    taken: dict[int, int] = {}
    within: set[int] = set()
    for place, (_, nbytes, address, convolution) in enumerate(found):
        if nbytes > 0:
            taken[address] = place
        elif address in taken:
            start = taken.pop(address)
            if convolution and found[start][3] == convolution:
                within |= {start, place}
    return [change[1] for place, change in enumerate(found) if place not in within]


def _predicted(name: str) -> int:
    import torch

    with oomcast.virtual_gpu("a100-40gb") as gpu:
        machine: Any = gpu
        machine.personality.remove()  # the CPU's own kernels
        machine.compiled.gpu = None  # and its own code
        model, batch = MODELS[name](torch)
        model, batch = model.cuda(), batch.cuda()
        compiled = torch.compile(model)
        for _ in range(2):
            _step(compiled, batch)
            model.zero_grad(set_to_none=True)
        before = machine.ledger.held
        with machine.ledger.highest_within() as highest:
            _step(compiled, batch)
        told = [sentence for sentence in machine.trace().assumptions if "torch.compile" in sentence]
    if any("taken as eager" in sentence for sentence in told):
        raise SystemExit(f"{name}: {'; '.join(told)}")  # a small network may hold as much, and nothing were compared
    if told:
        print(f"{name}: {'; '.join(told)}", file=sys.stderr)
    return highest[0] - before


def add_to(commands: Any) -> None:
    parser = commands.add_parser("compiled", help="torch.compile on the CPU: predicted against really run")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME")
    parser.add_argument(
        "--sweep",
        nargs="*",
        metavar="MODEL",
        help="instead, models such as timm:resnet18 and hf:bert through the compiler on a virtual GPU (default: "
        "50 of timm, 30 of transformers); 'timm' and 'hf' are all of that library",
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=("measured", "predicted", "sweep"), help=argparse.SUPPRESS)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.sweep is not None:
        return _sweep(arguments)
    if arguments.child:
        print(json.dumps({"measured": _measured, "predicted": _predicted}[arguments.child](arguments.models[0])))
        return 0
    rows = [_compare(name) for name in arguments.models]
    within = sum(row["error"] is not None and abs(row["error"]) <= _WITHIN for row in rows)
    if arguments.json:
        print(json.dumps({"rows": rows, "within": within, "of": len(rows)}))
    else:
        print(f"{within} of {len(rows)} within {_WITHIN:.0%}")
    return 0 if within == len(rows) else 3


def _sweep(arguments: argparse.Namespace) -> int:
    all_names = {"timm": [f"timm:{name}" for name in TIMM], "hf": [f"hf:{kind}" for kind in HF]}
    asked = arguments.sweep or list(all_names)
    names = [name for word in asked for name in all_names.get(word, [word])]
    known = {name for listed in all_names.values() for name in listed}
    for name in names:
        if name not in known and not name.startswith("timm:"):
            raise UnknownName("model of the sweep", name, known | set(all_names))
    if arguments.child:
        sweep_here(names)
        return 0
    rows = []
    for row in sweep(names):
        rows.append(row)
        told = row.get("failed") or "; ".join([*row["eager"], *row["breaks"]]) or f"{row['kernels']} kernels"
        told += (
            f" (compiling: {row['compiling']} processor s, {row['times_tracing']} x tracing)"
            if "seconds" in row
            else ""
        )
        print(f"{'ok  ' if passed(row) else 'FAIL'} {row['model']}: {told}", file=sys.stderr, flush=True)
    compiled = sum(map(passed, rows))
    print(
        json.dumps({"rows": rows, "compiled": compiled, "of": len(rows)})
        if arguments.json
        else f"{compiled} of {len(rows)} compile as a whole or between graph breaks of torch's own"
    )
    return 0 if compiled == len(rows) else 3


def _compare(name: str) -> dict[str, Any]:
    """Each in a process of its own: torch remembers what it compiled."""
    started = time.monotonic()
    values: dict[str, int | None] = {}
    for kind in ("measured", "predicted"):
        command = [sys.executable, "-m", "lab", "compiled", "--models", name, "--child", kind]
        environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": os.environ.get("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, env=environment, check=False)
        except subprocess.TimeoutExpired:
            done = subprocess.CompletedProcess(command, 1, "", "took too long")
        values[kind] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
        if done.stderr.strip():
            print(f"{name}, {kind}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    measured, predicted = values["measured"], values["predicted"]
    error = None if measured is None or predicted is None else predicted / measured - 1
    shown = " ".join(f"{kind} {'-' if value is None else format_bytes(value)}" for kind, value in values.items())
    seconds = time.monotonic() - started
    if error is not None:
        shown += f" {error:+.2%}"
    print(f"{name}: {shown} ({seconds:.0f} s)", file=sys.stderr, flush=True)
    return {"model": name, "measured": measured, "predicted": predicted, "error": error}
