"""Names, entries, and an import that stays free of torch."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import typing

import pytest

from oomcast import zoo
from oomcast.errors import UnknownName
from oomcast.zoo.catalogue import Task


def test_the_public_names_are_these() -> None:
    assert zoo.__all__ == [
        "DiffusionModel",
        "Job",
        "PublicModel",
        "TextEncoder",
        "ZooModel",
        "diffusion_models",
        "find",
        "find_diffusion_model",
        "find_public_model",
        "names",
        "public_models",
    ]


def test_every_name_is_found_once() -> None:
    assert len(set(zoo.names())) == len(zoo.names()) == 38
    assert [zoo.find(name).name for name in zoo.names()] == list(zoo.names())


@pytest.mark.parametrize("spelling", ["mobilenet_v2", "mobilenet-v2", "MobileNet-V2"])
def test_a_name_may_be_spelled_freely(spelling: str) -> None:
    assert zoo.find(spelling).name == "mobilenet_v2"


def test_an_unknown_name_shows_near_ones() -> None:
    with pytest.raises(UnknownName, match=r"unknown zoo model 'resnet5'; did you mean .*resnet50"):
        zoo.find("resnet5")


@pytest.mark.parametrize("name", zoo.names())
def test_an_entry_describes_its_model(name: str) -> None:
    entry = zoo.find(name)
    assert entry.task in typing.get_args(Task)
    assert entry.summary
    assert "\n" not in entry.summary
    assert entry.citation
    assert entry.default_batch_size >= 1
    assert isinstance(entry.default_input, int) == entry.task.startswith(("causal", "masked", "text"))


def test_an_entry_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        zoo.find("mlp").name = "other"  # type: ignore[misc]


def test_a_job_leaves_the_optimizer_to_the_default() -> None:
    assert not hasattr(zoo.find("mlp").load(), "optimizer")


def _torch_is_imported_after(code: str) -> bool:
    program = f"import sys\n{code}\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "True"


def test_the_package_does_not_import_torch() -> None:
    assert not _torch_is_imported_after(
        "import oomcast.zoo as zoo\nfor name in zoo.names(): assert zoo.find(name).summary"
    )


def test_loading_does_so_the_proof_can_fail() -> None:
    assert _torch_is_imported_after("import oomcast.zoo as zoo\nzoo.find('mlp').load()")
