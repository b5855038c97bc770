"""A plain `nn.Sequential` of modules that repeat: the Trace of the whole model, from three shallow ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from trace_contents import contents

from oomcast.capture.torch import run
from oomcast.capture.torch.jobs.equal_children import equal_children
from oomcast.spec import Place, Spec, Workload
from oomcast.trace import Trace

DEPTH = 60


class _Job:
    def __init__(self, model: Callable[[], nn.Module], loss: Callable[[Any, Any], Any] | None = None) -> None:
        self.model = model
        if loss is not None:
            self.loss = loss

    @staticmethod
    def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(batch_size, 16), torch.zeros(batch_size, dtype=torch.long)


def linears() -> nn.Module:
    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(DEPTH)))


def blocks() -> nn.Module:
    """With a beginning and an end of its own, and buffers in between."""
    body = [part for _ in range(DEPTH) for part in (nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU())]
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), *body, nn.Linear(32, 4))


def nested() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.1)) for _ in range(DEPTH)))


def taps_the_middle(model: Any, batch: Any) -> Any:
    """What it keeps depends on the depth, not on the layer."""
    x, kept = batch[0], None
    for number, layer in enumerate(model):
        x = layer(x)
        if number == len(model) // 2:
            kept = x
    return x.mean() + kept.square().mean()  # type: ignore[union-attr]


def spec_of(job: _Job, **options: Any) -> Spec:
    return Spec(Workload.create(job, batch_size=4, **options), Place("rtx-4090"))


def both(spec: Spec) -> tuple[Trace, Trace, list[Trace | None]]:
    """Captured as it is done, and at its whole depth, from one line of code; and what was grown."""
    grown: list[Trace | None] = []
    really = run.grow

    def noted(*args: Any) -> Trace | None:
        grown.append(really(*args))
        return grown[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "grow", noted)
        one, other = (capture(spec) for capture in (run._captured_or_grown, run._captured))
    return one, other, grown


@pytest.mark.parametrize("model", [linears, blocks, nested])
@pytest.mark.parametrize("options", [{}, {"optimizer": "sgd", "precision": "bf16"}, {"zero_grad": "after-step"}])
def test_the_grown_trace_is_that_of_the_whole_model(model: Callable[[], nn.Module], options: dict[str, Any]) -> None:
    one, other, grown = both(spec_of(_Job(model), **options))
    assert len(grown) == 2
    assert grown[1] is one
    assert contents(one) == contents(other)
    assert one.on_host == other.on_host


def test_a_loss_that_looks_at_the_depth_makes_the_whole_model_run() -> None:
    one, other, grown = both(spec_of(_Job(linears, taps_the_middle)))
    assert grown == [None]  # two depths already differ by more than a round
    assert contents(one) == contents(other)


def test_a_loss_that_differs_at_the_third_depth_alone_makes_the_whole_model_run() -> None:
    def taps_an_eighth(model: Any, batch: Any) -> Any:
        """The first layer of models of six and of seven, the second one of ten."""
        x, kept = batch[0], None
        for number, layer in enumerate(model):
            x = layer(x)
            if number == len(model) // 8:
                kept = x
        return x.mean() + kept.square().mean()  # type: ignore[union-attr]

    one, other, grown = both(spec_of(_Job(linears, taps_an_eighth)))
    assert len(grown) == 1
    assert grown[0] is not None  # what two depths foretell, which is not what the third one was
    assert contents(one) == contents(other)


def test_a_loss_that_asks_for_a_layer_which_shallow_models_lack_makes_the_whole_model_run() -> None:
    def of_one_layer(model: Any, batch: Any) -> Any:
        return model(batch[0]).mean() + model[DEPTH - 1].weight.square().mean()

    one, other, grown = both(spec_of(_Job(linears, of_one_layer)))
    assert not grown
    assert contents(one) == contents(other)


def _of_a_users_class() -> nn.Module:
    class Stack(nn.Sequential):
        pass

    return Stack(*linears().children())


def _hooked() -> nn.Module:
    model = linears()
    model[3].register_forward_hook(lambda module, inputs, output: output * 2)  # type: ignore[operator]
    return model


def _sharing() -> nn.Module:
    layer = nn.Linear(16, 16)
    return nn.Sequential(*(layer for _ in range(DEPTH)))


def _tied() -> nn.Module:
    model = linears()
    model[5].weight = model[4].weight  # type: ignore[union-attr, assignment]
    return model


def _of_a_users_parts() -> nn.Module:
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    return nn.Sequential(*(Part() for _ in range(DEPTH)))


def _growing() -> nn.Module:
    return nn.Sequential(*(nn.Linear(16 + number, 17 + number) for number in range(DEPTH)))


def _few() -> nn.Module:
    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(20)))


@pytest.mark.parametrize(
    "model", [_of_a_users_class, _hooked, _sharing, _tied, _of_a_users_parts, _growing, _few, lambda: nn.Linear(16, 16)]
)
def test_other_models_are_run_as_they_are(model: Callable[[], nn.Module]) -> None:
    workload = Workload.create(_Job(linears), batch_size=4)
    assert equal_children(linears(), workload) is not None
    assert equal_children(model(), workload) is None


def test_a_frozen_layer_is_another_than_its_neighbours() -> None:
    model = linears()
    for parameter in model[10].parameters():  # type: ignore[union-attr]
        parameter.requires_grad_(False)
    found = equal_children(model, Workload.create(_Job(linears), batch_size=4))
    assert found is not None
    assert (found.first, found.period, found.rounds) == (11, 1, DEPTH - 11)
    shallow = found.model(2)
    assert [all(one.requires_grad for one in layer.parameters()) for layer in shallow] == [True] * 10 + [
        False,
        True,
        True,
    ]
