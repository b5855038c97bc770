"""Where MXNet is not installed, nothing here is collected, and nothing changes for other tests."""

from __future__ import annotations

import importlib.util
import os
import warnings

_found = importlib.util.find_spec("mxnet")
if _found is None or _found.origin is None:  # without an origin, it is only this folder
    collect_ignore_glob = ["test_*.py"]
else:
    from lab.checks.mxnet_check import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MXNet 1.9 is older than what it is loaded with
        import mxnet  # noqa: F401
