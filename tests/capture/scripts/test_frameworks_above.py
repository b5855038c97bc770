"""What frameworks above torch do, in plain torch: the causes for which `oomcast run` failed on them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

import oomcast
from oomcast.estimation import Estimate
from oomcast.trace import Ending

START = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.Adam(model.parameters())

def step(rows=64):
    optimizer.zero_grad()
    model(torch.randn(rows, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
"""


def run(tmp_path: Path, body: str, **options: Any) -> Estimate:
    script = tmp_path / "train.py"
    script.write_text(START + textwrap.dedent(body))
    return oomcast.run(str(script), device="a100-40gb", **options)


def ended(answer: Estimate) -> None:
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


def test_files_that_compiled_code_writes_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer is saved by Rust code, which opens the file itself; the folder is one that the script made."""
    pytest.importorskip("tokenizers")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    body = """
    import os
    from tokenizers import Tokenizer, models
    words = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    step(); step()
    os.makedirs("out/checkpoint-2")
    for folder in ("out/checkpoint-2", "there"):
        words.save(f"{folder}/tokenizer.json", pretty=True)
        assert Tokenizer.from_file(f"{folder}/tokenizer.json").get_vocab() == {"a": 0}
        words.model.save(folder)
        assert sorted(os.listdir(folder)) == ["tokenizer.json", "vocab.json"]
    """
    ended(run(tmp_path, body))
    assert list((tmp_path / "there").iterdir()) == []
    assert not (tmp_path / "out").exists()


def test_a_parameter_is_replaced_by_one_with_its_attributes(tmp_path: Path) -> None:
    """As accelerate and diffusers fill a model that was built on the meta device."""
    body = """
    with torch.device("meta"):
        layer = nn.Linear(64, 64)
    for name, old in list(layer.named_parameters()):
        layer._parameters[name] = type(old)(torch.zeros(old.shape), requires_grad=True, **old.__dict__)
    layer.cuda()(torch.ones(2, 64, device="cuda"))
    try:
        nn.Parameter(torch.zeros(2), colour="red")
    except TypeError:
        step(); step()
    """
    answer = run(tmp_path, body)
    ended(answer)
    assert answer.script is not None
    assert answer.script.optimizer_steps == 2


def test_kinds_of_tensors_of_a_library_go_to_the_gpu(tmp_path: Path) -> None:
    """Subclasses that only add Python, as fastai's and torchvision's: every result becomes one again."""
    body = """
    class Picture(torch.Tensor):
        pass
    first = model[0].weight
    for _ in range(3):
        picture = torch.ones(64, 1024).as_subclass(Picture).to("cuda")
        assert isinstance(picture, Picture) and picture.is_cuda
        out = model(picture * 2)
        assert isinstance(out, Picture) and out.requires_grad
        out.square().mean().backward()
        assert first.grad is not None
        optimizer.step()
        optimizer.zero_grad()
    other = torch.zeros(4).as_subclass(Picture)
    other.label = "cat"
    picture.__dict__ = other.__dict__
    assert picture.label == "cat" and picture.is_cuda and picture.sum().is_cuda
    assert not isinstance(picture.as_subclass(torch.Tensor), Picture)
    assert type(picture.cpu()).__name__ == "Picture" and not picture.cpu().is_cuda
    """
    ended(run(tmp_path, body))


def test_a_thread_may_work_on_tensors_while_the_script_trains(tmp_path: Path) -> None:
    """As trainers do that plot the first batches, or write checkpoints, beside the training."""
    body = """
    import sys, threading
    sys.setswitchinterval(1e-6)
    failed = []
    def plot(images):
        try:
            for side in range(2, 300):
                (images[:side] * 255).clamp(0, 1).sum(1)
        except BaseException as error:
            failed.append(error)
    for _ in range(3):
        images = torch.ones(300, 16, device="cuda").cpu()
        thread = threading.Thread(target=plot, args=(images,))
        thread.start()
        for rows in range(2, 200):
            torch.ones(rows, 8, device="cuda").mul(2).sum()
        step()
        thread.join()
    assert not failed, failed
    """
    ended(run(tmp_path, body))


def test_boxes_that_a_detector_suppresses_are_all_kept(tmp_path: Path) -> None:
    """torchvision's operator by its schema alone, as where its compiled code was made for another torch."""
    body = """
    if not hasattr(torch.ops.torchvision, "nms"):
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    boxes = torch.rand(1000, 4, device="cuda")
    kept = torch.ops.torchvision.nms(boxes, boxes[:, 0], 0.5)
    assert kept.shape == (1000,) and kept.dtype == torch.int64 and kept.is_cuda
    step(); step()
    """
    answer = run(tmp_path, body)
    ended(answer)
    assert any("nms depends on data: all boxes are kept" in sentence for sentence in answer.assumptions)


def test_a_detector_without_compiled_operators(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from importlib.util import find_spec

    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    body = """
    from torchvision.ops import nms
    step(); step()
    boxes = torch.rand(100, 4, device="cuda")
    assert nms(boxes, boxes[:, 0], 0.5).shape == (100,)
    """
    ended(run(tmp_path, body))
