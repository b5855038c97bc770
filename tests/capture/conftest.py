from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def llama(tmp_path: Path) -> str:
    """A config.json of a small Llama."""
    # Imported here: this file is also read in the environments of other frameworks, which have no torch.
    from tuned_jobs import write_llama

    return write_llama(tmp_path)
