"""GPUMemNet's own files: small ones made here, bad ones, and the real folder where it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.training.published import read_gpumemnet
from oomcast.errors import BadInput, UnreadableFile
from oomcast.methods.gpumemnet.dataset import read_dataset, write_dataset
from oomcast.units import MiB

GROUNDTRUTH = Path(
    os.environ.get("OOMCAST_GROUNDTRUTH", Path(__file__).resolve().parents[3].parent / "shared" / "groundtruth")
)
HEADER = "Filename,Depth,Activations-Params,Total Parameters,Batch Size,Max GPU Memory (MiB)"
LAYERS = "[('linear', 4, 36), ('ReLU', 4, 0), ('linear', 2, 10), ('Identity', 2, 0), ('linear', 2, 6)]"
STEP1 = f'input:8_output:2_depth:2_arch:pyramid_batch:16.out,3,"{LAYERS}",52,16,1479'
TRANSFORMER = """\
num_classes,embedding_size,num_layers,num_heads,ff_hidden_size,seq_length,vocab_size,batch_size,max_gpu_memory_mib,\
status
570,128,9,2,344,256,267646,8,2297,SUCCESSFUL
689,768,32,12,1685,1024,990286,32,40315,OOM_CRASH
"""


def file_with(folder: Path, text: str) -> Path:
    path = folder / "data.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_row_of_mlps(tmp_path: Path) -> None:
    (row,) = read_gpumemnet(file_with(tmp_path, f"{HEADER}\n{STEP1}\n")).rows
    assert row.id == "gpumemnet_mlp_step1 2"
    assert (row.network.kind, row.network.architecture, row.network.depth) == ("mlp", "pyramid", 2)
    assert (row.network.input_size, row.network.width, row.network.output_size) == (8, 4, 2)
    assert (row.label.source, row.label.device_total, row.label.outcome) == ("gpumemnet", 1479 * MiB, "fits")
    assert row.features is not None
    assert [layer.kind for layer in row.features.layers] == ["linear", "activation", "linear", "linear"]
    assert row.features.parameters == 52
    assert row.features.activation_function == "relu"
    assert row.simulator is None


def test_rows_of_transformers(tmp_path: Path) -> None:
    fits, crashed = read_gpumemnet(file_with(tmp_path, TRANSFORMER)).rows
    assert (fits.network.width, fits.network.hidden, fits.network.vocabulary) == (128, 344, 267646)
    assert fits.features is None
    assert (crashed.label.outcome, crashed.label.device_total) == ("oom", None)


def test_its_rows_go_into_our_files(tmp_path: Path) -> None:
    found = read_gpumemnet(file_with(tmp_path, f"{HEADER}\n{STEP1}\n"))
    for name in ("ours.csv", "ours.parquet"):
        write_dataset(found, tmp_path / name)
        assert read_dataset(tmp_path / name) == found


def test_missing_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="the columns 'Depth', 'Total Parameters' are missing"):
        read_gpumemnet(file_with(tmp_path, HEADER.replace("Depth,", "").replace("Total Parameters,", "") + "\n"))
    with pytest.raises(UnreadableFile, match="the column 'status' is missing"):
        read_gpumemnet(file_with(tmp_path, TRANSFORMER.replace(",status", "")))
    with pytest.raises(UnreadableFile, match="has not the layout of GPUMemNet's files"):
        read_gpumemnet(file_with(tmp_path, "a,b\n1,2\n"))


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read .*nothing.csv: No such file".replace(".csv", r"\.csv")):
        read_gpumemnet(tmp_path / "nothing.csv")
    with pytest.raises(UnreadableFile, match="has no rows that can be used"):
        read_gpumemnet(file_with(tmp_path, f"{HEADER}\n"))
    with pytest.raises(BadInput, match="column 'Activations-Params': it is not a list of layers"):
        read_gpumemnet(file_with(tmp_path, f"{HEADER}\n{STEP1.replace('36', '3.6')}\n"))
    with pytest.raises(BadInput, match="'LSTM' is no layer that GPUMemNet's networks have"):
        read_gpumemnet(file_with(tmp_path, f"{HEADER}\n{STEP1.replace('ReLU', 'LSTM')}\n"))


@pytest.mark.groundtruth
@pytest.mark.skipif(not GROUNDTRUTH.is_dir(), reason="the measurements are not here")
def test_the_real_files() -> None:
    counts = {}
    for name in ("mlp_step1", "mlp_step2", "cnn", "transformer"):
        found = read_gpumemnet(GROUNDTRUTH / f"gpumemnet_{name}.csv")
        counts[name] = len(found.rows)
        assert all(row.label.device_total or row.label.outcome == "oom" for row in found.rows)
    assert counts == {"mlp_step1": 2392, "mlp_step2": 2391, "cnn": 1590, "transformer": 16}
