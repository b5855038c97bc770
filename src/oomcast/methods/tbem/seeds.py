"""Seeds: what a campaign varies. A template of oomcast's, or a person's own job file with the numbers written in it.

A seed has parameters, says which combinations of them can be built, and gives two files for one: a job file, which is
captured for SGV, and the case, which trains for real.

In a job file the parameters are what is written there as a plain value: constants in capitals (`WIDTH = 512`), and
arguments of `model` and `batch` that have a default (`def batch(batch_size, seq_len=256)`). A name that both functions
have is one parameter. Nothing of the file is run to learn them; a case has other values in the same places.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from ...capture import guess_framework
from ...errors import BadInput, UnknownName
from ...spec import JobKind, Workload
from .factors import Value
from .specification import Rejection, Rules, check_network
from .templates import FRAMEWORKS, TEMPLATES, Parameter, Template, complete, count_parameters, render

__all__ = ["JOB_FRAMEWORKS", "JobSeed", "Seed", "TemplateSeed", "find_seed", "framework_of_job"]

JOB_FRAMEWORKS = ("torch", "keras", "jax", "mxnet")
_BYTES_PER_PARAMETER = 8
"""A trained parameter and its gradient in fp32: less than that no training step holds."""
_LARGEST_FILE = 4 << 20
_BATCH_SIZE = 32


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
    def digest(self) -> str:
        """Other text than the parameters' values gives another; empty for what ships with oomcast."""

    def check(self, values: Mapping[str, Value], rules: Rules | None = None) -> Rejection | None:
        """The condition that says that no such network can be built, as far as that is known before it is built."""

    def job(self, values: Mapping[str, Value], framework: str, steps: int) -> str:
        """A job file, to be captured."""

    def case(self, values: Mapping[str, Value], framework: str, steps: int, device: str) -> str:
        """A file that trains for `steps` steps on `device`, cpu or cuda, and needs no oomcast."""

    def least_bytes(self, values: Mapping[str, Value], framework: str) -> int:
        """What a case holds in any case, as far as that is known without a capture."""


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
    digest: str = ""

    def check(self, values: Mapping[str, Value], rules: Rules | None = None) -> Rejection | None:
        network = self.template.network(values)
        rejection = check_network(network)
        if rejection is None and rules is not None:
            rejection = rules.check_parameters(complete(self, values)) or rules.check_network(network)
        return rejection

    def job(self, values: Mapping[str, Value], framework: str, steps: int) -> str:
        return render(self.template.network(values), framework, steps=steps)

    def case(self, values: Mapping[str, Value], framework: str, steps: int, device: str) -> str:
        return render(self.template.network(values), framework, steps=steps, device=device)

    def least_bytes(self, values: Mapping[str, Value], framework: str) -> int:
        return count_parameters(self.template.network(values), framework) * _BYTES_PER_PARAMETER


@dataclass(frozen=True)
class _Spot:
    """Where a value is written: bytes `start` to `end` of the file."""

    name: str
    start: int
    end: int
    value: Value


@dataclass(frozen=True)
class JobSeed:
    """A job file whose written values are its parameters."""

    path: Path
    text: str = field(repr=False)
    spots: tuple[_Spot, ...]
    batch_size: int = _BATCH_SIZE
    frameworks: tuple[str, ...] = JOB_FRAMEWORKS

    @classmethod
    def read(cls, path: Path) -> JobSeed:
        """Raises BadInput for a file that is no job, or in which one parameter has several values."""
        try:
            data = path.read_bytes() if path.stat().st_size <= _LARGEST_FILE else b""
            text = data.decode("utf-8")
            tree = ast.parse(text)
        except (OSError, ValueError, SyntaxError) as error:
            reason = getattr(error, "strerror", None) or getattr(error, "msg", None) or "it is no text"
            raise BadInput(f"the job file {path} cannot be read: {reason}.") from None
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        missing = [name for name in ("model", "batch") if name not in functions]
        if missing:
            raise BadInput(f"{path} is no job file: it has no function {missing[0]}(); a job has model() and batch().")
        spots = [*_constants(tree, text), *_arguments(functions["model"], text), *_arguments(functions["batch"], text)]
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
        named = {spot.name: _parameter(spot.name, spot.value) for spot in self.spots}
        named.pop("batch_size", None)
        batch = Parameter("batch_size", "int", self.batch_size, minimum=1, meaning="samples in a batch")
        return (batch, *named.values())

    @property
    def digest(self) -> str:
        """The same for two files that differ in the values of their parameters alone."""
        return hashlib.sha256(self._with({spot.name: "…" for spot in self.spots}).encode()).hexdigest()[:16]

    def values(self) -> dict[str, Value]:
        """The parameters as they are written in the file."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    def check(self, values: Mapping[str, Value], rules: Rules | None = None) -> Rejection | None:
        return rules.check_parameters(complete(self, values)) if rules is not None else None

    def job(self, values: Mapping[str, Value], framework: str, steps: int) -> str:
        """The file with these values; modules beside the original can still be imported."""
        text = self._with(complete(self, values))
        head = next((node.lineno for node in ast.parse(text).body if not _stays_first(node)), 1)
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
                f"JOB = {self._with(settings)!r}",
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

    def _with(self, values: Mapping[str, Value]) -> str:
        data = self.text.encode()
        for spot in sorted(self.spots, key=lambda spot: -spot.start):
            if spot.name in values:
                data = data[: spot.start] + repr(values[spot.name]).encode() + data[spot.end :]
        return data.decode()


def find_seed(name: str) -> Seed:
    """A template by its name, or a job file by its path."""
    if name in TEMPLATES:
        return TemplateSeed(TEMPLATES[name])
    if name.endswith(".py"):
        return JobSeed.read(Path(name))
    raise UnknownName("template", name, TEMPLATES, f"There are {', '.join(TEMPLATES)}; a job file ends in .py.")


def framework_of_job(path: str) -> str:
    """What a job file imports, in the words of campaigns: torch, keras, jax or mxnet."""
    workload = Workload.create(path)
    assert workload.job.kind is JobKind.FILE
    found = guess_framework(workload)
    return "keras" if found == "tensorflow" else found


def _parameter(name: str, value: Value) -> Parameter:
    if isinstance(value, bool):
        return Parameter(name, "bool", value, meaning="written in the job file")
    if isinstance(value, str):
        return Parameter(name, "str", value, meaning="written in the job file")
    least = (1 if isinstance(value, int) else 0) if value > 0 else None
    kind = "int" if isinstance(value, int) else "float"
    return Parameter(name, kind, value, minimum=least, meaning="written in the job file")  # type: ignore[arg-type]


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
