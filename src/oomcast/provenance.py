"""Which code made a file or an answer, and the versions of the libraries beside it.

The code is a digest over whole packages, so that nobody keeps a list of the files that matter.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from importlib import metadata, util
from pathlib import Path

__all__ = ["TRACE_ROOMS", "library_versions", "source_digest"]

TRACE_ROOMS = (
    "oomcast.spec",
    "oomcast.devices",
    "oomcast.trace",
    "oomcast.capture",
    "oomcast.simulate",
    "oomcast.zoo",
)
"""What decides a Trace. A room is in it as a whole: what a capture reads from it may change with any of its files."""

_LIBRARIES = (
    *("torch", "transformers", "timm", "torchvision", "peft", "accelerate", "bitsandbytes", "deepspeed", "numpy"),
    *("torchao", "diffusers", "pytorch-optimizer", "nvidia-cudnn-cu12"),
)
"""Those that a capture of a PyTorch job may run."""

_WRITTEN_BY_PYTHON = "__pycache__"


@functools.cache
def source_digest(*packages: str) -> str:
    """Of everything in these packages, source and data: another digest, and another version of the code wrote a file.

    The packages are found and not imported.
    """
    digest = hashlib.blake2b(digest_size=4)
    for package in packages:
        digest.update(package.encode())
        for path, name in _files(package):
            digest.update(name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _files(package: str) -> list[tuple[Path, str]]:
    """Each with its name inside the package."""
    spec = util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"{package} is no package whose files can be read")
    return [
        (path, path.relative_to(root).as_posix())
        for root in map(Path, spec.submodule_search_locations)
        for path in sorted(root.rglob("*"))
        if path.is_file() and _WRITTEN_BY_PYTHON not in path.parts
    ]


@functools.cache
def library_versions() -> Mapping[str, str]:
    """Of the installed libraries that decide what a PyTorch job allocates."""
    versions = {}
    for library in _LIBRARIES:
        try:
            versions[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return versions
