"""The sweep of architectures: which it knows, and what counts as compiled."""

from __future__ import annotations

import json

import pytest

from lab.__main__ import main
from lab.compiled_sweep import HF, TIMM, passed, sweep_here


def test_it_has_fifty_models_of_timm_and_thirty_of_transformers() -> None:
    assert (len(set(TIMM)), len(HF)) == (50, 30)


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compiled", "--sweep", "hf:bertt"]) == 2
    assert "hf:bert" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_a_model_passes_if_it_has_kernels_and_no_region_was_taken_as_eager(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    sweep_here(["hf:distilbert", "hf:unheard-of"])
    compiled, failed = (json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{"))
    assert passed(compiled)
    assert compiled["kernels"] > 5
    assert not passed(failed)
    assert not passed({**compiled, "eager": ["torch.compile: taken as eager"]})
