"""Saving and loading on the virtual GPU: tensors hold no data, so nothing may reach the user's files.

What a job saves is kept in memory under the path it was meant for, so that the job can load it again; the file that
lies there stays as it is. Real files are loaded as they are, and go to the virtual GPU where the job asks for it.
Saving copies one storage after the other to the host, so it takes no memory of the GPU; loading to the GPU does, and is
recorded as any other allocation.

In the process of a job, whose writing is kept apart (`overlay.py`), a file with a mark takes the place of what would
have been saved, so that the job finds it, lists it and moves it as it would the real one; what has all its data, such
as a data set that was prepared, is really saved there.

Known limitation: within `oomcast.virtual_gpu`, in a process of the user's, what the user opens is really opened: a file
that is opened to be written (`open(path, "wb")`) is empty before `torch.save` is called.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map

from ...errors import CaptureFailed
from ...trace import Phase, TraceBuilder
from ..keeping_apart import current_overlay
from .patches import Patches

__all__ = ["Shelf", "install_saving"]

_MARK = b"oomcast: saved on a virtual GPU, number "


@dataclass(frozen=True)
class _Saved:
    """A tensor as a file would hold it, but for its data."""

    storage: int
    """Equal for tensors that share their memory."""
    nbytes: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: str
    is_parameter: bool
    requires_grad: bool
    value: torch.Tensor | None
    """A copy of a real tensor of the host, whose values the job may need again; None for a fake."""


@dataclass(frozen=True)
class _File:
    """What one call of `torch.save` or `safetensors.torch.save_file` would have written."""

    content: bytes
    """A pickle of ours, in which tensors are numbers; it never comes from outside of this process."""
    tensors: tuple[_Saved, ...]


class _Writer(pickle.Pickler):
    """Takes what `torch.save` takes; a tensor is described and counted instead of written."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=2)
        self.tensors: list[_Saved] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[torch.Tensor] = []

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, torch.Tensor):
            return None
        number = self._numbers.get(id(obj))
        if number is None:
            number = self._numbers[id(obj)] = len(self.tensors)
            self._kept.append(obj)  # so that no other object gets its id
            self.tensors.append(_described(obj))
        return number


class _Reader(pickle.Unpickler):
    def __init__(self, file: _File, place: Callable[[_Saved], Any]) -> None:
        super().__init__(io.BytesIO(file.content))
        self._tensors = file.tensors
        self._place = place
        self._made: dict[int, torch.Tensor] = {}
        self._storages: dict[tuple[int, str], torch.Tensor] = {}

    def persistent_load(self, pid: Any) -> torch.Tensor:
        if pid not in self._made:
            self._made[pid] = self._tensor(self._tensors[pid])
        return self._made[pid]

    def _tensor(self, saved: _Saved) -> torch.Tensor:
        """A view of its storage, which is made once for all tensors that share it."""
        device = torch.device(self._place(saved))
        if saved.value is not None:
            return saved.value.clone().to(device)
        key = saved.storage, str(device)
        if key not in self._storages:
            itemsize = torch.empty(0, dtype=saved.dtype, device="cpu").element_size()
            self._storages[key] = torch.empty(saved.nbytes // itemsize, dtype=saved.dtype, device=device)
        with torch.no_grad():
            tensor = self._storages[key].as_strided(saved.size, saved.stride, saved.offset)
        if saved.is_parameter:
            return nn.Parameter(tensor, saved.requires_grad)
        return tensor.requires_grad_() if saved.requires_grad else tensor


def _described(tensor: torch.Tensor) -> _Saved:
    storage = tensor.untyped_storage()
    return _Saved(
        storage=storage._cdata,
        nbytes=storage.nbytes(),
        size=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        offset=int(tensor.storage_offset()),
        dtype=tensor.dtype,
        device=str(tensor.device),
        is_parameter=isinstance(tensor, nn.Parameter),
        requires_grad=tensor.requires_grad and tensor.is_leaf,
        value=None if isinstance(tensor, FakeTensor) else tensor.detach().clone(),
    )


class Shelf:
    """What the job has saved so far, by number; by absolute path where no mark may be written there."""

    def __init__(self, builder: TraceBuilder) -> None:
        self._builder = builder
        self._files: dict[str | int, _File] = {}

    def put(self, content: Any, where: Any) -> None:
        """`where`: a path, or a stream. Raises what `torch.save` raises for what cannot be pickled."""
        with self._builder.during(Phase.SAVING):
            self._put(content, where)

    def _put(self, content: Any, where: Any) -> None:
        stream = io.BytesIO()
        writer = _Writer(stream)
        writer.dump(content)
        file = _File(stream.getvalue(), tuple(writer.tensors))
        path = _path(where)
        if path is not None:
            self._builder.assume("what the job saves was not written: its files stay as they are")
        if path is not None and current_overlay() is None:
            self._files[path] = file
            return
        number = len(self._files)
        self._files[number] = file
        mark = _MARK + str(number).encode() + b"\n"
        if hasattr(where, "write"):
            where.write(mark)
        else:
            with open(where, "wb") as placeholder:
                placeholder.write(mark)

    def find(self, where: Any) -> _File | None:
        path = _path(where)
        if path is not None and current_overlay() is None:
            return self._files.get(path)
        try:
            if hasattr(where, "readline"):
                start = where.tell()
                line = where.readline(len(_MARK) + 20)
                where.seek(start)
            else:
                with open(where, "rb") as stream:
                    line = stream.readline(len(_MARK) + 20)
        except (AttributeError, OSError, TypeError, ValueError):
            return None
        number = line[len(_MARK) :].strip() if line.startswith(_MARK) else b""
        return self._files.get(int(number)) if number.isdigit() else None

    def load(self, file: _File, map_location: Any) -> Any:
        return _Reader(file, lambda saved: _mapped(saved.device, map_location)).load()


def _path(where: Any) -> str | None:
    """The absolute path of a file that is named, or open."""
    if isinstance(where, (str, os.PathLike)):
        return os.path.abspath(os.fspath(where))
    name = getattr(where, "name", None)
    return os.path.abspath(name) if isinstance(name, str) and not isinstance(where, io.BytesIO) else None


def _mapped(device: str, map_location: Any) -> Any:
    """Where a tensor goes that was saved on `device`, as `torch.load` decides it."""
    if map_location is None:
        return device
    if isinstance(map_location, Mapping):
        return map_location.get(device, device)
    if callable(map_location):
        # It would get a storage, which cannot be made without data; the usual ones (`lambda storage, loc: storage`)
        # leave everything on the host.
        return "cpu"
    return map_location


def install_saving(patches: Patches, builder: TraceBuilder) -> None:
    shelf = Shelf(builder)
    save_real, load_real = torch.save, torch.load

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if current_overlay() is not None and not _holds_fakes(obj):
            with builder.during(Phase.SAVING), contextlib.ExitStack() as files:
                if isinstance(f, (str, os.PathLike)):
                    f = files.enter_context(open(f, "wb"))  # torch would open it in C++, past the overlay
                save_real(obj, f, *args, **kwargs)
        else:
            shelf.put(obj, f)

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        file = shelf.find(f)
        with builder.during(Phase.LOADING):
            if file is not None:
                return shelf.load(file, map_location)
            return _load_real_file(load_real, f, map_location, *args, **kwargs)

    patches.set(torch, "save", save)
    patches.set(torch, "load", load)
    patches.set(torch.serialization, "save", save)
    patches.set(torch.serialization, "load", load)
    _install_addresses(patches)
    _install_safetensors(patches, shelf)


def _holds_fakes(content: Any) -> bool:
    """Whether anything in what is saved has no data. Data sets that a job prepares have all, and are really written."""

    class Found(Exception):
        pass

    class Search(pickle.Pickler):
        def persistent_id(self, obj: Any) -> int | None:
            if isinstance(obj, FakeTensor):
                raise Found
            return 0 if isinstance(obj, torch.Tensor) else None

    try:
        Search(io.BytesIO(), protocol=2).dump(content)
    except Found:
        return True
    return False


def _install_addresses(patches: Patches) -> None:
    """Libraries find tensors that share memory by the address of their storage: each fake one has its own."""
    address = torch.UntypedStorage.data_ptr

    def data_ptr(storage: torch.UntypedStorage) -> int:
        return storage._cdata if storage.device.type == "meta" else address(storage)

    patches.set(torch.UntypedStorage, "data_ptr", data_ptr)


def _load_real_file(load: Callable[..., Any], f: Any, map_location: Any, *args: Any, **kwargs: Any) -> Any:
    """Read on the host; what belongs on the GPU is moved there afterwards."""
    on_gpu: set[int] = set()

    def to_host(storage: Any, location: str) -> Any:
        wanted = _mapped(location, map_location)
        if torch.device(wanted).type == "cuda":
            on_gpu.add(storage._cdata)
        return storage

    if callable(map_location) and not isinstance(map_location, torch.device):
        return load(f, map_location, *args, **kwargs)
    content = load(f, to_host, *args, **kwargs)
    if not on_gpu:
        return content

    def moved(leaf: Any) -> Any:
        if isinstance(leaf, nn.Module):
            return leaf.cuda()
        if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata in on_gpu:
            return leaf.cuda()
        return leaf

    return tree_map(moved, content)


def _install_safetensors(patches: Patches, shelf: Shelf) -> None:
    """`safetensors` reads raw memory, of which fakes have none: it would write whatever lies there."""
    try:
        library: Any = importlib.import_module("safetensors.torch")
    except ImportError:
        return
    load_real = library.load_file

    def as_they_are(tensors: Mapping[str, torch.Tensor], *args: Any) -> dict[str, torch.Tensor]:
        if not isinstance(tensors, Mapping):
            raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
        return dict(tensors)

    def serialize_file(tensors: Any, filename: Any, metadata: Any = None) -> None:
        shelf.put(_named_tensors(tensors), filename)

    def serialize(tensors: Any, metadata: Any = None) -> bytes:
        stream = io.BytesIO()
        shelf.put(_named_tensors(tensors), stream)
        return stream.getvalue()

    def load_file(filename: Any, device: Any = "cpu", **options: Any) -> Any:
        place = f"cuda:{device}" if isinstance(device, int) else device
        file = shelf.find(filename)
        if file is not None:
            return shelf.load(file, place)
        return {name: tensor.to(place) for name, tensor in load_real(filename, device="cpu", **options).items()}

    # The step before the writing, whose name differs by version, would read the tensors' memory.
    for name in ("_flatten", "_flatten_as_ptr"):
        if hasattr(library, name):
            patches.set(library, name, as_they_are)
    patches.set(library, "serialize_file", serialize_file)
    patches.set(library, "serialize", serialize)
    patches.set(library, "load_file", load_file)


def _named_tensors(tensors: Any) -> dict[str, torch.Tensor]:
    if not isinstance(tensors, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        raise CaptureFailed("this version of safetensors cannot be followed; nothing was written.")
    return tensors
