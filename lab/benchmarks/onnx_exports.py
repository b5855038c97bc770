"""`python -m lab bench onnx_exports`: files that torch's exporters write, read by oomcast and run by ONNX Runtime.

    python -m lab bench onnx_exports [MODEL …] [--exporter NAME] [--folder DIR] [--results FILE] [--again]

Each model of `onnx_export_models.py` is exported with an open batch by both exporters of torch, read by oomcast at
three batch sizes, and run by ONNX Runtime on this machine's CPU (`lab/checks/onnx_check.py` says what is compared; the
bars are about what the runtime plans, without the scratch of its CPU kernels). Every file has a process of its own;
what was exported is kept in the folder, and results in a file, so that an interrupted run goes on. It runs in an
environment of its own: what `make test-onnx` installs, and onnxscript, torch, transformers, torchvision and timm. Exit
code 1 if a file cannot be read or the bars of the issue are missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .onnx_export_models import EXAMPLES, Example
from .report import Bar, Outcome, console, print_outcome

EXPORTERS = ("dynamo", "script")
MOST_MEDIAN, MOST_P90 = 0.02, 0.08
_LONGEST = 900  # s: for one file


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench onnx_exports", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of these (default: all): {', '.join(EXAMPLES)}")
    parser.add_argument("--exporter", choices=EXPORTERS, action="append", help="(default: both)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "onnx-exports")
    parser.add_argument("--results", type=Path, default=Path("onnx_exports.jsonl"), help="file of the results")
    parser.add_argument("--again", action="store_true", help="compare anew what is in the file of the results")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        for result in _figures(given.models[0], given.exporter[0], given.folder):
            print(json.dumps(result), flush=True)
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    kept = {} if given.again else _read(given.results)
    results = []
    for model in given.models or EXAMPLES:
        for exporter in given.exporter or EXPORTERS:
            key = f"{model} {exporter}"
            if key not in kept:
                kept[key] = _in_a_process(model, exporter, given.folder)
                with given.results.open("a") as file:
                    file.writelines(json.dumps(result) + "\n" for result in kept[key])
            for result in kept[key]:
                console.print(_line(result), highlight=False, soft_wrap=True)
            results += kept[key]
    outcome = _judged(results)
    print_outcome(outcome)
    return 0 if outcome.holds else 1


def _read(path: Path) -> dict[str, list[dict[str, Any]]]:
    kept: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        result = json.loads(line)
        if result.get("stage") in ("export", "process"):
            continue  # tried again
        same = kept.setdefault(f"{result['model']} {result['exporter']}", [])
        same[:] = [earlier for earlier in same if earlier["batch_size"] != result["batch_size"]] + [result]
    return kept


def _in_a_process(model: str, exporter: str, folder: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, model]
    command += ["--exporter", exporter, "--folder", str(folder), "--one"]
    failed = {"model": model, "exporter": exporter, "stage": "process"}
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_LONGEST)
    except subprocess.TimeoutExpired:
        return [{**failed, "error": f"took longer than {_LONGEST} s"}]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        found.append({**failed, "error": (done.stderr.strip().splitlines() or ["?"])[-1][:300]})
    return found


# -------- One file, in a process of its own


def _figures(model: str, exporter: str, folder: Path) -> list[dict[str, Any]]:
    """By batch size: what oomcast says and what ONNX Runtime takes, or at which stage it ended and why."""
    example, path = EXAMPLES[model], folder / f"{model}-{exporter}.onnx"
    named = {"model": model, "exporter": exporter}
    try:
        if not path.exists():
            _export(example, path, is_new=exporter == "dynamo")
    except Exception as error:
        return [{**named, "stage": "export", "error": _sentence(error)}]
    return [{**named, "batch_size": size, **_compared(example, path, size)} for size in example.batches]


def _export(example: Example, path: Path, *, is_new: bool) -> None:
    import torch

    from oomcast.capture.torch.vision_operators import prepare_torchvision

    prepare_torchvision()  # transformers imports it, too
    export = example.build()
    options: dict[str, Any] = {"dynamic_axes": export.open}
    if is_new:
        sizes: dict[str, Any] = {}
        for axes in export.open.values():
            sizes.update((name, torch.export.Dim(name)) for name in axes.values() if name.isidentifier())
        axes_of = {
            name: {axis: sizes.get(called, torch.export.Dim.AUTO) for axis, called in axes.items()}
            for name, axes in export.open.items()
        }
        shapes = _as_called(export.module, [axes_of[name] for name in export.names])
        options = {"dynamic_shapes": shapes, "external_data": False, "verbose": False}
    half = path.with_suffix(".part")
    with torch.no_grad():
        torch.onnx.export(
            export.module,
            export.inputs,
            str(half),
            input_names=list(export.names),
            dynamo=is_new,
            **options,
        )
    half.rename(path)


def _as_called(module: Any, axes: list[Any]) -> tuple[Any, ...]:
    """The parameters of `forward` in their order; those that `*inputs` takes are one tuple of it."""
    import inspect

    kinds = [parameter.kind for parameter in inspect.signature(module.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return tuple(axes)
    first = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*axes[:first], tuple(axes[first:]))


def _compared(example: Example, path: Path, batch_size: int) -> dict[str, Any]:
    import onnx

    from oomcast.capture.onnx.run import capture_here
    from oomcast.spec import Workload
    from oomcast.trace import verify

    from ..checks.onnx_check import figures_of_run

    forms = _forms(path, batch_size, example.sizes) if example.sizes else None
    try:
        job = str(path) if forms is None else _job(path, forms)
        trace = capture_here(Workload.create(job, batch_size=batch_size, seq_len=example.seq_len))
        verify(trace)
    except Exception as error:
        return {"stage": "read", "error": _sentence(error)}
    try:
        return figures_of_run(onnx.load(path), batch_size, seq_len=example.seq_len, forms=forms)
    except Exception as error:
        return {"stage": "run", "error": _sentence(error)}


def _forms(path: Path, batch_size: int, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Each input's shape: what its file leaves open are sums of the batch and of the sizes of the example.

    A size that has another name is the mask's: the new exporter makes up a name for the sum of all lengths.
    """
    import onnx

    known = {"batch": batch_size, **sizes}
    forms = {}
    for item in onnx.load(path, load_external_data=False).graph.input:
        dimensions = item.type.tensor_type.shape.dim
        forms[item.name] = tuple(
            sum(known.get(part.strip(), sum(sizes.values())) for part in dimension.dim_param.split("+"))
            if dimension.dim_param
            else dimension.dim_value
            for dimension in dimensions
        )
    return forms


def _job(path: Path, forms: Mapping[str, tuple[int, ...]]) -> str:
    """A job file, as a user writes it where one option cannot say all sizes."""
    job = path.with_suffix(".py")
    job.write_text(
        "import numpy\n\n\n"
        f"def model():\n    return {str(path)!r}\n\n\n"
        f"def batch(batch_size):\n    forms = {dict(forms)!r}\n"
        "    return {name: numpy.zeros(form, 'float32') for name, form in forms.items()}\n"
    )
    return str(job)


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]


# -------- The verdict


def _line(result: Mapping[str, Any]) -> str:
    named = f"{result['model']:20} {result['exporter']:7} {result.get('batch_size', ''):>3}"
    if "error" in result:
        return f"{named}  {result['stage']}: {result['error']}"
    figures = "  ".join(f"{result[key]:>13,}" for key in ("estimated", "planned", "measured"))
    return f"{named}  {figures}  {_error(result):+7.2%}"


def _error(result: Mapping[str, Any], beside: str = "planned") -> float:
    return float(result["estimated"] / result[beside]) - 1


def _judged(results: Sequence[Mapping[str, Any]]) -> Outcome:
    stages = Counter(result["stage"] for result in results if "error" in result)
    readable = [result for result in results if result.get("stage") not in ("export", "process")]
    unread = {result["model"] for result in readable if result.get("stage") == "read"}
    read = {result["model"] for result in readable} - unread
    transformers = sum(EXAMPLES[model].is_transformer for model in read)
    compared = [result for result in results if "error" not in result]
    bars = [
        Bar("30 exported models are read", f"{len(read)} ({transformers} transformers)", len(read) >= 30),
        Bar("no exported file is refused", f"{stages['read']} readings", not stages["read"]),
    ]
    if compared:
        median, p90, worst = _spread(compared, "planned")
        bars += [
            Bar(f"median error ≤ {MOST_MEDIAN:.0%}", f"{median:.2%} of {len(compared)} runs", median <= MOST_MEDIAN),
            Bar(f"p90 ≤ {MOST_P90:.0%}", f"{p90:.2%} (worst {worst})", p90 <= MOST_P90),
        ]
        median, p90, worst = _spread(compared, "measured")
        bars.append(Bar("with the scratch of the CPU's kernels", f"{median:.2%}, {p90:.2%} (worst {worst})", None))
    return Outcome("onnx_exports", (), (), bars)


def _spread(compared: Sequence[Mapping[str, Any]], beside: str) -> tuple[float, float, str]:
    """Median, p90 and the worst, by name."""
    errors = sorted(abs(_error(result, beside)) for result in compared)
    worst = max(compared, key=lambda result: abs(_error(result, beside)))
    named = f"{worst['model']} {worst['exporter']} {worst['batch_size']}: {_error(worst, beside):+.2%}"
    return statistics.median(errors), errors[min(len(errors) - 1, int(0.9 * len(errors)))], named


if __name__ == "__main__":
    sys.exit(main())
