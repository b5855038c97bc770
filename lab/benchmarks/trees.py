"""`python -m lab bench trees DIR`: extra-trees regression on GPUMemNet's features, and its networks as pictures.

The backup of GPUMemNet's slides: an ExtraTreesRegressor on layers, batch size, parameters and activations erred by
about 1.2 GB, with 0.70 of the importance on parameters and 0.27 on activations. Here on its measured rows, each by a
forest that had not seen it (five folds); beside it Horus' formula on the same rows, which the slides show to be off by
up to 395 GB. `--pictures FOLDER` draws PCA and t-SNE of the networks, coloured by class.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from oomcast.devices import find_gpu
from oomcast.methods.gpumemnet.features import LayerFeatures, feature_vector
from oomcast.methods.gpumemnet.training.classes import ClassRows
from oomcast.methods.gpumemnet.training.train import WIDTHS

from ..accuracy.gpumemnet_rows import GPU
from ..training.pictures import points_picture, principal_components, t_sne
from ..training.rows import MeasuredRow, read_measured
from .report import Bar, Outcome, print_outcome
from .unseen import horus_as_run

__all__ = ["FEATURES", "horus_on", "tree_features", "trees_on"]

FEATURES = ("layers", "batch size", "parameters", "activations")
_TREES, _FOLDS, _PICTURED = 30, 5, 600


def tree_features(features: LayerFeatures) -> list[float]:
    """In the order of `FEATURES`."""
    return [len(features.layers), features.batch_size, features.parameters, features.activations]


def trees_on(rows: list[MeasuredRow], seed: int = 0) -> tuple[float, float, dict[str, float]]:
    """Mean and root mean square error in GB (2**30 bytes) on rows kept out, and the importance of each feature."""
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.model_selection import KFold

    x = np.array([tree_features(row.features) for row in rows], dtype=np.float64)
    y = np.array([float(row.measured or 0) for row in rows]) / 2**30
    told = np.zeros(len(rows))
    for learnt, out in KFold(_FOLDS, shuffle=True, random_state=seed).split(x):
        told[out] = ExtraTreesRegressor(_TREES, random_state=seed, n_jobs=1).fit(x[learnt], y[learnt]).predict(x[out])
    whole = ExtraTreesRegressor(_TREES, random_state=seed, n_jobs=1).fit(x, y)
    importance = dict(zip(FEATURES, map(float, whole.feature_importances_), strict=True))
    return float(np.abs(told - y).mean()), float(np.sqrt(((told - y) ** 2).mean())), importance


def horus_on(rows: list[MeasuredRow]) -> str:
    """How far Horus' formula is from what was measured, in GB (2**30 bytes)."""
    off = [(horus_as_run(row.features) - (row.measured or 0)) / 2**30 for row in rows]
    return f"{min(off):+,.1f} to {max(off):+,.1f} GB, too low for {np.mean(np.array(off) < 0):.0%}"


def draw(kind: str, rows: list[MeasuredRow], folder: Path, seed: int = 0) -> list[Path]:
    """PCA and t-SNE of networks of a kind, coloured by the class of their memory."""
    chosen = np.random.default_rng(seed).permutation(len(rows))[:_PICTURED]
    own = ClassRows(
        kind,
        tuple(rows[i].features for i in chosen),
        tuple(rows[i].measured for i in chosen),
        find_gpu(GPU).usable_memory,
    )
    width = WIDTHS[kind][0] << 20
    labels = [int(label) for label in own.labels(width)]
    names = [f"class {number} of {width >> 20} MiB" for number in range(own.classes(width))]
    x = np.array([feature_vector(features) for features in own.features])
    places, share = principal_components(x)
    words = {"pca": f"{kind} networks, PCA ({share:.0%} of variance)", "tsne": f"{kind} networks, t-SNE"}
    written = []
    for name, points in (("pca", places), ("tsne", t_sne(x, seed))):
        written.append(folder / f"gpumemnet-{name}-{kind}.svg")
        written[-1].write_text(points_picture(words[name], points, labels, names), encoding="utf-8")
    return written


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench trees", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="with GPUMemNet's files")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="where PCA and t-SNE are drawn")
    given = parser.parse_args()
    measured = read_measured(given.folder)
    rows, bars = [], []
    for kind in ("mlp", "cnn"):
        ran = [row for row in measured if row.kind == kind and row.measured is not None]
        if not ran:
            continue
        mean, square, importance = trees_on(ran)
        shares = [f"{importance[name]:.3f}" for name in FEATURES]
        rows.append((kind, str(len(ran)), f"{mean:.2f}", f"{square:.2f}", *shares))
        bars.append(Bar(f"{kind}: mean error, published about 1.2 GB", f"{mean:.2f} GB", None))
        bars.append(Bar(f"{kind}: Horus, published up to 395 GB off", horus_on(ran), None))
        if given.pictures is not None:
            draw(kind, [row for row in measured if row.kind == kind], given.pictures)
    columns = ("networks", "rows", "mean error, GB", "root mean square", *FEATURES)
    print_outcome(
        Outcome("Extra trees on four features, each row by a forest that had not seen it", columns, rows, bars)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
