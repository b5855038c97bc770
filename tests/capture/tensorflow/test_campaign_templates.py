"""Cases of campaigns under Keras: their static figures come from TensorFlow's own graph."""

from __future__ import annotations

import sys

import pytest

from oomcast.methods.measure import facts_of
from oomcast.methods.tbem.static_figures import case_trace, static_value
from oomcast.trace import Category

SMALL = {
    "mlp": {"batch_size": 4, "width": 32, "features": 16},
    "vgg": {"batch_size": 2, "edge": 32, "width": 0.125, "dense_width": 16},
    "unet2d": {"batch_size": 1, "edge": 16, "width": 4, "levels": 2},
    "lstm": {"batch_size": 2, "length": 8, "width": 16, "vocabulary": 50},
}


@pytest.mark.parametrize("template", SMALL)
def test_a_template_is_captured_from_tensorflows_graph(template: str) -> None:
    trace = case_trace(template, {**SMALL[template], "optimizer": "adam"}, 2, graph="keras")
    figures = static_value(trace)
    state = sum(made.nbytes for made in trace.allocations if made.category is Category.OPTIMIZER_STATE)
    assert figures.total > figures.parameters > 0
    assert state >= 1.9 * figures.parameters  # the case's own optimizer is followed


def test_the_version_of_a_module_that_is_not_called_as_its_package() -> None:
    """tensorflow may come with tensorflow-cpu; two environments must not be taken for one."""
    assert set(facts_of("keras", sys.executable)["versions"]) == {"keras", "tensorflow"}
