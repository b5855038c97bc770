"""A training's report as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ._train_classes import ClassScore
from ._train_residual import Summary

__all__ = ["render_scores", "render_summaries"]

_MIB = 1 << 20


def render_scores(scores: Sequence[ClassScore]) -> Iterator[str]:
    yield "Classes, each row by a model that had not seen it:"
    heads = f"{'MiB':>5} {'rows':>6} {'right':>7} {'±1':>7} {'low':>6} {'in 95 %':>8}"
    yield f"  {'estimator':22} {'networks':12} {heads}  judged on"
    for one in scores:
        yield (
            f"  {one.estimator:22} {one.kind:12} {one.width // _MIB:5d} {one.rows:6d} {one.accuracy:7.3f} "
            f"{one.within_one:7.3f} {one.under:6.3f} {one.covered:8.3f}  {one.judged_on}"
        )


def render_summaries(summaries: Sequence[Summary]) -> Iterator[str]:
    """By data set, the estimators beneath each other."""
    widths = sorted({width for one in summaries for width in one.classes})
    heads = " ".join(f"{f'{width} MiB':>9}" for width in widths)
    for data in sorted({one.data for one in summaries}):
        own = [one for one in summaries if one.data == data]
        yield ""
        yield f"{data}, {own[0].rows} rows:"
        yield f"  {'estimator':26} {'MRE':>7} {'p90':>7} {'under':>6} {heads}  judged on"
        for one in own:
            classes = " ".join(f"{one.classes[width]:9.3f}" for width in widths)
            yield f"  {one.estimator:26} {one.mre:7.2%} {one.p90:7.1%} {one.under:6.0%} {classes}  {one.judged_on}"
