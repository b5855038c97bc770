"""Where TensorFlow is not installed, nothing here is collected, and nothing changes for other tests."""

from __future__ import annotations

import importlib.util
import os

if all(importlib.util.find_spec(package) for package in ("tensorflow", "keras")):
    # Read by both when they are loaded.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
else:
    collect_ignore_glob = ["test_*.py"]
