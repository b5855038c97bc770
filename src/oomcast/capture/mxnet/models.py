"""From a job's `model()`, `batch()` and `loss()` to the graphs of a training step: composed as Symbols, never run.

A batch counts by its shapes and dtypes alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mxnet as mx
from mxnet.gluon import Block, HybridBlock

from ...errors import BadInput, JobFailed, UnreadableFile
from ...spec import Workload
from ..explain import first_sentence
from ..frameworks import check_framework
from ..job_files import JobFunctions
from .graph import Graph
from .read import Form, forms_of, output_forms, read_graph, reason

__all__ = [
    "Step",
    "as_symbols",
    "batch_forms",
    "by_position",
    "default_loss",
    "gluon_step",
    "load_model",
    "pair",
    "symbol_step",
]

_INLINED = 2
"""Blocks with no more operators than this are run one by one even when they are hybridized."""
_UNKNOWN_COUNT = ("_while_loop",)
_NOT_FOLLOWED = ("Custom", "_foreach", "_cond")


@dataclass(frozen=True)
class Step:
    """What is trained, and how it is run."""

    net: Graph
    loss: Graph | None
    """The loss by itself, a function of the net's outputs, where the net runs as one."""
    between: tuple[str, ...]
    """Those outputs, by their names in `loss`."""
    forms: Mapping[str, Form]
    """Shape and dtype of every variable of the net."""
    trained: tuple[str, ...]
    """Variables with a gradient."""
    states: tuple[str, ...]
    """Variables that are neither trained nor given: running averages, frozen weights."""
    inputs: tuple[str, ...]
    engine: str
    """`hybridized`, `static`, `imperative` or `executor`."""
    held: tuple[int, ...]
    """Values of `net` that the user's variables hold: the output and the loss."""
    unsupported: Mapping[str, int]


def load_model(job: JobFunctions, workload: Workload) -> Any:
    """What `model()` returned; a path is a saved Symbol."""
    model = job.model()
    check_framework(model, "mxnet")
    if isinstance(model, str):
        model = _load_symbol(model)
    if not isinstance(model, (Block, mx.sym.Symbol)):
        raise BadInput(
            f"model() in {workload.job.name} returned {type(model).__name__}; return a gluon.Block, a Symbol, or the "
            "path of a saved Symbol (…-symbol.json)."
        )
    return model


def gluon_step(model: Any, job: JobFunctions, batch: Any, workload: Workload) -> Step:
    """The block is called with Symbols; a hybridized one is cut off from the loss, which runs operator by operator."""
    name = workload.job.name
    given: dict[str, Form] = {}
    symbols = as_symbols(batch, given)
    caller = _Caller(model, given, name)
    if job.loss is not None:
        loss = _flat(job.loss(caller, symbols))
    else:
        x, y = pair(batch, symbols, name)
        caller(*x)
        form = output_forms(mx.sym.Group(caller.outputs), given, name)[0]
        loss = _flat(default_loss(form[0], given[y.name])(caller.results[0], y))
    if not caller.outputs:
        raise BadInput(f"loss() in {name} never calls the model; it is given the model and the batch.")
    symbol = mx.sym.Group(loss)
    _check_operators(symbol, name)
    if caller.engine == "imperative":
        step = _assembled(model, symbol, given, "imperative", workload)
        return replace(step, held=(*step.net.outputs, *_values_of(step.net, caller.outputs)))
    net = mx.sym.Group(caller.outputs)
    cut = dict(zip((part.name for part in caller.results), output_forms(net, given, name), strict=True))
    graph = read_graph(symbol, forms_of(symbol, {**given, **cut}, name), shared=False)
    return replace(_assembled(model, net, given, caller.engine, workload), loss=graph, between=tuple(cut))


def symbol_step(symbol: Any, batch: Any, workload: Workload) -> Step:
    """A Symbol that ends in its own loss, bound as `mx.mod.Module` does; `batch` names its inputs, or is (x, y)."""
    name = workload.job.name
    arguments = symbol.list_arguments()
    given = dict(batch) if isinstance(batch, dict) else by_position(batch, arguments)
    for key in given:
        if key not in arguments:
            raise BadInput(f"the Symbol in {name} has no argument {key}; it has {', '.join(arguments[:8])}.")
    return _assembled(None, symbol, given, "executor", workload)


def _assembled(model: Any, symbol: Any, given: Mapping[str, Form], engine: str, workload: Workload) -> Step:
    unsupported = _check_operators(symbol, workload.job.name)
    forms = {**given, **forms_of(symbol, given, workload.job.name)}
    graph = read_graph(symbol, forms, shared=engine != "imperative", hinted=engine == "executor")
    params = dict(model.collect_params().items()) if model is not None else {}
    weights = [name for name in symbol.list_arguments() if name not in given]
    trained = tuple(name for name in weights if name not in params or params[name].grad_req != "null")
    if not trained:
        raise BadInput(f"nothing is trained in {workload.job.name}: no parameter has a gradient (grad_req).")
    sparse = [name for name in trained if name in params and params[name]._grad_stype != "default"]
    if sparse:
        unsupported["row_sparse gradient, counted as a dense one"] = len(sparse)
    return Step(
        net=graph,
        loss=None,
        between=(),
        forms=forms,
        trained=trained,
        states=tuple(name for name in forms if name not in given and name not in trained),
        inputs=tuple(given),
        engine=engine,
        held=(),
        unsupported=unsupported,
    )


def _values_of(graph: Graph, symbols: Sequence[Any]) -> list[int]:
    """The values that these Symbols stand for; an output's name ends in its number if its operator has several."""
    nodes = {node.name: node for node in graph.nodes[: graph.forward]}
    values = []
    for symbol in symbols:
        number = re.search(r"_output(\d+)$", symbol.list_outputs()[0])
        if symbol.name in nodes:
            values.append(nodes[symbol.name].outputs[int(number.group(1)) if number else 0])
    return values


class _Caller:
    """The model as the loss sees it: a call composes its Symbols. A hybridized block hands out variables for them."""

    def __init__(self, model: Any, given: Mapping[str, Form], job: str) -> None:
        self._model = model
        self._given = given
        self._job = job
        self.engine = _engine(model)
        self.outputs: list[Any] = []
        self.results: list[Any] = []
        """What the loss reads: the outputs, or variables in their place."""

    def __call__(self, *arguments: Any) -> Any:
        found = _called(self._model, arguments, self._job)
        outputs = _flat(found)
        group = mx.sym.Group(outputs)
        _check_operators(group, self._job)
        if self.engine == "hybridized" and _count(group) <= _INLINED:
            self.engine = "imperative"
        if self.engine == "imperative":
            self.outputs += outputs
            self.results += outputs
            return found
        symbols = [part for part in arguments if isinstance(part, mx.sym.Symbol)]
        if self.outputs or any(part.name not in self._given for part in symbols):
            raise BadInput(
                f"loss() in {self._job} calls a hybridized model twice, or with other things than batch() gives; leave "
                "hybridize() out, or put all of it into one block."
            )
        self.outputs = outputs
        self.results = [mx.sym.var(f"output{number}") for number in range(len(outputs))]
        return _in_place_of(found, iter(self.results))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _in_place_of(found: Any, variables: Iterator[Any]) -> Any:
    if isinstance(found, (list, tuple)):
        return type(found)(_in_place_of(part, variables) for part in found)
    return next(variables) if len(found.list_outputs()) == 1 else tuple(next(variables) for _ in found.list_outputs())


def _engine(model: Any) -> str:
    if not isinstance(model, HybridBlock) or not model._active:
        return "imperative"
    return "static" if dict(model._flags).get("static_alloc") else "hybridized"


def _called(model: Any, arguments: Sequence[Any], job: str) -> Any:
    try:
        return model(*arguments)
    except (AssertionError, TypeError, AttributeError, ValueError, NotImplementedError) as error:
        if isinstance(model, HybridBlock):
            raise
        raise JobFailed(
            f"{type(model).__name__} in {job} is a plain gluon.Block whose forward() needs arrays ("
            f"{first_sentence(error)}); make it a HybridBlock, with hybrid_forward(self, F, x) and F in place of "
            "mx.nd, so that it can be followed without running it."
        ) from error


def default_loss(output: tuple[int, ...], label: Form) -> Any:
    """Cross entropy where the labels number classes, else the squared error; MXNet's labels are mostly floats."""
    shape, dtype = label
    if len(output) > len(shape) or dtype.startswith(("int", "uint")):
        # Classes lie in the last dimension, or, for images, in the one behind the batch.
        axis = 1 if shape != output[:-1] and shape == (output[0], *output[2:]) else -1
        return mx.gluon.loss.SoftmaxCrossEntropyLoss(axis=axis)
    return mx.gluon.loss.L2Loss()


def _check_operators(symbol: Any, name: str) -> dict[str, int]:
    """Raises BadInput for loops whose length is not known; counts what is only followed by its outputs."""
    found: dict[str, int] = {}
    for node in json.loads(symbol.tojson())["nodes"]:
        if node["op"] in _UNKNOWN_COUNT:
            raise BadInput(
                f"{node['name']} in {name} is a while_loop, which runs an unknown number of times; use "
                "mx.nd.contrib.foreach, or write the steps out."
            )
        if node["op"] in _NOT_FOLLOWED:
            kind = (
                f"custom operator {node.get('attrs', {}).get('op_type', '')}" if node["op"] == "Custom" else node["op"]
            )
            found[kind] = found.get(kind, 0) + 1
    return found


def _count(symbol: Any) -> int:
    """How many operators it has."""
    return sum(node["op"] != "null" for node in json.loads(symbol.tojson())["nodes"])


def _load_symbol(path: str) -> Any:
    try:
        return mx.sym.load(path)
    except Exception as error:
        raise UnreadableFile(
            f"{path} is not a Symbol that MXNet {mx.__version__} can read ({reason(error)}); save it with this "
            "version, by net.export() or Symbol.save()."
        ) from error


def _flat(found: Any) -> list[Any]:
    if isinstance(found, (list, tuple)):
        return [part for value in found for part in _flat(value)]
    if not isinstance(found, mx.sym.Symbol):
        raise BadInput(f"the step gave {type(found).__name__} where MXNet's Symbols are expected.")
    return [found[number] for number in range(len(found.list_outputs()))] if len(found.list_outputs()) > 1 else [found]


def batch_forms(batch: Any, workload: Workload) -> Any:
    """What `batch()` returned, in tuples and dicts as there, with a `Form` in place of every array or shape."""
    if isinstance(batch, dict):
        return {str(name): batch_forms(value, workload) for name, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        if batch and all(isinstance(extent, int) for extent in batch):
            return _form(tuple(batch), "float32", workload)  # a shape alone
        return tuple(batch_forms(value, workload) for value in batch)
    try:
        return _form(tuple(batch.shape), getattr(batch.dtype, "__name__", str(batch.dtype)), workload)
    except (AttributeError, TypeError) as error:
        raise BadInput(
            f"batch() in {workload.job.name} returned something without a shape; return arrays or shapes, as (x, y)."
        ) from error


def as_symbols(batch: Any, given: dict[str, Form]) -> Any:
    """The same with variables, which are noted in `given`: of a pair, the second half are labels."""
    if isinstance(batch, tuple) and len(batch) == 2 and not _is_form(batch):
        return _variables(batch[0], "data", given), _variables(batch[1], "label", given)
    return _variables(batch, "data", given)


def pair(batch: Any, symbols: Any, job: str) -> tuple[tuple[Any, ...], Any]:
    """The model's arguments and the one label; raises BadInput where there is no such thing."""
    if isinstance(batch, tuple) and len(batch) == 2 and not _is_form(batch):
        labels = _leaves(symbols[1])
        if len(labels) == 1:
            return _leaves(symbols[0]), labels[0]
    raise BadInput(f"batch() in {job} returned no labels; return (x, y), or write loss(model, batch) in the job file.")


def by_position(batch: Any, arguments: Sequence[str]) -> dict[str, Form]:
    """For a Symbol: `data` and the label, which a loss names so; otherwise its arguments in order."""
    labels = [name for name in arguments if name.endswith("label")]
    names = ["data" if "data" in arguments else arguments[0], *labels]
    return dict(zip(names, _leaves(batch), strict=False))


def _variables(form: Any, kind: str, given: dict[str, Form]) -> Any:
    if isinstance(form, dict):
        return {name: _variables(part, kind, given) for name, part in form.items()}
    if not _is_form(form):
        return tuple(_variables(part, kind, given) for part in form)
    number = sum(name.startswith(kind) for name in given)
    name = f"{kind}{number or ''}"
    given[name] = form
    return mx.sym.var(name, shape=form[0], dtype=form[1])


def _leaves(value: Any) -> tuple[Any, ...]:
    """Forms or variables, in order."""
    if isinstance(value, mx.sym.Symbol) or _is_form(value):
        return (value,)
    parts = value.values() if isinstance(value, dict) else value
    return tuple(leaf for part in parts for leaf in _leaves(part))


def _is_form(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str)


def _form(shape: tuple[Any, ...], dtype: str, workload: Workload) -> Form:
    if not all(isinstance(extent, int) and extent > 0 for extent in shape):
        raise BadInput(
            f"batch() in {workload.job.name} leaves a dimension open ({shape}); give every dimension a size."
        )
    return shape, dtype
