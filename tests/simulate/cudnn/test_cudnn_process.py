"""The process that holds cuDNN runs our code alone."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from oomcast.simulate.cudnn import CudnnUnavailable
from oomcast.simulate.cudnn.ask import _Worker


def test_code_of_the_current_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "json.py").write_text(f"open({str(ran)!r}, 'w').close()\nraise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    # Without cuDNN the process ends by itself; it has imported all that it imports by then.
    with contextlib.suppress(CudnnUnavailable):
        _Worker().stop()
    assert not ran.exists()
