"""Extensions that code compiles while it runs are refused on the virtual GPU, in job files as in scripts."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

from oomcast.capture.torch.run import capture_here
from oomcast.errors import BadInput
from oomcast.spec import Spec

SPEC = {"device": "a100-40gb", "batch_size": 2, "steps": 1}


class _Job:
    catches: type[Exception] = Exception

    @classmethod
    def model(cls) -> nn.Module:
        from torch.utils.cpp_extension import load_inline

        try:
            load_inline(name="mine", cpp_sources="int f() { return 0; }", functions=["f"])
        except cls.catches:
            return nn.Linear(4, 4)
        raise AssertionError("it was compiled")

    @staticmethod
    def batch(batch_size: int) -> torch.Tensor:
        return torch.randn(batch_size, 4)


class _Careless(_Job):
    catches = ZeroDivisionError


def test_a_job_that_goes_on_without_is_told_and_nothing_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    trace = capture_here(Spec.read(_Job, **SPEC))
    (said,) = [sentence for sentence in trace.assumptions if "compiles the extension 'mine'" in sentence]
    assert __file__ in said
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInput, match=r"compiles the extension 'mine' at .* if it has any"):
        capture_here(Spec.read(_Careless, **SPEC))


def test_torch_is_itself_again_afterwards() -> None:
    """In a process that has not loaded the module before: it is found and changed when the job loads it."""
    code = """
    import sys
    from oomcast.capture.torch.machine import virtual_gpu
    from oomcast.devices import find_gpu, stack_of
    finders = list(sys.meta_path)
    with virtual_gpu(find_gpu("a100-40gb"), stack_of(None, "torch")):
        assert "torch.utils.cpp_extension" not in sys.modules
        from torch.utils.cpp_extension import load
        assert load.__module__ == "oomcast.capture.torch.extensions"
    from torch.utils import cpp_extension
    assert cpp_extension.load.__module__ == "torch.utils.cpp_extension"
    assert not [kind for kind in sys.meta_path if "oomcast.capture.torch.extensions" in type(kind).__module__]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


@pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is not installed")
def test_boft_compiles_nothing_and_the_answer_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, '
        '"intermediate_size": 64, "vocab_size": 128}'
    )
    adapter = "boft,boft_block_size=4,target_modules=q_proj+v_proj"
    trace = capture_here(Spec.read(f"hf:{config}", **SPEC, seq_len=8, optimizer="adamw", adapter=adapter))
    assert any("compiles the extension 'fbd_cuda'" in sentence for sentence in trace.assumptions)
    assert not (tmp_path / "extensions").exists()
