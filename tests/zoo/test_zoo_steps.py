"""Every model does a training step on fake tensors: nothing reads a value, and every parameter gets a gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from oomcast import zoo

BATCH = 2
TOKENS = 16
VOCABULARY = {"bert": 30522, "gpt2": 50257, "llama.2": 32000, "llama.3": 128256, "lstm": 10_000}


def _shorten(model: nn.Module) -> None:
    """Keeps all widths but two blocks of each kind: the others are the same and cost time."""
    for module in list(model.modules()):
        blocks, stages = module._modules.get("blocks"), module._modules.get("stages")
        if isinstance(blocks, nn.Sequential | nn.ModuleList):
            module.blocks = blocks[:2]
        if isinstance(stages, nn.Sequential):
            module.stages = nn.Sequential(*(stage[:2] for stage in stages))


def _expected_output(entry: zoo.ZooModel) -> tuple[int, ...]:
    if entry.task in ("causal-lm", "masked-lm"):
        family = entry.name.replace("-", ".")
        words = next(size for start, size in VOCABULARY.items() if family.startswith(start))
        return (BATCH, TOKENS, words)
    if isinstance(entry.default_input, int):
        return (BATCH, 2)
    return {
        "image-classification": (BATCH, 1000),
        "segmentation": (BATCH, 2, *entry.default_input[1:]),
        "volume-segmentation": (BATCH, 1, *entry.default_input[1:]),
        "tabular": (BATCH, 10),
    }[entry.task]


@pytest.mark.parametrize("name", zoo.names())
def test_a_step_on_fake_tensors(name: str) -> None:
    entry = zoo.find(name)
    job = entry.load()
    outputs: list[Tensor | tuple[Tensor, Tensor]] = []
    with FakeTensorMode():
        model = job.model()
        _shorten(model)
        model.register_forward_hook(lambda module, inputs, output: outputs.append(output))
        batch = job.batch(BATCH, seq_len=TOKENS) if isinstance(entry.default_input, int) else job.batch(BATCH)

        loss = job.loss(model, batch)
        loss.backward()

        assert loss.shape == ()
        assert all(parameter.grad is not None for parameter in model.parameters())
    output = outputs[0]
    shapes = [output.shape] if isinstance(output, Tensor) else [part.shape for part in output]
    assert shapes == [_expected_output(entry)] * (2 if name == "inception_v3" else 1)


def test_the_largest_model_builds_in_fake_mode() -> None:
    with FakeTensorMode():
        model = zoo.find("llama-2-70b").load().model()
    assert len(model.blocks) == 80  # type: ignore[arg-type]


@pytest.mark.parametrize("name", zoo.names())
def test_a_batch_is_on_the_cpu_with_values_in_range(name: str) -> None:
    entry = zoo.find(name)
    batch = entry.load().batch(BATCH, (1, 32, 32, 32) if name == "unet3d" else None)
    tensors = list(batch.values()) if isinstance(batch, dict) else list(batch)
    assert all(tensor.device.type == "cpu" for tensor in tensors)
    assert all(len(tensor) == BATCH for tensor in tensors)
    if isinstance(batch, dict):
        words = 2 if entry.task == "text-classification" else _expected_output(entry)[-1]
        assert batch["input_ids"].min() >= 0
        assert batch["input_ids"].shape[1] == entry.default_input
        assert batch["labels"].max() < words
    elif entry.task in ("image-classification", "tabular"):
        assert batch[1].max() < _expected_output(entry)[1]
    else:
        assert set(batch[1].unique().tolist()) == {0, 1}


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "efficientnet_b0", "mlp"])
def test_a_real_step_changes_the_model(name: str) -> None:
    torch.manual_seed(0)
    job = zoo.find(name).load()
    model = job.model()
    batch = job.batch(4, None if name == "mlp" else (3, 33, 40))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    job.loss(model, batch).backward()
    optimizer.step()
    assert all(
        torch.isfinite(now).all() and not torch.equal(was, now)
        for was, now in zip(before, model.parameters(), strict=True)
        if now.grad is not None and now.grad.any()
    )
    assert sum(bool(parameter.grad.any()) for parameter in model.parameters() if parameter.grad is not None) > 5
