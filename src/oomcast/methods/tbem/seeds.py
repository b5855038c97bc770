"""Seeds: what a campaign varies. A template of oomcast's, a person's own job file or text with places in it, a script.

A seed has parameters, says which combinations of them can be built, and gives two things for one: what is captured for
SGV, and the case, which trains for real.

In a job file the parameters are what is written there as a plain value: constants in capitals (`WIDTH = 512`), and
arguments of `model` and `batch` that have a default (`def batch(batch_size, seq_len=256)`). A name that both functions
have is one parameter. In a text template (`encoder.py.template`) and in the command line of a script they are marked:
`{{width=512}}`, or `{{activation=ReLU|GELU}}` where only some texts are taken (see `marked_places`). Nothing of the
file is run to learn them; a case has other values in the same places.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Protocol, TypeAlias

from ...capture import guess_framework
from ...errors import BadInput, UnknownName
from ...spec import Spec
from .factors import Value
from .specification import Rejection, Rules, check_network
from .static_figures import CPU, VIRTUAL_GPU
from .templates import FRAMEWORKS, TEMPLATES, Parameter, Template, complete, count_parameters, render

__all__ = [
    "JOB_FRAMEWORKS",
    "MARK",
    "TEXT_ENDING",
    "JobSeed",
    "MarkedPlace",
    "Seed",
    "TemplateSeed",
    "find_seed",
    "marked_places",
    "read_text",
    "written_parameter",
]

JOB_FRAMEWORKS = ("torch", "keras", "jax", "mxnet")
_BYTES_PER_PARAMETER = 8
"""A trained parameter and its gradient in fp32: less than that no training step holds."""
_LARGEST_FILE = 4 << 20
_BATCH_SIZE = 32
TEXT_ENDING = ".template"
"""Of files in which places are marked; what is made of them is a job file."""
Captured: TypeAlias = "AbstractContextManager[Spec]"
_CAPTURED_BY = {"keras": "tensorflow"}
"""What captures call a framework, where campaigns call it otherwise."""


class Seed(Protocol):
    """What cases are made from."""

    @property
    def name(self) -> str:
        """`vgg`, or the name of a job file without its folder: the same wherever the campaign is run from."""

    @property
    def reference(self) -> str:
        """What `find_seed` finds it by: the name of a template, or the path of a job file."""

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...

    @property
    def frameworks(self) -> tuple[str, ...]: ...

    @property
    def framework(self) -> str:
        """The one that runs it, if nobody says otherwise."""

    @property
    def digest(self) -> str:
        """Other text than the parameters' values gives another; empty for what ships with oomcast."""

    def check(self, values: Mapping[str, Value], rules: Rules | None = None) -> Rejection | None:
        """The condition that says that no such network can be built, as far as that is known before it is built."""

    def captured(self, values: Mapping[str, Value], framework: str, steps: int, device: str) -> Captured:
        """What a capture is asked for, as long as the context lasts; `device` is cpu or a GPU of the catalogue."""

    def case(self, values: Mapping[str, Value], framework: str, steps: int, device: str) -> str:
        """A file that trains for `steps` steps on `device`, cpu or cuda, and needs no oomcast."""

    def least_bytes(self, values: Mapping[str, Value], framework: str) -> int:
        """What a case holds in any case, as far as that is known without a capture."""

    def described(self, values: Mapping[str, Value]) -> str:
        """What the answer to an estimate calls it."""


@dataclass(frozen=True)
class TemplateSeed:
    """A template that ships with oomcast."""

    template: Template

    @property
    def name(self) -> str:
        return self.template.name

    @property
    def reference(self) -> str:
        return self.template.name

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.template.parameters

    frameworks: tuple[str, ...] = FRAMEWORKS
    framework: str = "torch"
    digest: str = ""

    def check(self, values: Mapping[str, Value], rules: Rules | None = None) -> Rejection | None:
        network = self.template.network(values)
        rejection = check_network(network)
        if rejection is None and rules is not None:
            rejection = rules.check_parameters(complete(self, values)) or rules.check_network(network)
        return rejection

    def captured(self, values: Mapping[str, Value], framework: str, steps: int, device: str) -> Captured:
        source = render(self.template.network(values), framework, steps=steps)
        return _job_file(self.name, source, framework, steps, device, complete(self, values)["batch_size"])

    def case(self, values: Mapping[str, Value], framework: str, steps: int, device: str) -> str:
        return render(self.template.network(values), framework, steps=steps, device=device)

    def least_bytes(self, values: Mapping[str, Value], framework: str) -> int:
        return count_parameters(self.template.network(values), framework) * _BYTES_PER_PARAMETER

    def described(self, values: Mapping[str, Value]) -> str:
        return f"template:{self.name}"


@dataclass(frozen=True)
class _Spot:
    """Where a value is written: bytes `start` to `end` of the file."""

    name: str
    start: int
    end: int
    value: Value
    choices: tuple[Value, ...] = ()
    is_text: bool = False
    """A marked place, where a value is put as it is; else one of Python, which has quotes around a text."""


@dataclass(frozen=True)
class JobSeed:
    """A job file whose written values are its parameters, or a text in which their places are marked."""

    path: Path
    text: str = field(repr=False)
    spots: tuple[_Spot, ...]
    batch_size: int = _BATCH_SIZE
    frameworks: tuple[str, ...] = JOB_FRAMEWORKS

    @classmethod
    def read(cls, path: Path) -> JobSeed:
        """Raises BadInput for a file that is no job, or in which one parameter has several values."""
        text = read_text(path)
        spots = _marked_spots(text, str(path)) if path.name.endswith(TEXT_ENDING) else []
        tree = _parsed(_put(text, spots, {}), path)
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        missing = [name for name in ("model", "batch") if name not in functions]
        if missing:
            raise BadInput(f"{path} is no job file: it has no function {missing[0]}(); a job has model() and batch().")
        if not spots:
            arguments = [*_arguments(functions["model"], text), *_arguments(functions["batch"], text)]
            spots = [*_constants(tree, text), *arguments]
        values: dict[str, Value] = {}
        for spot in spots:
            if values.setdefault(spot.name, spot.value) != spot.value:
                raise BadInput(
                    f"{path} gives {spot.name} both {values[spot.name]!r} and {spot.value!r}; write it once."
                )
        written = values.get("batch_size")
        batch_size = written if isinstance(written, int) and not isinstance(written, bool) else _BATCH_SIZE
        return cls(path, text, tuple(spots), batch_size)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def reference(self) -> str:
        return str(self.path)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        named = {spot.name: written_parameter(spot.name, spot.value, spot.choices) for spot in self.spots}
        named.pop("batch_size", None)
        batch = Parameter("batch_size", "int", self.batch_size, minimum=1, meaning="samples in a batch")
        return (batch, *named.values())

    @property
    def framework(self) -> str:
        """What the file imports."""
        with self.captured(self.values(), "", 1, CPU) as spec:
            guessed = guess_framework(spec.workload)
        return "keras" if guessed == "tensorflow" else guessed

    @property
    def digest(self) -> str:
        """The same for two files that differ in the values of their parameters alone."""
        blank = _put(self.text, self.spots, {spot.name: "…" for spot in self.spots})
        return hashlib.sha256(blank.encode()).hexdigest()[:16]

    def values(self) -> dict[str, Value]:
        """The parameters as they are written in the file."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    def check(self, values: Mapping[str, Value], rules: Rules | None = None) -> Rejection | None:
        return rules.check_parameters(complete(self, values)) if rules is not None else None

    def captured(self, values: Mapping[str, Value], framework: str, steps: int, device: str) -> Captured:
        settings = complete(self, values)
        return _job_file(self.path.stem, self.job(settings), framework, steps, device, settings["batch_size"])

    def job(self, values: Mapping[str, Value]) -> str:
        """The file with these values; modules beside the original can still be imported."""
        text = _put(self.text, self.spots, complete(self, values))
        head = next((node.lineno for node in _parsed(text, self.path).body if not _stays_first(node)), 1)
        lines = text.splitlines(keepends=True)
        lines.insert(head - 1, f"import sys; sys.path.insert(0, {str(self.path.resolve().parent)!r})\n")
        return "".join(lines)

    def case(self, values: Mapping[str, Value], framework: str, steps: int, device: str) -> str:
        settings = complete(self, values)
        loops = files(__package__).joinpath("training_loops.py").read_text(encoding="utf-8")
        loops = loops.replace("from __future__ import annotations\n", "", 1).replace('if __name__ == "__main__":', "")
        written = ", ".join(f"{name} = {value}" for name, value in settings.items())
        # The job is a module of its own: what it does only when it is run as a program, it does not do here.
        return "\n".join(
            [
                f'"""A case of a campaign of oomcast: {self.path.name} with {written}."""',
                "",
                "from __future__ import annotations",
                "",
                "import os",
                "import sys",
                "",
                f"FOLDER = {str(self.path.resolve().parent)!r}",
                f"JOB = {_put(self.text, self.spots, settings)!r}",
                "",
                loops.split('"""', 2)[2].strip(),
                "",
                "",
                'if __name__ == "__main__":',
                "    if os.path.isdir(FOLDER):",
                "        os.chdir(FOLDER)",
                "        sys.path.insert(0, FOLDER)",
                '    job = sys.modules["job"] = type(sys)("job")',
                f"    job.__file__ = {str(self.path.resolve())!r}",
                '    exec(compile(JOB, job.__file__, "exec"), job.__dict__)',
                f'    train(job, "{framework}", {settings["batch_size"]}, {steps}, "{device}")',
                "",
            ]
        )

    def least_bytes(self, values: Mapping[str, Value], framework: str) -> int:
        return 0

    def described(self, values: Mapping[str, Value]) -> str:
        return self.reference


def find_seed(name: str) -> Seed:
    """A template by its name, a job file or a text template by its path, a script by its line with marked places."""
    if name in TEMPLATES:
        return TemplateSeed(TEMPLATES[name])
    if MARK.search(name):
        from .script_seed import ScriptSeed

        return ScriptSeed.read(name)
    if name.endswith((".py", TEXT_ENDING)):
        return JobSeed.read(Path(name))
    known = f"There are {', '.join(TEMPLATES)}; a job file ends in .py, a text with marked places in {TEXT_ENDING}."
    raise UnknownName("template", name, TEMPLATES, known)


def read_text(path: Path) -> str:
    """Raises BadInput for what cannot be read."""
    try:
        return path.read_text(encoding="utf-8") if path.stat().st_size <= _LARGEST_FILE else ""
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}.") from None


_AS_ON_A_CPU = """

# As on a CPU, where torch's optimizers work on one parameter after the other.
def _one_by_one():
    from torch.optim import Optimizer

    made = Optimizer.__init__

    def make(self, params, defaults):
        if defaults.get("foreach", True) is None:
            defaults["foreach"] = False
        made(self, params, defaults)

    Optimizer.__init__ = make


_one_by_one()
"""
"""On a GPU they work on all at once and hold temporaries as large as all parameters; on a CPU the two of the largest
parameter (Adam's root and quotient) can be what the peak is made of."""
_AS_CASES_RUN = """

# As cases are run: by TensorFlow's own executor, whatever Keras would choose on a GPU.
def _without_xla():
    import keras

    compiled = keras.Model.compile

    def compile(self, *arguments, **options):
        compiled(self, *arguments, **{**options, "jit_compile": False})

    keras.Model.compile = compile


_without_xla()
"""


@contextmanager
def _job_file(name: str, source: str, framework: str, steps: int, device: str, batch_size: Value) -> Iterator[Spec]:
    """A job file that is there as long as it is captured."""
    on_cpu = device == CPU
    with tempfile.TemporaryDirectory(prefix="oomcast-") as folder:
        file = Path(folder) / f"{Path(name).stem}.py"
        if on_cpu and framework == "torch":
            source += _AS_ON_A_CPU
        elif framework == "keras":
            source += _AS_CASES_RUN
        file.write_text(source, encoding="utf-8")
        captured_by = _CAPTURED_BY.get(framework, framework) or None
        gpu = VIRTUAL_GPU if on_cpu else device
        yield Spec.read(file, device=gpu, batch_size=batch_size, steps=steps, framework=captured_by)


MARK = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*(?:=([^{}]*))?\}\}")
"""A marked place. A text's own double braces are left alone as long as no single name stands in them."""


@dataclass(frozen=True)
class MarkedPlace:
    """Where `{{name=default}}`, `{{name=default|other|…}}` or, further on, `{{name}}` is written."""

    name: str
    start: int
    end: int
    choices: tuple[Value, ...]
    """The default first; more where only these are taken; empty for a place that repeats a name."""


def marked_places(text: str, where: str) -> list[MarkedPlace]:
    """The marked places of a text, in order. Raises BadInput where a name has no default, or two."""
    places = []
    for match in MARK.finditer(text):
        name, written = match.groups()
        choices = () if written is None else tuple(_value(part.strip()) for part in written.split("|"))
        places.append(MarkedPlace(name, match.start(), match.end(), choices))
    for name in dict.fromkeys(place.name for place in places):
        defaults = {place.choices for place in places if place.name == name and place.choices}
        if len(defaults) != 1:
            said = "no value" if not defaults else "several values"
            raise BadInput(f"{where} gives {name} {said}; write {{{{{name}=VALUE}}}} once, then {{{{{name}}}}}.")
    return places


def _marked_spots(text: str, where: str) -> list[_Spot]:
    places = marked_places(text, where)
    if not places:
        raise BadInput(f"{where} marks no place; write {{{{width=512}}}} where a campaign is to put other values.")
    choices = {place.name: place.choices for place in places if place.choices}
    before = [len(text[: place.start].encode()) for place in places]
    return [
        _Spot(
            place.name,
            start,
            start + len(text[place.start : place.end].encode()),
            choices[place.name][0],
            choices[place.name] if len(choices[place.name]) > 1 else (),
            is_text=True,
        )
        for place, start in zip(places, before, strict=True)
    ]


def _value(written: str) -> Value:
    """A number or a switch as a person writes it, else the text itself."""
    try:
        value = json.loads(written.lower() if written in ("True", "False") else written)
    except ValueError:
        return written
    return value if isinstance(value, (int, float)) else written


def _put(text: str, spots: Sequence[_Spot], values: Mapping[str, Value]) -> str:
    """The text with these values in their places; a marked place whose value is not named gets its default."""
    data = text.encode()
    for spot in sorted(spots, key=lambda spot: -spot.start):
        if spot.name in values or spot.is_text:
            value = values.get(spot.name, spot.value)
            data = data[: spot.start] + (str(value) if spot.is_text else repr(value)).encode() + data[spot.end :]
    return data.decode()


def _parsed(text: str, path: Path) -> ast.Module:
    try:
        return ast.parse(text)
    except (ValueError, SyntaxError) as error:
        raise BadInput(f"the job file {path} cannot be read: {getattr(error, 'msg', None) or error}.") from None


def written_parameter(name: str, value: Value, choices: tuple[Value, ...] = ()) -> Parameter:
    kind = {bool: "bool", str: "str", int: "int", float: "float"}[type(value)]
    meaning = "written in the job"
    if choices or isinstance(value, (bool, str)):
        return Parameter(name, kind, value, choices, meaning=meaning)  # type: ignore[arg-type]
    least = (1 if isinstance(value, int) else 0) if value > 0 else None
    return Parameter(name, kind, value, minimum=least, meaning=meaning)  # type: ignore[arg-type]


def _constants(tree: ast.Module, text: str) -> list[_Spot]:
    spots = []
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id.isupper():
            spots += _spot(targets[0].id, value, text)
    return spots


def _arguments(function: ast.FunctionDef, text: str) -> list[_Spot]:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    pairs = [
        *zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    return [spot for argument, default in pairs for spot in _spot(argument.arg, default, text)]


def _spot(name: str, node: ast.expr | None, text: str) -> list[_Spot]:
    """The place of a plain value; none for what is computed."""
    plain = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    if node is None or not isinstance(plain, ast.Constant) or not isinstance(plain.value, (int, float, str)):
        return []
    lines = text.encode().splitlines(keepends=True)
    before = [0]
    for line in lines:
        before.append(before[-1] + len(line))
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    start, end = before[node.lineno - 1] + node.col_offset, before[node.end_lineno - 1] + node.end_col_offset
    return [_Spot(name, start, end, ast.literal_eval(node))]


def _stays_first(node: ast.stmt) -> bool:
    """A docstring or an import from __future__, before which nothing may stand."""
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__")
