"""Command lines that lack something end in a sentence, not in a traceback."""

from __future__ import annotations

import pytest

from oomcast.cli import main


@pytest.mark.parametrize("words", [["estimate"], ["estimate", "--estimator"], ["plan", "zoo:mlp"], ["plan"]])
def test_words_that_are_missing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(words)
    except SystemExit as left:
        code = left.code  # type: ignore[assignment]
    assert code == 2
    assert "oomcast: " in capsys.readouterr().err
