"""A network as a PyTorch file, which is also a job file of oomcast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...specification import Shape, network_shapes
from ..network import Layer, Network
from .source import Step, argument, call, docstring, resolved, variables

__all__ = ["render_torch"]

_FUNCTIONS = {
    "relu": ("nn.ReLU", "F.relu"),
    "leaky_relu": ("nn.LeakyReLU", "F.leaky_relu"),
    "elu": ("nn.ELU", "F.elu"),
    "gelu": ("nn.GELU", "F.gelu"),
    "silu": ("nn.SiLU", "F.silu"),
    "tanh": ("nn.Tanh", "torch.tanh"),
}
"""As a module, where it follows another, and as a function, where it stands alone."""
_OPTIMIZERS = {
    "sgd": "torch.optim.SGD(params, lr=0.01)",
    "momentum": "torch.optim.SGD(params, lr=0.01, momentum=0.9)",
    "adam": "torch.optim.Adam(params, lr=1e-3)",
    "adamw": "torch.optim.AdamW(params, lr=1e-3, weight_decay=0.01)",
    "rmsprop": "torch.optim.RMSprop(params, lr=1e-3)",
}
_USAGE = """\
Run it to train for a few steps. It is a job file too:

    oomcast estimate FILE --batch-size N --device a100-40gb"""
_IN_PLACE_AFTER = ("conv", "conv_transpose", "linear", "batch_norm", "group_norm", "layer_norm", "add", "concatenate")
"""Layers that do not need their own output for the backward pass: ReLU may write over it."""


@dataclass(frozen=True)
class _Part:
    """Layers that follow one another with nothing between, written as one module."""

    attribute: str
    layers: tuple[Layer, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.layers[0].inputs

    @property
    def output(self) -> str:
        return self.layers[-1].name


def render_torch(network: Network, steps: int, device: str) -> str:
    shapes = network_shapes(network)
    layers = resolved(network, shapes)
    parts = _parts(layers)
    writer = _Writer(layers, shapes, parts, network.input.name)
    functions = [
        "\n".join(
            [
                "class Network(nn.Module):",
                "    def __init__(self) -> None:",
                "        super().__init__()",
                *(line for part in parts for line in writer.declared(part)),
                "",
                "    def forward(self, x: torch.Tensor) -> torch.Tensor:",
                *(f"        {writer.assigned(part)}" for part in parts[:-1]),
                f"        return {writer.expression(parts[-1])}",
            ]
        ),
        "def model() -> nn.Module:\n    return Network()",
        "\n".join(["def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:", *_batch(network)]),
        "\n".join(_loss(network)),
        f"def optimizer(params) -> torch.optim.Optimizer:\n    return {_OPTIMIZERS[network.optimizer]}",
        _TRAIN,
        'if __name__ == "__main__":\n    train()',
    ]
    imports = ["import torch", "from torch import nn"]
    if any("F." in function for function in functions):
        imports.append("from torch.nn import functional as F")
    sections = [
        docstring(network, "torch", shapes, _USAGE),
        "\n".join(imports),
        f'BATCH_SIZE = {network.batch_size}\nSTEPS = {steps}\nDEVICE = "{device}"',
    ]
    return "\n\n".join(sections) + "\n\n\n" + "\n\n\n".join(functions) + "\n"


_TRAIN = '''\
def train() -> None:
    """Train on random data: memory does not depend on what the numbers are."""
    network = model().to(DEVICE)
    network.train()
    trainer = optimizer(network.parameters())
    for _ in range(STEPS):
        inputs, targets = batch(BATCH_SIZE)
        trainer.zero_grad()
        loss(network, (inputs.to(DEVICE), targets.to(DEVICE))).backward()
        trainer.step()'''


def _parts(layers: tuple[Layer, ...]) -> list[_Part]:
    """Layers of one block that only pass their output on are one part; parts are named after their block."""
    uses = Counter(name for layer in layers for name in layer.inputs)
    chains: list[list[Layer]] = []
    for layer in layers:
        before = chains[-1][-1] if chains else None
        follows = before is not None and layer.inputs == (before.name,) and uses[before.name] == 1
        if follows and before and before.block == layer.block and _is_chained(before) and _is_chained(layer):
            chains[-1].append(layer)
        else:
            chains.append([layer])
    names: dict[str, int] = {}
    parts = []
    for chain in chains:
        name = chain[0].block if _is_declared(chain) else ""
        names[name] = names.get(name, 0) + 1
        parts.append(_Part(name if names[name] == 1 else f"{name}_{names[name]}", tuple(chain)))
    return parts


def _is_declared(chain: Sequence[Layer]) -> bool:
    """Whether `__init__` has a module for it; the rest is written in `forward` alone."""
    return chain[0].kind not in _FUNCTIONAL and not (len(chain) == 1 and chain[0].kind == "activation")


def _is_chained(layer: Layer) -> bool:
    return layer.kind == "activation" or (layer.kind in _MODULES and layer.kind not in _CALLED_APART)


class _Writer:
    """Writes the lines of `__init__` and `forward` for each part."""

    def __init__(self, layers: tuple[Layer, ...], shapes: dict[str, Shape], parts: list[_Part], start: str) -> None:
        self._shapes = shapes
        self._kinds = {layer.name: layer.kind for layer in layers}
        self._uses = Counter(name for layer in layers for name in layer.inputs)
        steps = [Step(part.inputs, part.output, part.attribute) for part in parts]
        self._names = variables(start, steps, far=2)

    def declared(self, part: _Part) -> list[str]:
        """The lines of `__init__` that make a layer; none for one that `forward` computes without a module."""
        if not _is_declared(part.layers):
            return []
        built = [self._built(layer) for layer in part.layers]
        if len(built) == 1:
            name, arguments = built[0]
            return call(f"self.{part.attribute} = {name}", arguments, indent=8)
        lines = [f"        self.{part.attribute} = nn.Sequential("]
        for name, arguments in built:
            lines += call(name, arguments, end=",", indent=12)
        return [*lines, "        )"]

    def assigned(self, part: _Part) -> str:
        return f"{self._names[part.output]} = {self.expression(part)}"

    def expression(self, part: _Part) -> str:
        layer = part.layers[0]
        inputs = [self._names[name] for name in layer.inputs]
        if not _is_declared(part.layers):
            return self._function(layer, inputs)
        module = f"self.{part.attribute}"
        if layer.kind == "positions":
            return f"{inputs[0]} + {module}.weight"
        if layer.kind == "attention":
            return f"{module}({inputs[0]}, {inputs[0]}, {inputs[0]}, need_weights=False)[0]"
        return f"{module}({inputs[0]})[0]" if layer.kind == "recurrent" else f"{module}({inputs[0]})"

    def _function(self, layer: Layer, inputs: list[str]) -> str:
        if layer.kind == "add":
            return " + ".join(inputs)
        if layer.kind == "concatenate":
            return f"torch.cat([{', '.join(inputs)}], dim=1)"
        if layer.kind == "mean":
            return f"{inputs[0]}.mean(dim=1)"
        if layer.kind == "activation":
            in_place = ", inplace=True" if self._is_in_place(layer) else ""
            return f"{_FUNCTIONS[str(layer.arguments['function'])][1]}({inputs[0]}{in_place})"
        sides = zip(self._shapes[layer.name][2:], self._shapes[layer.inputs[0]][2:], strict=True)
        amounts = [str(amount) for wanted, have in reversed(list(sides)) for amount in (0, wanted - have)]
        return f"F.pad({inputs[0]}, ({', '.join(amounts)}))"

    def _built(self, layer: Layer) -> tuple[str, list[str]]:
        if layer.kind == "activation":
            in_place = ["inplace=True"] if self._is_in_place(layer) else []
            return _FUNCTIONS[str(layer.arguments["function"])][0], in_place
        return _MODULES[layer.kind](self._shapes[layer.inputs[0]], layer.arguments)

    def _is_in_place(self, layer: Layer) -> bool:
        source = layer.inputs[0]
        alone = self._uses[source] == 1 and self._kinds.get(source) in _IN_PLACE_AFTER
        return alone and layer.arguments["function"] == "relu"


def _rank(x: Shape) -> int:
    return len(x) - 2


def _conv(x: Shape, arguments: Any) -> tuple[str, list[str]]:
    return f"nn.Conv{_rank(x)}d", [
        str(x[1]),
        str(arguments["filters"]),
        f"kernel_size={arguments['kernel']}",
        *argument("stride", arguments["stride"], 1),
        *argument("padding", arguments["padding"], 0),
        *argument("bias", arguments["bias"], True),
    ]


def _conv_transpose(x: Shape, arguments: Any) -> tuple[str, list[str]]:
    sizes = [f"kernel_size={arguments['kernel']}", f"stride={arguments['stride']}"]
    bias = argument("bias", arguments["bias"], True)
    return f"nn.ConvTranspose{_rank(x)}d", [str(x[1]), str(arguments["filters"]), *sizes, *bias]


def _pool(kind: str) -> Callable[[Shape, Any], tuple[str, list[str]]]:
    def built(x: Shape, arguments: Any) -> tuple[str, list[str]]:
        stride = argument("stride", arguments["stride"], arguments["kernel"])
        padding = argument("padding", arguments["padding"], 0)
        return f"nn.{kind}{_rank(x)}d", [f"kernel_size={arguments['kernel']}", *stride, *padding]

    return built


def _recurrent(x: Shape, arguments: Any) -> tuple[str, list[str]]:
    return f"nn.{arguments['cell'].upper()}", [
        str(x[-1]),
        str(arguments["hidden"]),
        *argument("num_layers", arguments["layers"], 1),
        *argument("bias", arguments["bias"], True),
        "batch_first=True",
        *argument("dropout", arguments["dropout"], 0.0),
        *argument("bidirectional", arguments["bidirectional"], False),
    ]


def _attention(x: Shape, arguments: Any) -> tuple[str, list[str]]:
    dropout = argument("dropout", arguments["dropout"], 0.0)
    return "nn.MultiheadAttention", [str(x[-1]), str(arguments["heads"]), *dropout, "batch_first=True"]


_MODULES: dict[str, Callable[[Shape, Any], tuple[str, list[str]]]] = {
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "max_pool": _pool("MaxPool"),
    "average_pool": _pool("AvgPool"),
    "global_pool": lambda x, arguments: (
        f"nn.Adaptive{'Avg' if arguments['how'] == 'average' else 'Max'}Pool{_rank(x)}d",
        ["1"],
    ),
    "linear": lambda x, arguments: (
        "nn.Linear",
        [str(x[-1]), str(arguments["features"]), *argument("bias", arguments["bias"], True)],
    ),
    "batch_norm": lambda x, _: (f"nn.BatchNorm{max(_rank(x), 1)}d", [str(x[1])]),
    "group_norm": lambda x, arguments: ("nn.GroupNorm", [str(arguments["groups"]), str(x[1])]),
    "layer_norm": lambda x, _: ("nn.LayerNorm", [str(x[-1])]),
    "dropout": lambda _x, arguments: ("nn.Dropout", [str(arguments["rate"])]),
    "flatten": lambda _x, _: ("nn.Flatten", []),
    "embedding": lambda _x, arguments: ("nn.Embedding", [str(arguments["rows"]), str(arguments["width"])]),
    "positions": lambda x, _: ("nn.Embedding", [str(x[1]), str(x[2])]),
    "attention": _attention,
    "recurrent": _recurrent,
}
_CALLED_APART = ("positions", "attention", "recurrent")
"""Modules that a sequence of modules cannot hold: they take or give more than one tensor."""
_FUNCTIONAL = ("add", "concatenate", "pad_like", "mean")


def _batch(network: Network) -> list[str]:
    shape = ", ".join(map(str, network.input.shape))
    if network.input.vocabulary:
        inputs = f"torch.randint({network.input.vocabulary}, (batch_size, {shape}))"
    else:
        inputs = f"torch.randn(batch_size, {shape})"
    points = ", ".join(map(str, network.input.shape[1:]))
    targets = {
        "classes": f"torch.randint({network.classes}, (batch_size,))",
        "tokens": f"torch.randint({network.classes}, (batch_size, {shape}))",
        "pixels": f"torch.randint({network.classes}, (batch_size, {points}))",
        "dice": f"torch.randint(2, (batch_size, 1, {points})).float()",
    }
    return [f"    inputs = {inputs}", f"    targets = {targets[network.loss]}", "    return inputs, targets"]


def _loss(network: Network) -> list[str]:
    head = [
        "def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:",
        "    inputs, targets = batch",
    ]
    if network.loss == "tokens":
        return [
            *head,
            "    outputs = model(inputs)",
            "    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())",
        ]
    if network.loss == "dice":
        return [
            *head,
            "    mask = torch.sigmoid(model(inputs)).flatten(1)",
            "    wanted = targets.flatten(1)",
            "    overlap = (mask * wanted).sum(1)",
            "    total = mask.sum(1) + wanted.sum(1)",
            "    return 1 - ((2 * overlap + 1) / (total + 1)).mean()",
        ]
    return [*head, "    return F.cross_entropy(model(inputs), targets)"]
