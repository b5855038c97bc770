"""Where ONNX is not installed, nothing here is collected, and nothing changes for other tests."""

from __future__ import annotations

import importlib.util

if not all(importlib.util.find_spec(package) for package in ("onnx", "onnxruntime")):
    collect_ignore_glob = ["test_*.py"]
