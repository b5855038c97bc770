"""An option is one field: a new field of a description is there on the command line, in TOML, JSON and Python."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import oomcast
from oomcast.advise.pack import read_jobs
from oomcast.cli.job_options import add_job_options, given_options
from oomcast.errors import BadInput, UnknownName
from oomcast.spec import (
    DESCRIPTIONS,
    Effort,
    Job,
    Place,
    Workload,
    as_plain,
    option,
    options_of,
    read_description,
    takes_options,
)
from oomcast.spec.options import Whole


@dataclass(frozen=True)
class LargerWorkload(Workload):
    """The job's description with an option that oomcast does not have."""

    micro_batches: int = option(1, Whole("number of micro-batches"), help="parts of a pipeline's batch", metavar="N")


WITH_IT = (LargerWorkload, Place, Effort)
JOB = "zoo:mlp"


def parsed(descriptions: tuple[type, ...], *words: str) -> dict[str, object]:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_job_options(parser, descriptions=descriptions)
    namespace, unknown = parser.parse_known_args([JOB, "--batch-size", "8", "--device", "t4", *words])
    if unknown:
        raise BadInput(f"unknown: {unknown}")
    return given_options(namespace, descriptions)


def test_the_command_line_has_it() -> None:
    assert parsed(WITH_IT, "--micro-batches", "4")["micro_batches"] == 4
    assert "micro_batches" not in parsed(WITH_IT)
    with pytest.raises(BadInput, match="--micro-batches: the number of micro-batches must be a whole number"):
        parsed(WITH_IT, "--micro-batches", "none")
    parser = argparse.ArgumentParser()
    add_job_options(parser, descriptions=WITH_IT)
    assert "parts of a pipeline's batch" in parser.format_help()


def test_toml_has_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(f'[[job]]\nname = "a"\njob = "{JOB}"\nbatch_size = 8\nmicro_batches = 4\n')
    assert read_jobs(path, WITH_IT).jobs[0].options["micro_batches"] == 4
    path.write_text(path.read_text().replace("4", "0"))
    with pytest.raises(BadInput, match="micro-batches"):
        read_jobs(path, WITH_IT)


def test_json_has_it() -> None:
    described = LargerWorkload.create(JOB, batch_size=8, micro_batches=4)
    plain = json.loads(json.dumps(as_plain(described)))
    assert plain["micro_batches"] == 4
    assert read_description(LargerWorkload, plain, job=Job.parse(JOB)) == described
    assert LargerWorkload.from_dict(json.loads(json.dumps(described.as_dict()))) == described


def parameters_with(descriptions: tuple[type, ...]) -> Mapping[str, inspect.Parameter]:
    """Those of a function that takes the options of the descriptions."""

    @takes_options(*descriptions)
    def asked(job: str, **options: object) -> None: ...

    return inspect.signature(asked).parameters


def test_python_has_it() -> None:
    parameter = parameters_with(WITH_IT)["micro_batches"]
    assert (parameter.kind, parameter.default) == (inspect.Parameter.KEYWORD_ONLY, 1)


def test_nobody_has_it_without_the_field(tmp_path: Path) -> None:
    """The proof can fail: the tests above find the field, not something that takes any name."""
    with pytest.raises(BadInput, match="unknown"):
        parsed(DESCRIPTIONS, "--micro-batches", "4")
    path = tmp_path / "jobs.toml"
    path.write_text(f'[[job]]\nname = "a"\njob = "{JOB}"\nbatch_size = 8\nmicro_batches = 4\n')
    with pytest.raises(BadInput, match="unknown key 'micro_batches'"):
        read_jobs(path)
    with pytest.raises(UnknownName, match="micro_batches"):
        Workload.create(JOB, micro_batches=4)
    assert "micro_batches" not in parameters_with(DESCRIPTIONS)


def test_every_option_says_what_it_is() -> None:
    for declared in options_of(*DESCRIPTIONS):
        for flag in declared.flags:
            assert flag.help
            assert flag.value is not None or flag.metavar


FIELD = """    micro_batches: int = option(
        1, Whole("number of micro-batches"), help="parts of a pipeline's batch", metavar="N"
    )

"""
ASKED_OF_THE_COPY = """
import contextlib, inspect, io, json, sys
from pathlib import Path
import oomcast
from oomcast.advise import fit, rank_gpus, what_to_change
import oomcast
from oomcast.advise.pack import read_jobs
from oomcast.cli import main

helps = {}
for command in ("estimate", "fit", "gpus", "advise", "calibrate"):
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        main([command, "--help"])
    helps[command] = "--micro-batches" in shown.getvalue()
with contextlib.redirect_stdout(io.StringIO()) as shown:
    code = main("estimate zoo:mlp --batch-size 2 --device t4 --steps 1 --micro-batches 4 --json".split())
Path("jobs.toml").write_text('[[job]]\\nname = "a"\\njob = "zoo:mlp"\\nbatch_size = 8\\nmicro_batches = 5\\n')
functions = (oomcast.estimate, oomcast.calibrate, fit, rank_gpus, what_to_change)
print(json.dumps({
    "home": oomcast.__file__,
    "helps": helps,
    "code": code,
    "json": json.loads(shown.getvalue())["workload"]["micro_batches"],
    "python": oomcast.estimate(
        "zoo:mlp", batch_size=2, device="t4", steps=1, micro_batches=3
    ).workload["micro_batches"],
    "toml": read_jobs(Path("jobs.toml")).jobs[0].options["micro_batches"],
    "signatures": {function.__name__: "micro_batches" in inspect.signature(function).parameters
                   for function in functions},
}))
"""


def test_a_copy_of_oomcast_with_the_field_has_it_everywhere(tmp_path: Path) -> None:
    """One line in one file, and the real commands, functions and readers take it, the capture process included."""
    copy = tmp_path / "oomcast"
    shutil.copytree(Path(oomcast.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    described = copy / "spec" / "workload.py"
    text = described.read_text(encoding="utf-8")
    before = "    def __post_init__(self) -> None:\n        read_fields(self)\n"
    assert text.count(before) == 1
    described.write_text(text.replace(before, FIELD + before), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", ASKED_OF_THE_COPY],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "OOMCAST_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("home").startswith(str(tmp_path))
    everywhere = dict.fromkeys(("estimate", "calibrate", "fit", "rank_gpus", "what_to_change"), True)
    commands = dict.fromkeys(("estimate", "fit", "gpus", "advise", "calibrate"), True)
    assert told == {"helps": commands, "code": 0, "json": 4, "python": 3, "toml": 5, "signatures": everywhere}
