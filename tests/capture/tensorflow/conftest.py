"""Where TensorFlow is not installed, nothing here runs, and nothing of the other tests' surroundings changes."""

from __future__ import annotations

import importlib.util
import os

import pytest

for package in ("tensorflow", "keras"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

# Read by both when they are loaded.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
