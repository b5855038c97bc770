"""A training script as a seed of a campaign: the line that starts it, with marked places for what is varied.

`train.py --batch-size {{batch_size=8}} --width {{width=512}} --steps 4`

The line is that of `oomcast run`, and so is the capture: the script runs as it is on a virtual GPU, and its trace gives
SGV. A case starts the same line for real, in the folder of the campaign, and lets it run to its end; so the line should
say that few steps are enough. On a CPU the script must choose its device by itself, as scripts do that ask
`torch.cuda.is_available()`.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import BadInput
from ...spec import SCRIPT_TIME_LIMIT, Effort, Place, Script, Spec, read_launch
from .factors import Value
from .seeds import MarkedPlace, marked_places, read_text, written_parameter
from .specification import Rejection, Rules
from .static_figures import CPU, VIRTUAL_GPU
from .templates import Parameter, complete

__all__ = ["ScriptSeed"]

_TIME_LIMIT = 10 * SCRIPT_TIME_LIMIT
"""Seconds that a capture may take: on a busy machine a script is slow, and half of it would be another SGV."""


@dataclass(frozen=True)
class ScriptSeed:
    """A script, its arguments with their places, and the folder that it is started in."""

    name: str
    """The line as it was written."""
    folder: Path
    file: str
    """The script itself, as the line names it."""
    text: str = field(repr=False)
    places: tuple[MarkedPlace, ...]
    frameworks: tuple[str, ...] = ("torch",)
    framework: str = "torch"

    @classmethod
    def read(cls, line: str, folder: Path | None = None) -> ScriptSeed:
        """Raises BadInput for a line without a script, without places, or without one for the batch size.

        `folder` is where the line is started; a line that names another by `cd FOLDER && …` is started there.
        """
        start, _, rest = line.partition(" && ")
        if rest and start.startswith("cd "):
            folder, line = Path(shlex.split(start)[1]), rest
        place = (folder or Path.cwd()).resolve()
        places = tuple(marked_places(line, f"the line {line!r}"))
        if not any(one.name == "batch_size" for one in places):
            raise BadInput(
                f"the line {line!r} marks no batch size; write {{{{batch_size=8}}}} where the script is told its own."
            )
        seed = cls(line, place, "", "", places)
        with _inside(place):
            launch = read_launch(shlex.split(seed.line({})))
        if launch.is_module or launch.processes > 1:
            raise BadInput(f"a campaign starts a script file in one process; {line!r} is another kind of line.")
        return cls(line, place, launch.target, read_text(place / launch.target), places)

    @property
    def reference(self) -> str:
        return f"cd {shlex.quote(str(self.folder))} && {self.name}"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        choices = {place.name: place.choices for place in self.places if place.choices}
        made = [
            written_parameter(name, values[0], values if len(values) > 1 else ()) for name, values in choices.items()
        ]
        return tuple(sorted(made, key=lambda one: one.name != "batch_size"))

    @property
    def digest(self) -> str:
        """The same for lines and scripts that differ in the values of the marked places alone."""
        blank = self.line({place.name: "…" for place in self.places})
        return hashlib.sha256(f"{blank}\n{self.text}".encode()).hexdigest()[:16]

    def line(self, values: Mapping[str, Value]) -> str:
        """The line with these values; defaults for what is not named."""
        defaults = {place.name: place.choices[0] for place in self.places if place.choices}
        text = self.name
        for place in reversed(self.places):
            text = text[: place.start] + str(values.get(place.name, defaults[place.name])) + text[place.end :]
        return text

    def check(self, values: Mapping[str, Value], rules: Rules | None = None) -> Rejection | None:
        return rules.check_parameters(complete(self, values)) if rules is not None else None

    @contextmanager
    def captured(self, values: Mapping[str, Value], framework: str, steps: int, device: str) -> Iterator[Spec]:
        """The script on a virtual GPU, in its own folder, for so many steps."""
        line = tuple(shlex.split(self.line(complete(self, values))))
        place = Place(VIRTUAL_GPU if device == CPU else device)
        with _inside(self.folder):
            yield Spec.of_script(Script(line, max_steps=steps), place, Effort(time_limit=_TIME_LIMIT))

    def case(self, values: Mapping[str, Value], framework: str, steps: int, device: str) -> str:
        """A file that starts the script as Python would: the same arguments, folder and name."""
        settings = complete(self, values)
        with _inside(self.folder):
            launch = read_launch(shlex.split(self.line(settings)))
        return "\n".join(
            [
                f'"""A case of a campaign of oomcast: {self.line(settings).replace(chr(34), chr(39))}"""',
                "",
                "import os",
                "import runpy",
                "import sys",
                "",
                'if __name__ == "__main__":',
                f"    os.chdir({str(self.folder)!r})",
                f"    os.environ.update({dict(launch.variables)!r})",
                f"    sys.argv[:] = {[launch.target, *launch.arguments]!r}",
                f"    sys.path.insert(0, {str((self.folder / launch.target).parent)!r})",
                f'    runpy.run_path({launch.target!r}, run_name="__main__")',
                "",
            ]
        )

    def least_bytes(self, values: Mapping[str, Value], framework: str) -> int:
        return 0

    def described(self, values: Mapping[str, Value]) -> str:
        return self.line(values)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Scripts name their files as seen from where they are started."""
    before = os.getcwd()
    try:
        os.chdir(folder)
    except OSError as error:
        raise BadInput(f"the folder {folder} of a script cannot be entered: {error.strerror}.") from None
    try:
        yield
    finally:
        os.chdir(before)
