"""docs/howto/data-sets.md says what every column is, and in what ranges networks are drawn."""

from __future__ import annotations

from pathlib import Path

from oomcast.methods.gpumemnet.dataset import ACTIVATION_NAMES, ARCHITECTURES, COLUMNS, SPACE
from oomcast.methods.gpumemnet.dataset.sampling import Range

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "howto" / "data-sets.md").read_text(encoding="utf-8")


def test_every_column_is_documented_as_it_is() -> None:
    for column in COLUMNS:
        if column.name.startswith(("count_", "sim_")):
            continue
        assert f"| `{column.name}` | {column.type} | {column.meaning} |" in TEXT, column.name
    assert "`count_*`" in TEXT
    assert "`sim_*`" in TEXT


def test_ranges_and_names_are_those_of_the_code() -> None:
    for kind, features in SPACE.items():
        for feature in features:
            if isinstance(feature, Range):
                assert f"{feature.low:,} to {feature.high:,}" in TEXT, (kind, feature)
    for name in (*ACTIVATION_NAMES, *ARCHITECTURES):
        assert name in TEXT
