"""A training script as people start it: the words of its command line, read into what runs and with which settings.

`python train.py`, `python -m package`, `torchrun …`, `accelerate launch …` and plain `train.py` are all accepted:

>>> read_launch(("torchrun", "--nproc_per_node", "1", "train.py", "--lr", "1")).arguments
('--lr', '1')
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import BadInput
from .options import Flag, Kind, Switch, Text, Whole, option, read_fields

__all__ = ["COMPILING_MAY_TAKE", "SCRIPT_TIME_LIMIT", "Launch", "Script", "read_launch"]

SCRIPT_TIME_LIMIT = 60.0
"""Seconds after which a script is stopped, if it does not say otherwise, and what was seen of it is the answer."""
COMPILING_MAY_TAKE = 2
"""Times the limit. What torch takes to compile does not count as the script's time, up to so much."""


NOT_ASKED_FOR = "--no-compile was said"
"""Why what a script compiles is taken as eager code, where its user wants it so."""


class _Words(Kind):
    words = "the words of a command line"

    def read(self, value: Any) -> tuple[str, ...]:
        if isinstance(value, (str, os.PathLike)):
            value = shlex.split(os.fspath(value)) if isinstance(value, str) else (os.fspath(value),)
        listed = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in value]
        if not listed or not all(isinstance(word, str) for word in listed):
            raise BadInput("no script is given; write it like: oomcast run -- train.py --batch-size 32")
        return tuple(listed)


@dataclass(frozen=True)
class Script:
    """Which script runs, and how it is looked at."""

    line: tuple[str, ...] = option((), _Words(), help="the script and its arguments", flags=())
    max_steps: int | None = option(
        None,
        Whole("number of steps"),
        help="stop after so many optimizer steps (default: when the peak has repeated)",
        metavar="N",
    )
    synthetic_data: bool = option(
        False,
        Switch("synthetic_data"),
        help="feed every step the first batch that each data loader gave, instead of loading more",
    )
    worst_batch: bool = option(
        False,
        Switch("worst_batch"),
        help="look through the data set for its largest samples and run a batch of them first",
    )
    eager_because: str | None = option(
        None,
        Text("reason to run eagerly"),
        help="why what the script compiles is taken as eager code; none: torch.compile is followed",
        flags=(Flag("--no-compile", "take what the script compiles as eager code: sooner done", value=NOT_ASKED_FOR),),
        left_out_by_default=True,
    )

    def __post_init__(self) -> None:
        read_fields(self)

    @property
    def name(self) -> str:
        """As a person writes it."""
        return shlex.join(self.line)


@dataclass(frozen=True)
class Launch:
    """What a command line starts."""

    target: str
    """The path of a script, or the name of a module."""
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the environment: what the line sets, and what the launcher would."""
    processes: int = 1
    """How many the launcher would start, one for each GPU; 1 where it starts as many as there are."""
    nodes: int = 1
    for_accelerate: tuple[str, ...] = ()
    """What stands after `accelerate launch`; what that sets for its processes, its own code says."""


_PYTHON = re.compile(r"(.*[/\\])?python[0-9.]*(\.exe)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_PYTHON_WITH_VALUE = ("-W", "-X")
_TORCHRUN_SWITCHES = frozenset(
    {"--standalone", "--no-python", "-m", "--module", "--run-path", "--use-env", "--use_env"}
)
_ACCELERATE_SWITCHES = frozenset(
    {
        *("-m", "--module", "--no-python", "-q", "--quiet", "--debug", "--cpu", "--use-cpu", "--multi-gpu", "--tpu"),
        *("--ipex", "--use-xpu", "--use-deepspeed", "--use-fsdp", "--use-megatron-lm", "--use-parallelism-config"),
        *("--same-network", "--downcast-bf16", "--enable-cpu-affinity"),
    }
)
_LAUNCHERS_OF_TORCH = ("torch.distributed.run", "torch.distributed.launch")


def read_launch(words: Sequence[str]) -> Launch:
    """Raises BadInput for a line that starts no Python script."""
    rest, variables = list(words), {}
    if rest and rest[0] == "env":
        del rest[0]
    while rest and _VARIABLE.fullmatch(rest[0]):
        name, _, variables[name] = rest.pop(0).partition("=")
    if not rest:
        raise BadInput("no script is given; write it like: oomcast run -- train.py --batch-size 32")
    return _read(rest, variables)


def _read(words: list[str], variables: dict[str, str]) -> Launch:
    program = os.path.basename(words[0])
    if _PYTHON.fullmatch(words[0]):
        return _after_python(words[1:], variables)
    if program == "torchrun":
        return _after_torchrun(words[1:], variables)
    if program == "accelerate":
        if words[1:2] != ["launch"]:
            raise BadInput("of accelerate's commands, only accelerate launch starts a training script.")
        return _after_accelerate(words[2:], variables)
    if program in ("deepspeed", "srun", "mpirun", "mpiexec", "sbatch"):
        raise BadInput(f"{program} lines are not read; give the script itself, as in: oomcast run -- train.py …")
    return _file(words[0], words[1:], variables)


def _after_python(words: list[str], variables: dict[str, str]) -> Launch:
    place = 0
    while place < len(words) and words[place].startswith("-"):
        word = words[place]
        if word.startswith("-m"):
            module = [word[2:]] if len(word) > 2 else words[place + 1 : place + 2]
            after = words[place + (1 if len(word) > 2 else 2) :]
            if not module:
                break
            return _module(module[0], after, variables)
        if word.startswith("-c") or word == "-":
            raise BadInput("a program in the line itself (python -c, or from stdin) cannot be run; put it in a file.")
        place += 2 if word in _PYTHON_WITH_VALUE else 1
    if place >= len(words):
        raise BadInput("the line starts Python without a script; write it like: oomcast run -- train.py")
    return _file(words[place], words[place + 1 :], variables)


def _module(name: str, arguments: list[str], variables: dict[str, str]) -> Launch:
    if name in _LAUNCHERS_OF_TORCH:
        return _after_torchrun(arguments, variables)
    if name in ("accelerate.commands.launch", "accelerate.commands.accelerate_cli"):
        return _after_accelerate(arguments[1:] if arguments[:1] == ["launch"] else arguments, variables)
    return Launch(name, tuple(arguments), True, variables)


def _file(path: str, arguments: list[str], variables: dict[str, str]) -> Launch:
    if not os.path.exists(path):
        path = _command(path)
    if os.path.isdir(path) and not os.path.isfile(os.path.join(path, "__main__.py")):
        raise BadInput(f"{path!r} is a folder without a __main__.py; give the script itself.")
    return Launch(path, tuple(arguments), False, variables)


def _command(name: str) -> str:
    """The file behind a command that a Python package brought (`yolo train …`), as a shell finds it."""
    found = None if os.path.dirname(name) else shutil.which(name)
    if found is None:
        raise BadInput(f"there is no script {name!r}.")
    with open(found, "rb") as file:
        first = file.readline(200)
    if not (first.startswith(b"#!") and b"python" in first):
        raise BadInput(f"{name!r} is a command that is no Python script; give the script that it starts.")
    return found


def _options_before(words: list[str], switches: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """The launcher's own options, in dashes, and what follows them."""
    given: dict[str, str] = {}
    place = 0
    known = set(switches)
    while place < len(words) and words[place].startswith("-"):
        name, equals, value = words[place].partition("=")
        name = name.replace("_", "-")
        place += 1
        if not equals and name not in known:
            value = words[place] if place < len(words) else ""
            place += 1
        given[name] = value
    return given, words[place:]


def _after_torchrun(words: list[str], variables: dict[str, str]) -> Launch:
    given, rest = _options_before(words, _TORCHRUN_SWITCHES)
    a_node = given.get("--nproc-per-node", "1")
    nodes = _count("--nnodes", given.get("--nnodes", "1").rpartition(":")[2])
    processes = 1 if a_node in ("gpu", "auto", "cpu") else nodes * _count("--nproc-per-node", a_node)
    launcher = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": a_node if a_node.isdigit() else "1",
        "TORCHELASTIC_RUN_ID": "oomcast",
    }
    return _launched("torchrun", given, rest, {**launcher, **variables}, processes, nodes)


def _after_accelerate(words: list[str], variables: dict[str, str]) -> Launch:
    given, rest = _options_before(words, _ACCELERATE_SWITCHES)
    settings = {
        **_accelerate_file(given.get("--config-file")),
        **{n[2:].replace("-", "_"): v for n, v in given.items()},
    }
    processes = _count("--num-processes", str(settings.get("num_processes", 1)))
    nodes = _count("--num-machines", str(settings.get("num_machines", 1)))
    launch = _launched("accelerate launch", given, rest, variables, processes, nodes)
    return replace(launch, for_accelerate=tuple(words))


def _accelerate_file(path: str | None) -> dict[str, Any]:
    """The settings of a file that `accelerate config` wrote: flat `name: value` lines are all that is needed."""
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read(1 << 20).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the file of accelerate's settings {path!r} cannot be read: {error}.") from None
    pairs = (line.partition(":") for line in lines if line[:1].isalpha())
    values = {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}
    return {name: value == "true" if value in ("true", "false") else value for name, value in values.items()}


def _launched(
    launcher: str,
    given: Mapping[str, str],
    rest: list[str],
    variables: dict[str, str],
    processes: int,
    nodes: int = 1,
) -> Launch:
    if not rest:
        raise BadInput(f"the {launcher} line names no script.")
    if "--no-python" in given:
        raise BadInput(f"{launcher} --no-python starts another program than Python, which cannot be run.")
    if "-m" in given or "--module" in given:
        return Launch(rest[0], tuple(rest[1:]), True, variables, processes, nodes)
    one = _file(rest[0], rest[1:], variables)
    return Launch(one.target, one.arguments, False, variables, processes, nodes)


def _count(flag: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise BadInput(f"{flag} must be a whole number of at least 1, not {text!r}.")
    return int(text)
