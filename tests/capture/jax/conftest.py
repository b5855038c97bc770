"""Where JAX is not installed, nothing here is collected, and nothing changes for other tests."""

from __future__ import annotations

import importlib.util
import os

if all(importlib.util.find_spec(package) for package in ("jax", "optax", "flax")):
    from lab.checks.jax_check import XLA_FLAGS

    # Read when the backend starts.
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = XLA_FLAGS
else:
    collect_ignore_glob = ["test_*.py"]
