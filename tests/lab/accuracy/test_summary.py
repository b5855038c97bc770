"""The table of `oomcast accuracy`: written by the laboratory, read by the product."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from case_builder import make_case, make_result

from lab.accuracy.summary import write_summary
from oomcast import __version__
from oomcast.cli import main
from oomcast.errors import BadInput, OomcastError
from oomcast.estimation.accuracy import read_accuracy, recorded_accuracy
from oomcast.units import MiB


def test_what_ships_is_read_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = recorded_accuracy()
    assert {"timm_a100_fp32", "xmem_runs", "timm_rtx3090_fits"} <= {one.data for one in recorded}
    assert all(one.what and one.source and one.version for one in recorded)
    assert all(0 <= share < 1 for one in recorded for share in (one.median_error, one.p90_error) if share is not None)
    assert main(["accuracy", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["sets"]) == len(recorded)
    assert main(["accuracy"]) == 0
    shown = capsys.readouterr().out
    assert "Estimates against measured memory" in shown
    assert "66 of 71" in shown


def test_a_summary_renews_its_own_rows_only(tmp_path: Path) -> None:
    file = tmp_path / "accuracy.json"
    case = make_case(1, "mlp", 1000 * MiB)
    write_summary({"timm_a100_fp32": [make_result(case, reserved=900 * MiB)]}, "no-workspace", file)
    write_summary({"real_models": [make_result(case, reserved=900 * MiB)]}, "no-workspace", file)
    write_summary({"real_models": [make_result(case, reserved=700 * MiB)]}, "no-workspace", file)
    timm, named = read_accuracy(file.read_text(encoding="utf-8"))
    assert (timm.data, timm.runs, timm.version, timm.kept_aside) == ("timm_a100_fp32", 1, __version__, False)
    assert named.median_error is not None
    assert timm.median_error is not None
    assert named.median_error < timm.median_error
    with pytest.raises(BadInput, match="nothing to summarise"):
        write_summary({}, "no-workspace", file)


def test_a_broken_table_says_so() -> None:
    for text in ("{}", "[", '{"schema": 9, "sets": []}', '{"schema": 1, "sets": [{"data": "x"}]}'):
        with pytest.raises(OomcastError, match=r"accuracy\.json.* is broken"):
            read_accuracy(text)
