"""Which batches a script's data loaders give: all of them, one again and again, or the largest first.

`--synthetic-data` gives the first batch of each loader over and over, so that nothing more is read; where the data at
hand is only a small sample, that batch is filled up to the loader's batch size with the same samples. `--worst-batch`
looks through the data set before the first batch and puts the largest samples together in it: with sizes that differ
(text, graphs, detection) the peak is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

__all__ = ["BatchChooser", "batches_of_an_epoch"]

_SECONDS_TO_LOOK = 15.0
_DEEPEST = 6


class BatchChooser:
    """Stands between a loader's iterator and the script."""

    def __init__(self, *, synthetic: bool, worst_first: bool) -> None:
        self._synthetic = synthetic
        self._worst_first = worst_first
        self._kept: dict[int, Any] = {}
        self._data_sets: list[Any] = []
        """Kept, so that no other data set gets the id of one of them."""
        self.sentences: list[str] = []
        self.repeated = 0
        """Batches that were the one before again: what came before them was alike, and only sizes matter."""
        """What was found, for the answer."""

    def next(self, iterator: Any, number: int, following: Callable[[Any], Any]) -> Any:
        """The batch with this number, from 0, of the iterator's epoch. Raises StopIteration."""
        data_set = iterator._dataset
        known = id(data_set) in self._kept
        if self._synthetic and known:
            if number >= batches_of_an_epoch(iterator):
                raise StopIteration
            return self._kept[id(data_set)]
        if (self._synthetic or self._worst_first) and not known:
            self._data_sets.append(data_set)
            batch = self._kept[id(data_set)] = self._first(iterator, following)
            return batch
        return following(iterator)

    def _first(self, iterator: Any, following: Callable[[Any], Any]) -> Any:
        samples = _Samples.of(iterator)
        name = type(iterator._dataset).__name__
        if self._worst_first:
            if samples is None:
                self.sentences.append(
                    f"The batches of {name} come as they are: its samples cannot be asked for by number"
                )
            elif (chosen := samples.largest()) is not None:
                self.sentences.append(f"{chosen.words(name)}; the largest {len(chosen.samples)} were run first")
                return samples.collated(chosen.samples)
        if self._synthetic:
            self.sentences.append(f"Every batch of {name} is its first one again (--synthetic-data)")
            if samples is not None and samples.are_too_few:
                self.sentences.append(f"its {len(iterator._dataset)} samples were repeated to fill it")
                return samples.collated(
                    [iterator._dataset[n % len(iterator._dataset)] for n in range(samples.batch_size)]
                )
        return following(iterator)


class _Chosen:
    """The largest samples of a data set, and how large the others are."""

    def __init__(self, sizes: list[int], samples: list[Any], of: int) -> None:
        self.samples = samples
        self._sizes = sorted(sizes)
        self._of = of

    def words(self, name: str) -> str:
        sizes = self._sizes
        middle, most = sizes[len(sizes) // 2], sizes[-1]
        nine = sizes[min(len(sizes) - 1, 9 * len(sizes) // 10)]
        seen = f"{len(sizes):,}" if len(sizes) == self._of else f"{len(sizes):,} of {self._of:,}"
        return f"{name}: {seen} samples have {middle:,} values (median), {nine:,} (90th percentile), {most:,} (largest)"


class _Samples:
    """The data set of an iterator whose samples can be had one by one."""

    def __init__(self, data_set: Any, batch_size: int, collate: Callable[[list[Any]], Any]) -> None:
        self._data_set = data_set
        self.batch_size = batch_size
        self.collated = collate

    @classmethod
    def of(cls, iterator: Any) -> _Samples | None:
        batch_size = getattr(iterator._index_sampler, "batch_size", None)
        data_set = iterator._dataset
        by_number = hasattr(type(data_set), "__getitem__") and hasattr(type(data_set), "__len__")
        if not by_number or not iterator._auto_collation or not isinstance(batch_size, int):
            return None
        return cls(data_set, batch_size, iterator._collate_fn)

    @property
    def are_too_few(self) -> bool:
        return 0 < len(self._data_set) < self.batch_size

    def largest(self) -> _Chosen | None:
        """None where all are of one size. It looks for some seconds at most."""
        until = time.monotonic() + _SECONDS_TO_LOOK
        sizes: list[int] = []
        best: list[tuple[int, Any]] = []
        for number in range(len(self._data_set)):
            sample = self._data_set[number]
            size = _values_in(sample)
            sizes.append(size)
            if len(best) < self.batch_size or size > best[-1][0]:
                best.append((size, sample))
                best.sort(key=lambda pair: -pair[0])
                del best[self.batch_size :]
            if time.monotonic() > until:
                break
        if not sizes or min(sizes) == max(sizes):
            return None
        return _Chosen(sizes, [sample for _, sample in best], len(self._data_set))


def _values_in(sample: Any, depth: int = 0) -> int:
    """How many numbers a sample holds, in tensors, arrays, lists and the objects that carry them."""
    if isinstance(sample, torch.Tensor):
        return sample.numel()
    size = getattr(sample, "size", None)
    if isinstance(size, int):  # of numpy
        return size
    if depth > _DEEPEST or isinstance(sample, (str, bytes, int, float, type(None))):
        return len(sample) if isinstance(sample, (str, bytes)) else 1
    if isinstance(size, tuple) and size and all(isinstance(extent, int) for extent in size):  # of Pillow
        return size[0] * size[1] if len(size) > 1 else size[0]
    parts: Iterable[Any]
    if isinstance(sample, dict):
        parts = sample.values()
    elif isinstance(sample, (tuple, list)):
        parts = sample
    elif callable(getattr(sample, "to_dict", None)):  # of PyG
        parts = sample.to_dict().values()
    else:
        parts = getattr(sample, "__dict__", {}).values()
    return sum(_values_in(part, depth + 1) for part in parts)


def batches_of_an_epoch(iterator: Any) -> int:
    """Without end where nobody knows, or where the sample at hand would give none."""
    try:
        return len(iterator._index_sampler) or 1 << 60
    except TypeError:
        return 1 << 60
