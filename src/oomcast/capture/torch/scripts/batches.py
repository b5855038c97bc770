"""Which batches a script's data loaders give: all of them, one again and again, or the largest first.

`--synthetic-data` gives the first batch of each loader over and over, so that nothing more is read; where the data at
hand is only a small sample, that batch is filled up to the loader's batch size with the same samples. `--worst-batch`
looks through the data set before the first batch (see `sizes.py`) and gives the largest one that can come until the
steps repeat: the first of them has no optimizer state yet.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils.data import IterableDataset

from .sizes import Loader, look_through

__all__ = ["BatchChooser", "batches_of_an_epoch", "handed_out"]

_SECONDS_TO_LOOK = 12.0
_SECONDS_FOR_ALL = 20.0
_TIMES_OF_WORST = 3
"""Of an evaluation, which may begin once training is steady."""


class BatchChooser:
    """Stands between a loader's iterator and the script."""

    def __init__(
        self, *, synthetic: bool, worst_first: bool, as_data_code: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._synthetic = synthetic
        self._worst_first = worst_first
        self._as_data_code = as_data_code
        self._seconds_left = _SECONDS_FOR_ALL
        self._kept: dict[int, Any] = {}
        """By the id of the data set: the batch that is given again; none for one whose batches come as they are."""
        self._data_sets: list[Any] = []
        """Kept, so that no other data set gets the id of one of them."""
        self.sentences: list[str] = []
        """What was found, for the answer."""
        self.repeated = 0
        """Batches that were the one before again: what came before them was alike, and only sizes matter."""

    def next(self, iterator: Any, number: int, following: Callable[[Any], Any], *, steady: bool) -> Any:
        """The batch with this number, from 0, of the iterator's epoch. Raises StopIteration."""
        if not self._synthetic and not self._worst_first:
            return following(iterator)
        data_set = iterator._dataset
        if not any(data_set is known for known in self._data_sets):
            self._data_sets.append(data_set)
            with self._as_data_code():
                self._choose(iterator, following)
        if id(data_set) in self._kept and (self._synthetic or not steady or number < _TIMES_OF_WORST):
            if number >= (batches_of_an_epoch(iterator) or 1):
                raise StopIteration
            return handed_out(self._kept[id(data_set)])
        return following(iterator)

    def _choose(self, iterator: Any, following: Callable[[Any], Any]) -> None:
        """The batch of this data set that is to be given again, if there is to be one."""
        loader, name = Loader(iterator), type(iterator._dataset).__name__
        if self._worst_first:
            began = time.monotonic()
            found = look_through(loader, began + min(_SECONDS_TO_LOOK, self._seconds_left))
            self._seconds_left = max(self._seconds_left - (time.monotonic() - began), 1.0)
            self.sentences.append(f"{name}: {found.words}")
            if found.batch is not None:
                self._kept[id(iterator._dataset)] = found.batch
                return
        if self._synthetic:
            self.sentences.append(f"Every batch of {name} is its first one again (--synthetic-data)")
            too_few = loader.samples_to_fill()
            if too_few:
                self.sentences.append(f"its {too_few} samples were repeated to fill it")
                first = loader.fetched([n % too_few for n in range(loader.batch_size or 1)])
            else:
                first = following(iterator)
            self._kept[id(iterator._dataset)] = first


def handed_out(batch: Any) -> Any:
    """The same tensors in containers of their own: scripts take things out of a batch, or move it as it is."""
    if isinstance(batch, torch.Tensor):
        return batch
    if type(batch) is dict:
        return {key: handed_out(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(handed_out, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(handed_out, batch))
    if isinstance(batch, Mapping) or hasattr(type(batch), "__copy__"):  # of transformers; of PyG
        return copy.copy(batch)
    return batch


def batches_of_an_epoch(iterator: Any) -> int | None:
    """Without end where it is a stream, or where the sample at hand would give none; None where nobody knows."""
    try:
        return len(iterator._index_sampler) or 1 << 60
    except TypeError:
        return 1 << 60 if isinstance(iterator._dataset, IterableDataset) else None
