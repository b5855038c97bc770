"""Data sets come back from their files as they were; files of another layout are refused in a sentence."""

from __future__ import annotations

import csv
import os
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from row_builder import LABEL, LAYERS, row

from oomcast.errors import BadInput, UnreadableFile
from oomcast.methods.gpumemnet.dataset import COLUMNS, Dataset, read_dataset, write_dataset
from oomcast.methods.gpumemnet.dataset.files import metadata_path
from oomcast.methods.gpumemnet.dataset.rows import flatten, unflatten

METADATA = {"settings": {"rows": 2, "kinds": ["mlp"]}, "failed": {}, "uniformity": {"strata": {"mlp uniform": 2}}}
MEASURED = replace(LABEL, source="runs", peak_allocated=None, peak_reserved=None, device_total=None, outcome="oom")
ROWS = (
    row(),
    row(label=MEASURED, simulator=None, dropout=None, batch_norm=False, heads=None),
    row(channels=3, width=9),
)
BOTH = pytest.mark.parametrize("suffix", [".parquet", ".csv"])


@BOTH
def test_round_trip(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    write_dataset(Dataset(ROWS, METADATA), path)
    assert read_dataset(path) == Dataset(ROWS, METADATA)
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    peaks=st.lists(st.one_of(st.none(), st.integers(0, 1 << 50)), min_size=3, max_size=3),
    dropout=st.one_of(st.none(), st.floats(0, 1)),
    share=st.floats(allow_nan=False, allow_infinity=False),
    suffix=st.sampled_from([".parquet", ".csv"]),
)
def test_any_figures_come_back(tmp_path: Path, peaks, dropout, share, suffix) -> None:
    label = replace(LABEL, peak_allocated=peaks[0], peak_reserved=peaks[1], device_total=peaks[2])
    one = row(label=label, dropout=dropout)
    assert one.simulator is not None
    one = replace(one, simulator=replace(one.simulator, cache=share))
    path = tmp_path / f"any{suffix}"
    write_dataset(Dataset((one,)), path)
    assert read_dataset(path).rows == (one,)


def test_a_row_without_layers_comes_back() -> None:
    bare = replace(row(), features=None, simulator=None)
    assert unflatten(flatten(bare)) == bare


def test_columns_are_those_of_a_row() -> None:
    assert [column.name for column in COLUMNS] == list(dict.fromkeys(column.name for column in COLUMNS))
    assert set(flatten(row())) == {column.name for column in COLUMNS}
    flat = flatten(row())
    assert flat["count_linear"] == 2
    assert flat["batch_activations"] == flat["activations"] * flat["batch_size"]
    assert flat["layers"][0] == ["linear", LAYERS[0].activations, LAYERS[0].parameters]


def test_the_parquet_file_explains_itself(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    write_dataset(Dataset(ROWS, METADATA), path)
    schema = pyarrow.parquet.read_schema(path)
    assert schema.field("width").metadata[b"meaning"].startswith(b"features of the first hidden layer")
    assert schema.field("peak_reserved").type == pyarrow.int64()
    assert pyarrow.parquet.read_table(path).column("layers")[0].as_py()[0] == {
        "kind": "linear", "activations": 8, "parameters": 40,
    }  # fmt: skip


@BOTH
def test_missing_columns_are_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    if suffix == ".csv":
        path.write_text("id,kind\n1,mlp\n")
    else:
        pyarrow.parquet.write_table(pyarrow.table({"id": ["1"], "kind": ["mlp"]}), path)
    with pytest.raises(
        UnreadableFile, match=r"the columns architecture, activation, batch_norm, .* and .* more are missing"
    ):
        read_dataset(path)


def edited(path: Path, column: str, cell: str) -> Path:
    write_dataset(Dataset(ROWS, METADATA), path)
    with path.open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    lines[1][column] = cell
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    return path


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("width", "wide", "row 3, column 'width': invalid literal"),
        ("batch_norm", "yes", "row 3, column 'batch_norm': 'yes' is neither True nor False"),
        ("layers", "[1]", "row 3, column 'layers': 1 is not a layer"),
        ("layers", "[[", "row 3, column 'layers'"),
        ("layers", '{"a": 1}', "row 3, column 'layers': not a list of layers"),
    ],
)
def test_a_bad_cell_is_named(tmp_path: Path, column: str, cell: str, said: str) -> None:
    with pytest.raises(UnreadableFile, match=said.replace("[", r"\[")):
        read_dataset(edited(tmp_path / "data.csv", column, cell))


def test_a_cut_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    write_dataset(Dataset(ROWS), path)
    path.write_text("\n".join(path.read_text().splitlines()[:2]) + "\nshort,mlp\n")
    with pytest.raises(UnreadableFile, match="row 3, column 'architecture': the row ends before this cell"):
        read_dataset(path)


def test_files_that_are_no_data_sets(tmp_path: Path) -> None:
    for name in ("data.parquet", "data.csv"):
        (tmp_path / name).write_bytes(b"\xff\x00garbage")
        with pytest.raises(UnreadableFile, match=name):
            read_dataset(tmp_path / name)
    with pytest.raises(BadInput, match="there is no file"):
        read_dataset(tmp_path / "nothing.csv")
    with pytest.raises(BadInput, match=r"ends in .parquet or .csv, not 'data.json'"):
        read_dataset(tmp_path / "data.json")


def test_without_pyarrow_csv_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"need the package pyarrow; .* 'oomcast\[dataset\]', or write a .csv"):
        write_dataset(Dataset(ROWS), tmp_path / "data.parquet")
    write_dataset(Dataset(ROWS), tmp_path / "data.csv")
    assert read_dataset(tmp_path / "data.csv").rows == ROWS


def test_metadata_of_a_csv_file_may_be_lost_but_not_spoilt(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    write_dataset(Dataset(ROWS, METADATA), path)
    metadata_path(path).write_text("[1]")
    with pytest.raises(UnreadableFile, match="is not that of a data set"):
        read_dataset(path)
    metadata_path(path).unlink()
    assert read_dataset(path) == Dataset(ROWS, {})


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no folder .* make it first"):
        write_dataset(Dataset(ROWS), tmp_path / "no" / "data.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(BadInput, match="is a folder"):
        write_dataset(Dataset(ROWS), tmp_path / "folder.csv")
    with pytest.raises(BadInput, match="there are no rows"):
        write_dataset(Dataset(()), tmp_path / "data.csv")
    with pytest.raises(BadInput, match=r"ends in .parquet or .csv, not 'data.txt'"):
        write_dataset(Dataset(ROWS), tmp_path / "data.txt")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BadInput, match="cannot write"):
        write_dataset(Dataset(ROWS), tmp_path / "data.csv")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data.csv"
    write_dataset(Dataset(ROWS[:1]), path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("oomcast.methods.gpumemnet.dataset.files._write_csv", full)
    with pytest.raises(BadInput, match=r"cannot write .*: No space left on device"):
        write_dataset(Dataset(ROWS), path)
    assert read_dataset(path).rows == ROWS[:1]
