"""Public configuration files are fetched by name from clones, a folder for each format."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab import config_sources
from lab.config_sources import SOURCES, fetch_files
from oomcast.errors import BadInput


def clone_of(folder: Path, repository: str, path: str, text: str) -> None:
    place = folder / repository.replace("/", "+")
    file = place / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    name = ["-c", "user.name=nobody", "-c", "user.email=nobody@nowhere.invalid"]
    for line in (["init", "-q"], ["add", "-A"], [*name, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", "-C", str(place), *line], check=True)


def test_files_are_taken_from_clones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_sources, "SOURCES", {"axolotl": {"owner/name": ("examples/one.yml",)}})
    clone_of(tmp_path / "clones", "owner/name", "examples/one.yml", "base_model: gpt2\n")
    fetch_files(tmp_path / "clones", tmp_path / "files")
    (file,) = (tmp_path / "files" / "axolotl").iterdir()
    assert file.read_text() == "base_model: gpt2\n"
    monkeypatch.setattr(config_sources, "SOURCES", {"axolotl": {"owner/name": ("examples/gone.yml",)}})
    with pytest.raises(BadInput, match=r"no file examples/gone\.yml"):
        fetch_files(tmp_path / "clones", tmp_path / "files")


def test_ten_formats_have_five_files_each() -> None:
    assert len(SOURCES) == 10
    assert all(sum(map(len, files.values())) >= 5 for files in SOURCES.values())
