"""Puts the overrides of all subjects in place for the time of a capture."""

from __future__ import annotations

from types import TracebackType

from . import _attention, _autocast, _composites, _dropout, _normalization, _recurrent, _recurrent_native
from ._hints import DeviceHints
from ._overrides import Overrides
from ._target import Target

__all__ = ["Personality"]


class Personality:
    """While entered, CPU-keyed fake tensors on the virtual GPU take the paths of CUDA tensors on the target.

    Use it as a context manager, or call `install` and `remove`. Host tensors keep torch's own behaviour, and leaving
    gives torch back as it was. It may be entered again, and within another.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._installed: list[tuple[Overrides, DeviceHints]] = []

    def install(self) -> Personality:
        """Put all overrides in place."""
        overrides, hints = Overrides(), DeviceHints()
        self._installed.append((overrides, hints))
        try:
            _attention.install(overrides, self.target)
            _autocast.install(overrides)
            _composites.install(overrides)
            _dropout.install(overrides)
            _normalization.install(overrides, self.target)
            _recurrent.install(overrides, self.target)
            _recurrent_native.install(overrides)
            hints.install()
        except BaseException:
            self.remove()
            raise
        return self

    def remove(self) -> None:
        """Take away what the last `install` put in place."""
        if self._installed:
            overrides, hints = self._installed.pop()
            hints.remove()
            overrides.remove()

    def __enter__(self) -> Personality:
        return self.install()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()
