"""`jax.pmap` in a job: refused where it is called, since it wants arrays with an axis of the devices in front.

The step itself is oomcast's, and what `pmap` makes of one, everything whole on each device and the batch divided, is
what is followed for several GPUs anyway. A job file that only defines such a function loads as ever.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NoReturn
from unittest import mock

import jax

from ...errors import BadInput

__all__ = ["refused_where_it_is_called"]


@contextlib.contextmanager
def refused_where_it_is_called() -> Iterator[None]:
    with mock.patch.object(jax, "pmap", _mapped):
        yield


@functools.wraps(jax.pmap)
def _mapped(function: Callable[..., Any], *_: Any, **__: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def refused(*_: Any, **__: Any) -> NoReturn:
        raise BadInput(
            f"the job calls {getattr(function, '__name__', 'a function')} through jax.pmap, which is not followed: "
            "write it for a whole batch, which is divided over the GPUs of --device, or use jax.shard_map with a mesh "
            "of jax.devices()."
        )

    return refused
