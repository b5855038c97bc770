"""Rows that cannot be rebuilt yet: the reason comes from their own columns."""

from __future__ import annotations

from pathlib import Path

from lab.accuracy.unbuilt import UNBUILT, read_unbuilt


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


def test_others(tmp_path: Path) -> None:
    rows = ({"file": "OneFlow/GPT/README.md"}, {"file": "PyTorch/GPT/README.md"})
    assert [reason.split()[0] for reason in reasons(tmp_path, "dlperf_gpt", *rows)] == ["it", "the"]
    rows = ({"DS": "Y"}, {"DS": "N", "Size": "52B"}, {"Size": "195B", "NHIDDEN": "12288", "Layers": "106"})
    assert all("Megatron-DeepSpeed" in reason for reason in reasons(tmp_path, "bigscience", *rows))
    assert "length" in reasons(tmp_path, "internevo", {"fsdp": "True"})[0]
