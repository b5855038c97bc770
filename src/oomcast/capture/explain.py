"""What goes wrong in a job's process, as something to tell the user, whatever the framework."""

from __future__ import annotations

import errno
import os
import re
import traceback as _traceback
from pathlib import Path
from types import TracebackType

from ..errors import CaptureFailed, JobFailed, OomcastError
from ..spec import JobKind, Spec
from ..units import format_bytes

__all__ = [
    "CompiledCodeFailed",
    "beyond_memory_limit",
    "explain",
    "failed_job",
    "first_sentence",
    "is_users_file",
    "no_memory_for",
    "note_stand_in",
    "users_lines",
]

_OURS = str(Path(__file__).parents[1])
_ZOO = str(Path(_OURS) / "zoo")
_OF_PYTHON = str(Path(_traceback.__file__).parent) + os.sep


_STAND_IN = "_oomcast_stand_in"


class CompiledCodeFailed(CaptureFailed):
    """What a script compiles cannot be followed here; the text says why. As eager code the script may run."""


def explain(error: BaseException, spec: Spec) -> OomcastError:
    """Whose fault it is, in one sentence; the framework's own hook has been asked before."""
    if isinstance(error, OomcastError):
        return error
    reference, lines, text = spec.workload.job.reference, users_lines(error.__traceback__), first_sentence(error)
    if isinstance(error, RecursionError):
        return CaptureFailed(f"{reference} is nested too deep to be captured (Python's recursion limit).", lines)
    if spec.effort.memory_limit is not None and _is_for_want_of_memory(error):
        return beyond_memory_limit(spec)
    if isinstance(error, MemoryError) or "failed to map segment" in text or "llocate memory" in text:
        return no_memory_for(reference)
    if isinstance(error, SyntaxError) and error.filename:
        return JobFailed(f"{error.filename}, line {error.lineno}, is not valid Python: {error.msg}.")
    if isinstance(error, SystemExit):
        return JobFailed(f"{reference} ended its process (sys.exit) instead of returning.", lines)
    if _is_the_users(spec) and lines:
        return failed_job(error, spec)
    if isinstance(error, OverflowError) or "Overflow" in text:  # a size that no tensor can have
        return failed_job(error, spec)
    frames = _traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename.startswith(_OURS) and not frames[-1].filename.startswith(_ZOO):
        everything = "".join(_traceback.format_exception(error))
        return CaptureFailed(f"oomcast could not capture {reference}: {type(error).__name__}: {text}", everything)
    return failed_job(error, spec)


def failed_job(error: BaseException, spec: Spec, kind: str = "") -> JobFailed:
    """The job's own fault. `kind` is what the error is called, if not as its class."""
    lines = users_lines(error.__traceback__)
    what = "raised" if _is_the_users(spec) and lines else "rejects this configuration:"
    sentence = f"{spec.workload.job.reference} {what} {kind or type(error).__name__}: {first_sentence(error)}"
    hints = []
    if _is_for_want_of_permission(error) and not spec.effort.write_files:
        hints.append("while it is estimated, a job changes no files; --write-files lets it")
    parallel = spec.workload.parallel
    if parallel is not None and parallel.context > 1:
        hints.append(f"cp={parallel.context} cuts dimension 1 of the batch's tensors, which must be their sequence")
    where = error.__dict__.get(_STAND_IN)
    if where:
        hints.append(f"the value read{where} is not known without data, and what stands in for it may be why")
    if hints:
        sentence = "; ".join([sentence.rstrip("."), *hints])
    return JobFailed(sentence, lines)


def note_stand_in(error: BaseException, where: str) -> None:
    """The job read an unknown value there before it failed: it may not be its own fault."""
    error.__dict__[_STAND_IN] = where


def beyond_memory_limit(spec: Spec) -> CaptureFailed:
    limit = format_bytes(spec.effort.memory_limit or 0)
    return CaptureFailed(
        f"the capture of {spec.workload.job.reference} needs more of this machine's memory than its limit of {limit}; "
        "raise it with --memory-limit."
    )


def no_memory_for(reference: str) -> CaptureFailed:
    return CaptureFailed(
        f"this machine has too little memory to capture {reference}, or a limit on it (ulimit -v) is too low."
    )


def first_sentence(error: BaseException) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("Exception encountered when calling"):  # Keras: of which layer, then why
        lines = lines[1:]
    if lines and lines[0] == "in user code:":  # TensorFlow puts the traceback before what was said
        said = [line.partition(": ")[2] for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*: .", line)]
        lines = said[-1:] or lines
    return lines[0][:300] if lines else type(error).__name__


def users_lines(trace: TracebackType | None) -> str:
    """The traceback without ours, Python's and installed packages' frames."""
    frames = [
        frame
        for frame in _traceback.extract_tb(trace)
        if is_users_file(frame.filename) and "__autograph_generated_file" not in frame.filename
    ]
    return "".join(_traceback.format_list(frames))


def is_users_file(name: str) -> bool:
    """Whether code of that file is neither ours, Python's, an installed package's, nor of no file at all."""
    if name.startswith((_OURS + os.sep, _OF_PYTHON, "<")):
        return False
    return not {"site-packages", "dist-packages"} & set(Path(name).parts)


def _is_the_users(spec: Spec) -> bool:
    return spec.workload.job.kind in (JobKind.FILE, JobKind.OBJECT)


def _is_for_want_of_permission(error: BaseException) -> bool:
    return isinstance(error, PermissionError) or "ermission denied" in str(error)


def _is_for_want_of_memory(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or "llocate memory" in str(error) or "bad_alloc" in str(error)
