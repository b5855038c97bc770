"""oomcast in pytest: the fixture `assert_fits`, with a default device from a marker, the command line or the ini file.

The plugin is loaded by every pytest run of an environment that has oomcast, so it imports nothing before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .estimation import Estimate

__all__ = ["assert_fits", "oomcast_device"]

_MARKER = "oomcast(device): the GPU that assert_fits takes where none is named"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("oomcast", "GPU memory, without a GPU")
    group.addoption("--oomcast-device", metavar="GPU", help="the GPU that assert_fits takes where none is named")
    parser.addini("oomcast_device", "the GPU that assert_fits takes where none is named", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def oomcast_device(request: pytest.FixtureRequest) -> str | None:
    """The default device: the nearest marker's, else the command line's, else the ini file's. May be overridden."""
    marker = request.node.get_closest_marker("oomcast")
    if marker is not None:
        named = marker.kwargs.get("device", marker.args[0] if marker.args else None)
        if not isinstance(named, str):
            raise pytest.UsageError('the marker oomcast needs a device, like @pytest.mark.oomcast(device="rtx-4090")')
        return named
    return request.config.getoption("--oomcast-device") or request.config.getini("oomcast_device") or None


@pytest.fixture
def assert_fits(oomcast_device: str | None) -> Callable[..., Estimate]:
    """`oomcast.testing.assert_fits` with the default device."""

    def assert_fits(job: Any, *, device: str | None = None, **options: Any) -> Estimate:
        __tracebackhide__ = True
        from .testing import assert_fits as check

        chosen = device or oomcast_device
        if chosen is None:
            raise pytest.UsageError(
                "assert_fits needs a device: name one, or set --oomcast-device, oomcast_device in the ini file, "
                'or @pytest.mark.oomcast(device="rtx-4090")'
            )
        return check(job, device=chosen, **options)

    return assert_fits
