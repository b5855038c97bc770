"""Values of a TOML table, each checked as it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oomcast.errors import UnreadableFile
from oomcast.tables import Table, read_toml


def table(where: str = "plan", **values: Any) -> Table:
    return Table("file.toml", where, values)


def test_what_is_absent_has_its_default() -> None:
    empty = table()
    assert empty.text("name", None) is None
    assert empty.whole("runs", 3) == 3
    assert empty.number("seconds", 2.5) == 2.5
    assert empty.size("bytes") is None
    assert empty.table("limits").values == {}
    assert empty.tables("blocks") == []


def test_sizes_are_numbers_or_words() -> None:
    assert table(bytes="1KiB").size("bytes") == table(bytes=1024).size("bytes") == 1024


def test_a_tables_path_is_that_of_toml_or_words() -> None:
    inner = table(limits={"seconds": True}).table("limits")
    assert inner.path("seconds") == "plan.limits.seconds"
    assert table("job 'a'").path("count") == "job 'a': count"
    assert table("").path("count") == "count"


@pytest.mark.parametrize("value", [True, "1", -1, 1.5, 10**400])
def test_whole_numbers_have_limits(value: Any) -> None:
    with pytest.raises(UnreadableFile, match=r"^file\.toml: plan\.runs: must be a whole number from 0 to 9, not"):
        table(runs=value).whole("runs", 0, least=0, most=9)


@pytest.mark.parametrize("value", [True, "1", -1, float("nan"), float("inf"), 10**400])
def test_numbers_are_finite_and_not_negative(value: Any) -> None:
    with pytest.raises(UnreadableFile, match=r"^file\.toml: plan\.seconds: must "):
        table(seconds=value).number("seconds", 0.0)


def test_a_mistyped_key_is_told_with_those_that_are_near() -> None:
    with pytest.raises(UnreadableFile, match=r"plan\.rnus: unknown key 'rnus'; did you mean runs\? Known here: runs"):
        table(rnus=1).only("runs", "method")
    with pytest.raises(UnreadableFile, match=r"plan\.runs: is missing; add it\."):
        table().require("runs")


def test_a_file_that_is_no_toml_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"cannot be read: No such file"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UnreadableFile, match=r"is not a TOML file"):
        read_toml(tmp_path / "bytes.toml")
