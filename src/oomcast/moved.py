"""Where the names of 0.1.0 have gone: whoever imports an old one is told the new one, until the next release.

A finder at the end of `sys.meta_path` is asked only for what nothing else has found, so it costs nothing otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

__all__ = ["NEW_HOMES", "REPORTS_OF_METHODS", "install", "new_home"]

_IN_A_CHECKOUT = "in a checkout of the repository"
NEW_HOMES: Mapping[str, str] = {
    "estimate": "oomcast.estimate is a function now: its types and helpers are in oomcast.estimation, gaps in "
    "oomcast.methods.tbem, equations in oomcast.methods.equations, learned estimators in oomcast.methods.gpumemnet",
    "workload": "jobs and their options are in oomcast.spec",
    "design": "campaigns, plans and templates are in oomcast.methods.tbem",
    "measure": "real runs and their store are in oomcast.methods.measure",
    "learn": "symbolic regression is in oomcast.methods.equations.symbolic, polynomials in "
    "oomcast.methods.tbem.polynomial, quantiles over groups in oomcast.estimation",
    "dataset": "data sets of networks are in oomcast.methods.gpumemnet.dataset",
    "accuracy": f"comparisons with measured runs are in the package lab, {_IN_A_CHECKOUT} "
    "(python -m lab accuracy); oomcast accuracy shows recorded results",
    **{
        f"capture.{framework}.check": f"checks against the framework itself are in lab.checks, {_IN_A_CHECKOUT}"
        for framework in ("jax", "mxnet", "onnx", "tensorflow")
    },
    **{
        f"capture.{framework}.{module}": "all frameworks share one capture process: oomcast.capture.worker"
        for framework in ("jax", "mxnet", "onnx", "tensorflow", "torch")
        for module in ("server", "worker")
    },
    "simulate.cudnn.distill": f"the maker of cuDNN's table is lab.cudnn.distill, {_IN_A_CHECKOUT}",
    "simulate.cudnn.build_stub": f"the maker of the stand-in for libcuda is lab.cudnn.build_stub, {_IN_A_CHECKOUT}",
    "zoo.lstm": "the model is in oomcast.zoo.mlp_and_lstm",
    "zoo.mlp": "the model is in oomcast.zoo.mlp_and_lstm",
}
"""Old module without `oomcast.` → what to write instead. Python asks for a package before what is in it, so that a
package stands for its modules too."""

REPORTS_OF_METHODS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "campaign_plan_as_json",
            "campaign_progress_words",
            "campaign_status_as_json",
            "gap_as_json",
            "render_campaign_plan",
            "render_campaign_status",
            "render_gap",
            "render_screening",
        ),
        "oomcast.methods.tbem.report",
    ),
    **dict.fromkeys(("campaign_html", "draw_screening"), "oomcast.methods.tbem.page"),
    **dict.fromkeys(
        ("equation_as_json", "prediction_as_json", "render_equation", "render_equation_forms", "render_prediction"),
        "oomcast.methods.equations.report",
    ),
}
"""Old name of `oomcast.report` → the module that has it."""


def new_home(module: str) -> str:
    """The sentence for a module of 0.1.0, named without `oomcast.`; "" for any other name."""
    home = NEW_HOMES.get(module)
    return "" if home is None else f"oomcast.{module} has moved: {home}."


class _MovedModules:
    """A finder that finds nothing: it explains."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        package, _, module = name.partition(".")
        sentence = new_home(module) if package == "oomcast" else ""
        if sentence:
            raise ModuleNotFoundError(sentence, name=name)


def install() -> None:
    """Once for a process, and behind every finder that is there."""
    if not any(getattr(finder, "__name__", "") == _MovedModules.__name__ for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules)
