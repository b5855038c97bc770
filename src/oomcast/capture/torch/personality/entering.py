"""Puts the overrides of all subjects in place for the time of a capture."""

from __future__ import annotations

from types import TracebackType

from . import attention as _attention
from . import autocast as _autocast
from . import composites as _composites
from . import ctc as _ctc
from . import dropout as _dropout
from . import normalization as _normalization
from . import recurrent as _recurrent
from . import recurrent_native as _recurrent_native
from .hints import DeviceHints
from .overrides import Overrides
from .platforms import Followed, Platform, entered

__all__ = ["Personality"]

_SUBJECTS = (_attention, _autocast, _composites, _ctc, _dropout, _normalization, _recurrent, _recurrent_native)
_in_place: list[Overrides | DeviceHints] = []


class Personality:
    """While entered, CPU-keyed fake tensors on the virtual GPU take the paths of CUDA tensors on the platform.

    Use it as a context manager, or call `install` and `remove`. Host tensors keep torch's own behaviour, and leaving
    gives torch back as it was. It may be entered again, and within another: the innermost platform decides.
    """

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self._followed = Followed(platform)
        self._entered = 0

    @property
    def differences(self) -> tuple[str, ...]:
        """In what the installed torch would have done otherwise, of all that was run so far."""
        return tuple(self._followed.differences)

    def install(self) -> Personality:
        """Put all overrides in place."""
        entered.append(self._followed)
        self._entered += 1
        # One set serves all: the dispatcher finds the kernels of a set that was removed after another one came.
        if not _in_place:
            try:
                _put_in_place()
            except BaseException:
                self.remove()
                raise
        return self

    def remove(self) -> None:
        """Take away what the last `install` put in place; nothing where there is nothing left."""
        if not self._entered:
            return
        self._entered -= 1
        for index in reversed(range(len(entered))):
            if entered[index] is self._followed:
                del entered[index]
                break
        if not entered:
            while _in_place:
                _in_place.pop().remove()

    def __enter__(self) -> Personality:
        return self.install()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def _put_in_place() -> None:
    overrides, hints = Overrides(), DeviceHints()
    _in_place.append(overrides)
    for subject in _SUBJECTS:
        subject.install(overrides)
    _in_place.append(hints)
    hints.install()
