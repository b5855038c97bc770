"""Unfinished builds: whole lines count, torn ones do not, and other settings are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from row_builder import row

from oomcast.errors import BadInput, UnreadableFile
from oomcast.methods.gpumemnet.dataset import read_dataset
from oomcast.methods.gpumemnet.dataset.build import finish_dataset, journal_path, open_journal
from oomcast.methods.gpumemnet.dataset.rows import flatten

SETTINGS = {"rows": 3, "kinds": ["mlp", "cnn"], "device": "a100-40gb"}


def written(path: Path, count: int = 3) -> None:
    with open_journal(path, SETTINGS) as journal:
        for number in range(count):
            journal.add(f"row {number}", {"width": number})


def test_what_was_added_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    written(path, 2)
    with open_journal(path, SETTINGS) as journal:
        assert journal.entries == {"row 0": {"width": 0}, "row 1": {"width": 1}}
        journal.add("row 1", {"width": 100})  # known: the first stays
        journal.add("row 2", {"width": 2})
    with open_journal(path, SETTINGS) as journal:
        assert journal.entries == {f"row {number}": {"width": number} for number in range(3)}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_killed_at_any_byte(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "data.csv"
    journal_path(path).unlink(missing_ok=True)
    written(path)
    whole = journal_path(path).read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    journal_path(path).write_bytes(whole[:cut])
    complete = max(whole[:cut].count(b"\n") - 1, 0)
    with open_journal(path, SETTINGS) as journal:
        assert list(journal.entries) == [f"row {number}" for number in range(complete)]
        for number in range(3):
            journal.add(f"row {number}", {"width": number})
    assert journal_path(path).read_bytes() == whole


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    written(path, 1)
    other = {**SETTINGS, "rows": 5, "kinds": ["mlp"]}
    with (
        pytest.raises(
            BadInput, match=r"other settings: rows 3, not 5, kinds mlp cnn, not mlp\. Finish it .* --restart"
        ),
        open_journal(path, other),
    ):
        pass
    with open_journal(path, other, restart=True) as journal:
        assert journal.entries == {}
    with open_journal(path, other) as journal:
        assert journal.entries == {}


def test_an_error_gives_way_to_a_row(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    with open_journal(path, SETTINGS) as journal:
        journal.add("row", {"error": "killed"})
        journal.add("row", {"width": 1})
        journal.add("row", {"error": "killed again"})
    with open_journal(path, SETTINGS) as journal:
        assert journal.entries == {"row": {"width": 1}}


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    with (
        open_journal(path, SETTINGS),
        pytest.raises(BadInput, match="another process is building"),
        open_journal(path, SETTINGS),
    ):
        pass


def test_a_file_that_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    journal_path(path).write_text("something\nelse\n")
    with pytest.raises(UnreadableFile, match="is not an unfinished build"), open_journal(path, SETTINGS):
        pass
    with pytest.raises(BadInput, match="cannot write"), open_journal(tmp_path / "no" / "data.csv", SETTINGS):
        pass


def test_an_unfinished_build_can_be_ended_with_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    with pytest.raises(BadInput, match="no unfinished build"):
        finish_dataset(path)
    made = [row(width=width) for width in (8, 16, 24)]
    with open_journal(path, {"rows": 9, "seed": 1}) as journal:
        for one in made:
            journal.add(one.id, flatten(one))
        journal.add("mlp-lost", {"error": "it was too large"})
    finished = finish_dataset(path)
    assert [one.id for one in finished.rows] == [one.id for one in made]
    assert finished.metadata["finished_early"] == {"rows": 3, "planned": 9}
    assert finished.metadata["failed"] == {"mlp-lost": "it was too large"}
    assert read_dataset(path).rows == finished.rows
    assert not journal_path(path).exists()
