"""`python -m lab train`: from its options to the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.__main__ import main
from lab.training import training


def test_train_calls_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def train(folder: Path, out: Path, **options: Any) -> str:
        asked.update(options, folder=folder, out=out)
        options["on_progress"]("fitting", 1, 2)
        return "the report"

    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr(training, "render", lambda report: f"rendered {report}")
    assert main(["train", str(tmp_path), "--output", str(tmp_path / "out"), "--seed", "3"]) == 0
    assert capsys.readouterr().out == "rendered the report\n"
    assert (asked["folder"], asked["out"], asked["rows"], asked["seed"]) == (tmp_path, tmp_path / "out", 250, 3)
    assert main(["train", str(tmp_path), "--output", "out", "--all-rows"]) == 0
    assert asked["rows"] is None
    assert main(["train", str(tmp_path), "--output", "out", "--rows", "0"]) == 2
    assert "--rows must be at least 1, not 0" in capsys.readouterr().err
