"""Saving on the virtual GPU: nothing of the user's is touched, and what was saved can be loaded again."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import oomcast
from oomcast.capture import capture
from oomcast.spec import Spec

DEVICE = "a100-40gb"
PRECIOUS = b"a checkpoint of last week"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(PRECIOUS)
    return path


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Linear(32, 8)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(16, 64, device="cuda")).sum().backward()
    optimizer.step()
    return model, optimizer


def test_torch_save_leaves_the_file_and_takes_no_memory(precious: Path) -> None:
    with oomcast.virtual_gpu(DEVICE) as gpu:
        model, optimizer = trained()
        before = torch.cuda.memory_allocated()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, precious)
        assert torch.cuda.memory_allocated() == before
        assumptions = gpu.trace().assumptions
    assert precious.read_bytes() == PRECIOUS
    assert any("was not written" in sentence for sentence in assumptions)
    assert [path.name for path in precious.parent.iterdir()] == [precious.name]


def test_what_was_saved_is_loaded_where_it_is_asked_for(precious: Path) -> None:
    with oomcast.virtual_gpu(DEVICE):
        model, optimizer = trained()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, precious)
        before = torch.cuda.memory_allocated()
        kept = torch.load(precious, map_location="cuda")
        # As much again, in blocks of 512 bytes, as the saved tensors of the GPU hold.
        held = sum(tensor.nbytes for tensor in [*model.state_dict().values()]) + sum(
            value.nbytes for state in optimizer.state.values() for value in state.values() if value.is_cuda
        )
        assert held <= torch.cuda.memory_allocated() - before <= held + 512 * 20
        assert kept["epoch"] == 3
        assert {tensor.device.type for tensor in kept["model"].values()} == {"cuda"}
        assert [tensor.shape for tensor in kept["model"].values()] == [t.shape for t in model.state_dict().values()]
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        on_host = torch.load(str(precious), map_location="cpu")
        assert {tensor.device.type for tensor in on_host["model"].values()} == {"cpu"}


def test_real_values_of_the_host_come_back() -> None:
    with oomcast.virtual_gpu(DEVICE):
        stream = io.BytesIO()
        torch.save({"order": torch.tensor([3, 1, 2]), "weight": torch.ones(4, device="cuda")}, stream)
        stream.seek(0)
        kept = torch.load(stream)
    assert kept["order"].tolist() == [3, 1, 2]


def test_shared_memory_stays_shared(precious: Path) -> None:
    with oomcast.virtual_gpu(DEVICE):
        base = torch.ones(1 << 20, device="cuda")
        torch.save([base, base[: 1 << 19], base.view(1024, 1024)], precious)
        before = torch.cuda.memory_allocated()
        kept = torch.load(precious)
        assert torch.cuda.memory_allocated() - before == base.nbytes
        assert kept[2].shape == (1024, 1024)


def test_a_whole_module_comes_back(precious: Path) -> None:
    with oomcast.virtual_gpu(DEVICE):
        model, _ = trained()
        torch.save(model, precious)
        again = torch.load(precious, weights_only=False)
        assert [p.shape for p in again.parameters()] == [p.shape for p in model.parameters()]
        assert all(isinstance(p, nn.Parameter) and p.is_cuda for p in again.parameters())


def test_what_cannot_be_pickled_is_the_jobs_error_and_the_file_stays(precious: Path) -> None:
    with oomcast.virtual_gpu(DEVICE), pytest.raises((AttributeError, TypeError), match="pickle"):
        torch.save(lambda: 1, precious)
    assert precious.read_bytes() == PRECIOUS


def test_real_files_are_loaded_to_the_virtual_gpu(tmp_path: Path) -> None:
    path = tmp_path / "real.pt"
    torch.save({"weight": torch.arange(1024.0), "epoch": 3}, path)
    with oomcast.virtual_gpu(DEVICE):
        kept = torch.load(path, map_location="cuda")
        assert kept["weight"].is_cuda
        assert torch.cuda.memory_allocated() == 4096
        assert torch.load(path)["weight"].tolist() == list(range(1024))
    assert torch.load(path)["epoch"] == 3


def test_safetensors_writes_nothing(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    path = tmp_path / "model.safetensors"
    path.write_bytes(PRECIOUS)
    with oomcast.virtual_gpu(DEVICE):
        model, _ = trained()
        library.save_file(model.state_dict(), path)
        assert library.load_file(path, device="cuda")["0.weight"].shape == (32, 64)
        assert library.load_model(model, path) == (set(), [])
        assert len(library.save(model.state_dict())) < 200
    assert path.read_bytes() == PRECIOUS


def test_save_pretrained_writes_no_weights(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_embd=64, n_head=2, vocab_size=100, bos_token_id=0, eos_token_id=0)
    with oomcast.virtual_gpu(DEVICE):
        transformers.GPT2LMHeadModel(config).cuda().save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))


def test_everything_is_put_back() -> None:
    def functions() -> list[Any]:
        library = pytest.importorskip("safetensors.torch")
        return [torch.save, torch.load, library.serialize_file, library.load_file, torch.UntypedStorage.data_ptr]

    before = functions()
    with oomcast.virtual_gpu(DEVICE):
        assert functions() != before
    assert functions() == before


JOB = """
import torch
from torch import nn

def model():
    return nn.Linear(64, 64)

def batch(batch_size):
    return torch.randn(batch_size, 64), torch.randn(batch_size, 64)

def loss(model, batch):
    {save}
    return nn.functional.mse_loss(model(batch[0]), batch[1])
"""


BY_NAME = "torch.save(model.state_dict(), {path!r})"
BY_STREAM = """with open({path!r}, 'wb') as stream:
        torch.save(model.state_dict(), stream)"""
AND_MOVED = """import os
    torch.save(model.state_dict(), {path!r} + '.part')
    os.replace({path!r} + '.part', {path!r})
    assert len(os.listdir(os.path.dirname({path!r}))) == 1
    with open({path!r}, 'rb') as stream:
        assert torch.load(stream, map_location='cpu')['weight'].shape == (64, 64)
    os.remove({path!r})
    assert not os.path.exists({path!r})"""


@pytest.mark.parametrize("save", [BY_NAME, BY_STREAM, AND_MOVED])
def test_a_job_that_saves_harms_nothing(precious: Path, tmp_path_factory: pytest.TempPathFactory, save: str) -> None:
    folder = tmp_path_factory.mktemp("jobs")
    saving, plain = folder / "saving.py", folder / "plain.py"
    saving.write_text(JOB.format(save=save.format(path=str(precious))))
    plain.write_text(JOB.format(save="pass"))
    traces = [capture(Spec.read(job, device=DEVICE, batch_size=4)) for job in (saving, plain)]
    assert precious.read_bytes() == PRECIOUS
    assert [path.name for path in precious.parent.iterdir()] == [precious.name]
    assert [made.nbytes for made in traces[0].allocations] == [made.nbytes for made in traces[1].allocations]
