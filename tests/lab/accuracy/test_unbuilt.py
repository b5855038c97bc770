"""Rows that cannot be rebuilt yet: the reason comes from their own columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.accuracy.unbuilt import QUANTISED, SEVERAL_GPUS, UNBUILT, UNKNOWN_LENGTHS, read_unbuilt
from oomcast.errors import BadInput


def reasons(folder: Path, name: str, *rows: dict[str, str]) -> list[str]:
    columns = UNBUILT[name][0]
    lines = [",".join(f'"{column}"' for column in columns)]
    lines += [",".join(f'"{row.get(column, "")}"' for column in columns) for row in rows]
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = read_unbuilt(name, path)
    assert not found.cases
    assert [skip.row for skip in found.skipped] == [str(number) for number in range(2, len(rows) + 2)]
    return [skip.reason for skip in found.skipped]


def test_torchtitan(tmp_path: Path) -> None:
    told = reasons(
        tmp_path,
        "torchtitan_qwen3_14b",
        {"world": "8", "command": "torchrun train.py --compile.enable"},
        {"command": "torchrun --nproc_per_node=8 train.py"},
        {"world": "1", "command": "train.py --compile.enable"},
        {"world": "1", "command": "train.py"},
        {"command": "train.py"},
    )
    assert told[:2] == [SEVERAL_GPUS, SEVERAL_GPUS]
    assert told[2].startswith("compiled")
    assert told[3] == "one GPU, eager: no reader yet"
    assert told[4] == "its number of GPUs is not published"


def test_others(tmp_path: Path) -> None:
    strategies = ({"strategy_pp_tp_dp": "1_1_8_c_sp"}, {"strategy_pp_tp_dp": "1_1_1"})
    assert reasons(tmp_path, "galvatron_profiles", *strategies) == [SEVERAL_GPUS, "one GPU, eager: no reader yet"]
    swift = ({"GPU Memory (GiB)": "27.7"}, {"GPU Memory (GiB)": "9", "Quantization": "int4 (bnb)"}, {})
    assert reasons(tmp_path, "ms_swift", *swift) == [UNKNOWN_LENGTHS, QUANTISED, "it has no figure"]
    with pytest.raises(BadInput, match="does not say its parallel parts"):
        reasons(tmp_path, "dlperf_gpt", {"case": "nothing"})
