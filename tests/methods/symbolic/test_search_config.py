"""The settings of a search and their file."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomcast.errors import UnreadableFile
from oomcast.methods.equations.symbolic import SearchConfig


def test_the_published_values_are_the_defaults() -> None:
    published = SearchConfig.published()
    assert published.engine == "deap"
    assert published.primitives == ("add", "multiply", "square", "cube")
    assert (published.population, published.generations) == (300, 150)
    assert (published.mutation, published.crossover) == (0.5, 1.0)
    assert (published.tournament, published.parsimony) == (3, 1.1)
    assert published.metric == "mape"


def test_a_file_sets_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "search.toml").write_text(
        "[search]\nengine = 'deap'\nprimitives = ['add', 'multiply', 'maximum']\n"
        "population = 20\nparsimony = 1.4\nseed = 7\n"
    )
    config = SearchConfig("deap", ("add", "multiply", "maximum"), population=20, parsimony=1.4, seed=7)
    assert SearchConfig.read(tmp_path / "search.toml") == config


def test_settings_that_a_file_does_not_name_have_their_defaults(tmp_path: Path) -> None:
    (tmp_path / "search.toml").write_text("[search]\npopulation = 50\n")
    assert SearchConfig.read(tmp_path / "search.toml") == SearchConfig(population=50)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("population = 50\n", "search.toml: population: unknown key"),
        ("", "search: is missing"),
        ("[search]\npopulation = \n", "not a TOML file"),
        ("[search]\npopulatoin = 50\n", "search.populatoin: unknown key 'populatoin'; did you mean population"),
        ("[search]\npopulation = 2\n", "population must be a whole number of at least 4"),
        ("[search]\npopulation = 50.5\n", "population must be a whole number"),
        ("[search]\ngenerations = true\n", "generations must be a whole number"),
        ("[search]\nmutation = 1.5\n", "mutation is a probability"),
        ("[search]\nparsimony = 3\n", "parsimony must be from 1 to 2"),
        ("[search]\nengine = 'pysr'\n", "operon, deap"),
        ("[search]\nmetric = 'mse'\n", "mape alone"),
        ("[search]\nprimitives = ['add', 'multiply', 'tan']\n", "unknown primitive 'tan'"),
        ("[search]\nprimitives = ['add']\n", "must hold add and multiply"),
        ("[search]\nprimitives = ['add', 'multiply', 'add']\n", "named twice"),
        ("[search]\nprimitives = 'add'\n", "must be a list"),
        ("[search]\nengine = 'deap'\nprimitives = ['add', 'multiply', 'subtract']\n", "deap has no subtract"),
        ("[search]\n[other]\n", "unknown key 'other'"),
    ],
)
def test_a_wrong_file_is_refused_with_a_reason(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "search.toml"
    path.write_text(content)
    with pytest.raises(UnreadableFile, match=words):
        SearchConfig.read(path)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="cannot be read"):
        SearchConfig.read(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnreadableFile, match="not a TOML file"):
        SearchConfig.read(tmp_path / "bytes.toml")
