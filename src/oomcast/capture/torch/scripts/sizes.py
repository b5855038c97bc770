"""How large the batches of a data set are, by its own code and its loader's collate function alone.

Three ways, from the cheapest on. Samples that can be asked for by number and differ in size are measured one by one;
where the loader shuffles them, the largest may come together, and are put together; where it has an order of its own
(buckets by length, a budget of tokens, no shuffling), its own batches are compared. Where the samples tell nothing (the
nodes around which a graph is sampled, a stream that packs texts), whole batches are collated and measured.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import BatchSampler, SequentialSampler
from torch.utils.data.dataloader import _DatasetKind

__all__ = ["Found", "Loader", "look_through", "values_in"]

_DEEPEST = 6
_ALIKE = 8
"""Batches of one size after which the next are taken to be so too, where the samples are of one size as well."""
_COLLATED = 6
"""Of the batches that seem the largest by their samples, how many are collated to see which is."""


@dataclass(frozen=True)
class Found:
    words: str
    """What the look showed, for the answer."""
    batch: Any = None
    """The largest that can come; None where they come as they are."""


class Loader:
    """What an iterator of a DataLoader knows of its data."""

    def __init__(self, iterator: Any) -> None:
        self.data_set = iterator._dataset
        self._iterator = iterator
        self._by_number = iterator._dataset_kind == _DatasetKind.Map
        self.sampler = iterator._index_sampler
        size = getattr(self.sampler, "batch_size", None)
        self.batch_size = size if isinstance(size, int) else None

    def fetcher(self) -> Any:
        """As the loader makes it: of a stream, with an iterator of its own."""
        own = self._iterator
        return _DatasetKind.create_fetcher(
            own._dataset_kind, own._dataset, own._auto_collation, own._collate_fn, own._drop_last
        )

    def fetched(self, numbers: Any) -> Any:
        return self.fetcher().fetch(numbers)

    @property
    def has_samples(self) -> bool:
        """Whether they can be had one by one."""
        kind = type(self.data_set)
        has_length = hasattr(kind, "__len__") and hasattr(kind, "__getitem__")
        return self._by_number and self._iterator._auto_collation and has_length and len(self.data_set) > 0

    @property
    def shuffles(self) -> bool:
        """Whether any samples can come together in a batch."""
        plain = type(self.sampler) is BatchSampler
        return plain and self.batch_size is not None and not isinstance(self.sampler.sampler, SequentialSampler)

    def samples_to_fill(self) -> int:
        """How many samples there are, if they are too few for a batch."""
        if not self.has_samples or self.batch_size is None or len(self.data_set) >= self.batch_size:
            return 0
        return len(self.data_set)

    def batches(self) -> Iterator[Any]:
        """All of an epoch, collated. Of a stream that cannot be begun again: none."""
        if self._by_number:
            fetcher = self.fetcher()
            yield from (fetcher.fetch(numbers) for numbers in self.sampler)
            return
        if isinstance(self.data_set, Iterator):
            return
        fetcher, size = self.fetcher(), self.batch_size or 1
        while True:
            try:
                yield fetcher.fetch(range(size))
            except StopIteration:
                return


def look_through(loader: Loader, until: float) -> Found:
    """The largest batch, as far as it is found before `until`, on the clock of `time.monotonic`."""
    tell_all = False
    if loader.has_samples:
        sizes, seen = _sizes_of_samples(loader.data_set, until)
        if min(sizes.values()) != max(sizes.values()):
            words = _distribution(sizes.values(), "samples", len(loader.data_set), seen)
            return _largest_of_samples(loader, sizes, words)
        tell_all = max(sizes.values()) > 1
    return _largest_of_batches(loader, until, _ALIKE if tell_all else None)


def _sizes_of_samples(data_set: Any, until: float) -> tuple[dict[int, int], _Extents]:
    count, seen = len(data_set), _Extents()
    sizes: dict[int, int] = {}
    for number in _spread(count):
        sample = data_set[number]
        sizes[number] = values_in(sample)
        seen.add(sample)
        if time.monotonic() > until:
            break
    return sizes, seen


def _spread(count: int) -> Iterator[int]:
    """All numbers below it, in leaps, so that those before any moment are from everywhere."""
    leap = max(int(count * 0.618), 1)
    while math.gcd(leap, count) != 1:
        leap += 1
    return (place * leap % count for place in range(count))


def _largest_of_samples(loader: Loader, sizes: Mapping[int, int], words: str) -> Found:
    if loader.shuffles:
        assert loader.batch_size is not None
        largest = sorted(sizes, key=lambda number: -sizes[number])[: loader.batch_size]
        return Found(f"{words}; the largest {len(largest)} together were run first", loader.fetched(largest))
    # Padded to the longest of them, a batch is as large as that one times their number.
    ways = (sum, lambda of_batch: max(of_batch) * len(of_batch))
    best: dict[tuple[int, ...], None] = {}
    batches = [tuple(numbers) for numbers in itertools.islice(iter(loader.sampler), 100_000)]
    known = [numbers for numbers in batches if numbers and all(number in sizes for number in numbers)]
    for way in ways:
        ranked = sorted(known, key=lambda numbers: -way([sizes[number] for number in numbers]))
        best.update(dict.fromkeys(ranked[: _COLLATED // 2]))
    if not best:
        return Found(f"{words}; none of its batches was looked at as a whole, so they came as they are")
    batch = max((loader.fetched(list(numbers)) for numbers in best), key=values_in)
    return Found(f"{words}; the largest of its {len(known):,} batches was run first", batch)


def _largest_of_batches(loader: Loader, until: float, most_alike: int | None) -> Found:
    sizes: list[int] = []
    largest, seen = None, _Extents()
    for batch in loader.batches():
        size = values_in(batch)
        seen.add(batch)
        if largest is None or size > max(sizes):
            largest = batch
        sizes.append(size)
        all_alike = len(sizes) == most_alike and min(sizes) == max(sizes)
        if all_alike or time.monotonic() > until:
            break
    if not sizes:
        return Found("its batches can be had only once, so they came as they are")
    if min(sizes) == max(sizes):
        return Found(f"the {len(sizes)} batches looked at have {sizes[0]:,} values each, so they came as they are")
    try:
        count = max(len(loader.sampler), len(sizes))
    except TypeError:
        count = len(sizes)
    return Found(f"{_distribution(sizes, 'batches', count, seen)}; the largest was run first", largest)


def _distribution(sizes: Iterable[int], what: str, count: int, seen: _Extents) -> str:
    ordered = sorted(sizes)
    middle, most = ordered[len(ordered) // 2], ordered[-1]
    nine = ordered[min(len(ordered) - 1, 9 * len(ordered) // 10)]
    looked = f"{len(ordered):,}" if len(ordered) == count else f"{len(ordered):,} of {count:,}"
    words = f"{looked} {what} have {middle:,} values (median), {nine:,} (90th percentile), {most:,} (largest)"
    varying = seen.words()
    return f"{words}; {varying}" if varying else words


class _Extents:
    """Of each tensor or list by its name: the least and the most of each dimension."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[int, int]]] = {}

    def add(self, sample: Any) -> None:
        for name, shape in _shapes(sample, "", 0):
            known = self._known.get(name)
            if known is None:
                self._known[name] = [(extent, extent) for extent in shape]
            elif len(known) == len(shape):
                self._known[name] = [
                    (min(least, extent), max(most, extent)) for (least, most), extent in zip(known, shape, strict=True)
                ]

    def words(self) -> str:
        """The three that vary most."""
        varying = [
            (math.prod(most for _, most in extents) - math.prod(least for least, _ in extents), name, extents)
            for name, extents in self._known.items()
        ]
        shown = [
            f"{name or 'each'} {' × '.join(f'{a:,}' if a == b else f'{a:,}–{b:,}' for a, b in extents)}"
            for difference, name, extents in sorted(varying, key=lambda one: -one[0])
            if difference
        ]
        return ", ".join(shown[:3])


def _shapes(value: Any, name: str, depth: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    if isinstance(value, torch.Tensor) or hasattr(value, "__array_interface__"):
        yield name, tuple(value.shape) if hasattr(value, "shape") else tuple(value.size)
    elif depth > _DEEPEST or isinstance(value, (str, bytes)):
        return
    elif isinstance(value, (list, tuple)) and value and all(isinstance(item, (int, float)) for item in value):
        yield name, (len(value),)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value[:8]):
            yield from _shapes(item, f"{name}.{number}" if name else str(number), depth + 1)
    else:
        for key, item in (_named_parts(value) or {}).items():
            yield from _shapes(item, f"{name}.{key}" if name else str(key), depth + 1)


def _named_parts(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    if callable(getattr(value, "to_dict", None)):  # of PyG
        parts = value.to_dict()
        return parts if isinstance(parts, Mapping) else None
    return getattr(value, "__dict__", None)


def values_in(sample: Any, depth: int = 0) -> int:
    """How many numbers a sample or a batch holds, in tensors, arrays, lists and the objects that carry them."""
    if isinstance(sample, torch.Tensor):
        return sample.numel()
    size = getattr(sample, "size", None)
    if isinstance(size, int):  # of numpy
        return size
    if depth > _DEEPEST or isinstance(sample, (str, bytes, int, float, type(None))):
        return len(sample) if isinstance(sample, (str, bytes)) else 1
    if isinstance(size, tuple) and size and all(isinstance(extent, int) for extent in size):  # of Pillow
        return math.prod(size[:2])
    parts = sample if isinstance(sample, (tuple, list)) else (_named_parts(sample) or {}).values()
    return sum(values_in(part, depth + 1) for part in parts)
