"""Captures on the machines of a Ray cluster, which must have this oomcast, and the same versions of libraries."""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..cluster import connect, ray_module
from ..errors import BadInput, CaptureFailed, OomcastError
from ..provenance import TRACE_ROOMS, library_versions, source_digest
from ..spec import JobKind, Spec
from ..trace import Trace, trace_to_bytes
from .client import capture_here, trace_of
from .data_files import data_files, names_in
from .messages import Answer

__all__ = ["ClusterEngine", "captured_there"]

_MOST_SENT = 16 << 20
"""Bytes of data files that go to another machine with a question."""


class ClusterEngine:
    """One capture for each processor of the cluster."""

    def __init__(self, address: str) -> None:
        self._ray = ray_module()
        if not self._ray.is_initialized():
            connect(address)
            atexit.register(self._ray.shutdown)
        self.at_once = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._begun: dict[Spec, Any] = {}

    def expect(self, spec: Spec) -> None:
        if spec not in self._begun:
            self._begun[spec] = self._ask(spec)

    def capture(self, spec: Spec) -> Trace:
        self.expect(spec)
        try:
            data: bytes = self._ray.get(self._begun[spec])
        except self._ray.exceptions.RayError as error:
            del self._begun[spec]
            said = (str(error).strip() or type(error).__name__).splitlines()[0][:300].rstrip(".")
            reference = spec.workload.job.reference
            raise CaptureFailed(f"the Ray cluster lost the capture of {reference}: {said}.") from error
        except BaseException:  # Ctrl-C: nobody wants it any more
            self.drop([spec])
            raise
        del self._begun[spec]
        answer = Answer.from_bytes(data)
        if answer is None:
            raise CaptureFailed("a machine of the Ray cluster answered something else than a capture.")
        return trace_of(answer)

    def drop(self, specs: Iterable[Spec]) -> None:
        for spec in specs:
            if spec in self._begun:
                with contextlib.suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(self._begun.pop(spec), force=True)

    def _ask(self, spec: Spec) -> Any:
        files = _files_to_send(spec)
        # Other paths start from the caller's folder; a name needs none, and the machine need not have it.
        folder = os.getcwd() if files is None else None
        remote = self._ray.remote(captured_there).options(num_cpus=1, max_retries=2)
        return remote.remote(spec.as_dict(), folder, files or {}, source_digest(*TRACE_ROOMS), library_versions())


def _files_to_send(spec: Spec) -> dict[str, bytes] | None:
    """The content of the data files that a job names in the current folder, if it reads no others."""
    workload = spec.workload.as_dict()
    if spec.workload.job.kind is JobKind.FILE or any(text and os.path.isdir(text) for text in names_in(workload)):
        return None
    named = data_files(workload)
    if any(path.name != str(path) for path in named) or sum(path.stat().st_size for path in named) > _MOST_SENT:
        return None
    return {path.name: path.read_bytes() for path in named}


def captured_there(
    plain: dict[str, Any], folder: str | None, files: Mapping[str, bytes], digest: str, versions: Mapping[str, str]
) -> bytes:
    """On a machine of the cluster: an Answer in bytes, which no version of the types is needed for."""
    try:
        _check_software(digest, versions)
        with _within(folder, files):
            return Answer(payload=trace_to_bytes(capture_here(Spec.from_dict(plain)))).to_bytes()
    except OomcastError as error:
        return Answer.of_error(error).to_bytes()


@contextlib.contextmanager
def _within(folder: str | None, files: Mapping[str, bytes]) -> Iterator[None]:
    """In the caller's folder, or in one that has the caller's files."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="oomcast-cluster-") as own:
        for name, content in files.items():
            (Path(own) / name).write_bytes(content)
        try:
            os.chdir(own if folder is None else folder)
        except OSError:
            raise BadInput(
                f"a machine of the Ray cluster has no folder {folder}; share it, or name a model instead of a file."
            ) from None
        try:
            yield
        finally:
            os.chdir(before)


def _check_software(digest: str, versions: Mapping[str, str]) -> None:
    """An answer must not depend on the machine that gives it. A library that the caller has not is no concern."""
    if digest != source_digest(*TRACE_ROOMS):
        raise BadInput("a machine of the Ray cluster has another oomcast than this one; install the same there.")
    there = library_versions()
    for library, version in versions.items():
        if there.get(library, version) != version:
            raise BadInput(
                f"a machine of the Ray cluster has {library} {there[library]}, and this one {version}; install the "
                "same on both."
            )
